//! What the command line asks for.

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
The model lab: what happens to calls of a slow language model, under the stack that people have
today and under tower-deadline.

Usage: cargo run --release --example model_lab -- [OPTIONS]

Options:
  --speed N    Run N times faster than a real model: 1, 2, 4, 5, 10 or 20 [default: 20].
               Figures are in the model's seconds, whatever the speed.
  --json       Print one JSON array, and nothing else, to standard output
  --svg FILE   Draw the runs into FILE
  -h, --help   Print this

Exit status: 0 when every run of tower-deadline did what its policy promises, 1 when one did not,
2 when the command line cannot be understood.
";

/// The speeds at which `Retry-After: 20` is a whole number of real seconds, which is all that the
/// header can say.
const SPEEDS: [u32; 6] = [1, 2, 4, 5, 10, 20];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) speed: u32,
    pub(crate) json: bool,
    pub(crate) svg: Option<PathBuf>,
}

/// What to do instead of running the lab.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    Help,
    Refuse(String),
}

impl Args {
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Instead> {
        let mut parsed = Self {
            speed: 20,
            json: false,
            svg: None,
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let Some(text) = arg.to_str() else {
                return Err(Instead::Refuse(format!(
                    "unknown argument {}",
                    arg.to_string_lossy()
                )));
            };
            // `--speed=5` is `--speed 5`.
            let (flag, mut given) = match text.split_once('=') {
                Some((flag, value)) => (flag, Some(OsString::from(value))),
                None => (text, None),
            };
            let mut value = || {
                let value = given.take().or_else(|| args.next());
                value.ok_or_else(|| Instead::Refuse(format!("{flag} needs a value")))
            };
            match flag {
                "--speed" => parsed.speed = speed(&value()?)?,
                "--svg" => parsed.svg = Some(value()?.into()),
                "--json" if given.is_none() => parsed.json = true,
                "-h" | "--help" if given.is_none() => return Err(Instead::Help),
                _ => return Err(Instead::Refuse(format!("unknown argument {text}"))),
            }
        }
        Ok(parsed)
    }
}

fn speed(value: &OsString) -> Result<u32, Instead> {
    let speed = value.to_str().and_then(|text| text.parse().ok());
    speed.filter(|n| SPEEDS.contains(n)).ok_or_else(|| {
        let value = value.to_string_lossy();
        Instead::Refuse(format!(
            "--speed {value}: one of {SPEEDS:?}, since Retry-After counts whole seconds"
        ))
    })
}
