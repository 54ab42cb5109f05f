//! Explains a policy that is given by flags, or by a file.
//!
//! ```sh
//! cargo run --example explain -- --deadline 5s --attempts 4 --backoff.jitter none
//! cargo run --example explain -- --file policy.toml --svg policy.svg
//! ```

mod flags;
mod svg;

use std::error::Error;
use std::process::ExitCode;
use std::{env, fs};

use serde::de::DeserializeSeed;
use tower_deadline::CallPolicy;

use self::flags::Flags;

const USAGE: &str = "\
usage: explain [--SETTING VALUE ...] [--file POLICY.toml] [--svg TIMELINE.svg]

A setting is one of a policy's, such as --deadline 5s, --attempt_timeout none, --attempts 4,
--backoff.base 50ms, --backoff.jitter none, --ceiling none, --budget.fraction 0.2, --preset none.
Flags are put over the file, and the file over the preset.";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse(env::args().skip(1))?;
    if flags.help {
        println!("{USAGE}");
        return Ok(());
    }
    let policy = match &flags.file {
        Some(file) => toml::from_str(&fs::read_to_string(file)?)?,
        None => CallPolicy::http(),
    };
    let policy = policy.deserialize(flags.settings)?;
    let explanation = policy.explain();
    println!("{explanation}");
    if let Some(file) = flags.svg {
        fs::write(&file, svg::draw(&explanation))?;
        eprintln!("drawn to {file}");
    }
    Ok(())
}
