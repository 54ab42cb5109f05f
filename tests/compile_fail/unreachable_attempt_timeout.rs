use std::time::Duration;
use tower_deadline::CallPolicy;

//~ 1 problem in this policy:
//~ - attempt_timeout = 60s: it is above the deadline of 30s
const API: CallPolicy = CallPolicy::http()
    .attempt_timeout(Duration::from_secs(60))
    .checked();

fn main() {
    println!("{API:?}");
}
