//! A request whose headers pass through a server and its client.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tower_deadline_fuzz::request(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    tower_deadline_fuzz::replay(tower_deadline_fuzz::request)
}
