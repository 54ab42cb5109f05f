//! The value of a header that carries a deadline.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tower_deadline_fuzz::deadline(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    tower_deadline_fuzz::replay(tower_deadline_fuzz::deadline)
}
