use std::time::Duration;
use tower_deadline::CallPolicy;

const API: CallPolicy = CallPolicy::http()
    .attempt_timeout(Duration::from_secs(30))
    .checked();

fn main() {
    println!("{API:?}");
}
