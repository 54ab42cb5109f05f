//! A chain of services, each of which calls the next one on behalf of the same client.
//!
//! ```text
//! cargo run --release --example chain
//! ```
//!
//! The services are axum's, one of them tonic's, and talk over loopback; the stacks between them are
//! those of a `CallPolicy`. Shown is that
//!
//! - the time that the client waits travels along, and is less at each hop;
//! - the work ends at each hop when the client leaves;
//! - retries at every hop multiply, and how a budget, and retries that are left to the client, end that.
//!
//! The example fails when a figure is not what it has to be. `--help` lists the options.

mod args;
mod chain;
mod client;
mod given_up;
mod grpc;
mod hop;
mod links;
mod log;
mod report;
mod storm;
mod time_left;

use std::process::ExitCode;

use tower_deadline::BoxError;

use self::args::{Args, HELP, Instead};
use self::given_up::Stopped;
use self::storm::Storm;
use self::time_left::TimeLeft;

#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) hops: Vec<TimeLeft>,
    pub(crate) stopped: Vec<Stopped>,
    pub(crate) storm: Storm,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args_os().skip(1)) {
        Ok(args) => args,
        Err(Instead::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(Instead::Refuse(why)) => {
            eprintln!("chain: {why}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match run(&args).await {
        Ok(faults) => {
            for fault in &faults {
                eprintln!("chain: {fault}");
            }
            ExitCode::from(u8::from(!faults.is_empty()))
        }
        Err(error) => {
            eprintln!("chain: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs and reports everything. What is wrong with it.
async fn run(args: &Args) -> Result<Vec<String>, BoxError> {
    let found = Findings {
        hops: time_left::measure().await?,
        stopped: given_up::measure().await?,
        storm: storm::measure().await?,
    };
    if args.json {
        println!("{:#}", report::json(&found));
    } else {
        print!("{}", report::text(&found)?);
    }
    let mut faults = time_left::faults(&found.hops);
    faults.extend(storm::faults(&found.storm));
    Ok(faults)
}
