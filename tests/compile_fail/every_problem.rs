use std::time::Duration;
use tower_deadline::{AttemptCeiling, Backoff, CallPolicy};

//~ 5 problems in this policy:
//~ attempts = 0: the first attempt counts
//~ backoff.cap = 10ms: it is below the base of 250ms
//~ budget.fraction = 1.5: it has to be above 0 and at most 1
//~ ceiling.multiple = 1: it has to be above 1
//~ ceiling.floor = 2.5s: it is not below the 2s
const API: CallPolicy = CallPolicy::http()
    .attempt_timeout(Duration::from_secs(2))
    .attempts(0)
    .backoff(
        Backoff::exponential()
            .base(Duration::from_millis(250))
            .cap(Duration::from_millis(10)),
    )
    .budget(1.5, 3)
    .ceiling(AttemptCeiling::above(1.0).floor(Duration::from_millis(2500)))
    .checked();

fn main() {
    println!("{API:?}");
}
