//! What the command line asks for.

use std::ffi::OsString;

pub(crate) const HELP: &str = "\
The chain: what becomes of a call that others make further calls for.

Usage: cargo run --release --example chain -- [OPTIONS]

Options:
  --json       Print one JSON object, and nothing else, to standard output
  -h, --help   Print this

Exit status: 0 when the time that is left fell at every hop, all work stopped with its caller, and
the last service was asked as often as it should be; 1 when not; 2 when the command line cannot be
understood.
";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) json: bool,
}

/// What to do instead of running the chain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    Help,
    Refuse(String),
}

impl Args {
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Instead> {
        let mut parsed = Self { json: false };
        for arg in args {
            match arg.to_str() {
                Some("--json") => parsed.json = true,
                Some("-h" | "--help") => return Err(Instead::Help),
                _ => {
                    let arg = arg.to_string_lossy();
                    return Err(Instead::Refuse(format!("unknown argument {arg}")));
                }
            }
        }
        Ok(parsed)
    }
}
