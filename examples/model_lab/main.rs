//! A language model, called through the stack that people have today and through this crate's.
//!
//! ```text
//! cargo run --release --example model_lab
//! ```
//!
//! The model is a real HTTP server on loopback. It thinks for a second, then writes 20 tokens a
//! second until it has 780 or its client is gone, and keeps count of what it was asked and what it
//! wrote. Each scenario calls it through tower's `Timeout`, `Retry` and `Timeout`, set as a fleet's
//! defaults commonly are, and through the layers of tower-deadline; the client beneath is hyper-util's
//! in both cases.
//!
//! The lab fails when a figure of ours is not what the policy promises. `--help` lists the options.

mod args;
mod client;
mod lateness;
mod ledger;
mod measured;
mod model_time;
mod ours;
mod report;
mod run;
mod scenario;
mod scenarios;
mod server;
mod svg;
mod today;

use std::process::ExitCode;
use std::time::Duration;

use tokio::task::JoinSet;
use tower_deadline::BoxError;

use self::args::{Args, HELP, Instead};
use self::lateness::Lateness;
use self::model_time::ModelTime;
use self::run::Run;
use self::scenario::Scenario;
use self::scenarios::SCENARIOS;

/// What a machine that is not idle adds to a figure, in real time.
const SLACK: Duration = Duration::from_millis(100);
/// How late a timer has to be for the machine to be the suspect.
const LATE: Duration = Duration::from_millis(20);
/// How often a run is measured at most, if the machine is late each time.
const MEASUREMENTS: u32 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args_os().skip(1)) {
        Ok(args) => args,
        Err(Instead::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(Instead::Refuse(why)) => {
            eprintln!("model_lab: {why}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match lab(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("model_lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs and reports everything. Whether every promise was kept.
async fn lab(args: &Args) -> Result<bool, BoxError> {
    let time = ModelTime::new(args.speed);

    let mut runs = Vec::new();
    let mut missing: Vec<_> = SCENARIOS.iter().collect();
    for measurement in 1..=MEASUREMENTS {
        let lateness = Lateness::watch();
        let measured = measure(&missing, time, args.json).await?;
        let late = lateness.worst();
        // A failure on a machine that kept time is a failure.
        let again = late >= LATE && measurement < MEASUREMENTS;
        missing.clear();
        for run in measured {
            if again && !run.broken_promises(SLACK).is_empty() {
                let scenario = run.scenario;
                eprintln!("{scenario}: timers were {late:?} late; measured again");
                missing.push(run.scenario);
            } else {
                runs.push(run);
            }
        }
        if missing.is_empty() {
            break;
        }
    }
    // Back into the order of the scenarios, from the order in which they ended.
    runs.sort_by_key(|run| SCENARIOS.iter().position(|s| std::ptr::eq(s, run.scenario)));

    if args.json {
        println!("{:#}", report::json(&runs));
    } else {
        println!("\n{}", report::table(&runs));
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, svg::picture(&runs))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }

    let mut kept = true;
    for run in &runs {
        for broken in run.broken_promises(SLACK) {
            eprintln!("{}: {broken}", run.scenario);
            kept = false;
        }
    }
    Ok(kept)
}

/// Runs `scenarios` side by side, each with a model of its own.
async fn measure(
    scenarios: &[&'static Scenario],
    time: ModelTime,
    silent: bool,
) -> Result<Vec<Run>, BoxError> {
    let mut running: JoinSet<_> = scenarios.iter().map(|s| Run::of(s, time)).collect();
    let mut runs = Vec::new();
    while let Some(ended) = running.join_next().await {
        let run = ended??;
        if !silent {
            println!("{}", report::line(&run));
        }
        runs.push(run);
    }
    Ok(runs)
}
