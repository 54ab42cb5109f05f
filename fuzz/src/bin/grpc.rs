//! A response with a status of gRPC.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tower_deadline_fuzz::grpc(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    tower_deadline_fuzz::replay(tower_deadline_fuzz::grpc)
}
