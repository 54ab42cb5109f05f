//! Holds the instructions and allocations of a call to what they were.
//!
//! ```sh
//! cargo run --release --bin guard            # compares with guard.json, and fails where there is more
//! cargo run --release --bin guard -- --write # writes guard.json
//! ```
//!
//! Both are the same in every run, however busy the machine: instructions are counted by callgrind
//! (valgrind), where the machine has it, allocations by the allocator. A compiler of another version makes
//! other instructions, so that those are compared only where it is the same.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Map, Value, json};

/// More than this much more is refused.
const GROWTH: f64 = 1.10;

const VARIANTS: [&str; 3] = ["ours, alike", "ours, full", "ours, none"];
const WORKS: [&str; 4] = [
    "ready, typical",
    "ready, typical, single",
    "pending once, small",
    "pending once, typical",
];

fn main() -> ExitCode {
    let write = std::env::args().any(|arg| arg == "--write");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("guard.json");
    let counted = count();
    if write {
        std::fs::write(&file, format!("{counted:#}\n")).expect("guard.json can be written");
        return ExitCode::SUCCESS;
    }
    let kept = std::fs::read_to_string(&file).expect("guard.json can be read");
    let kept: Value = serde_json::from_str(&kept).expect("guard.json is JSON");
    let worse = compare(&kept, &counted);
    for line in &worse {
        eprintln!("{line}");
    }
    if worse.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn compare(kept: &Value, counted: &Value) -> Vec<String> {
    let number = |all: &Value, what: &str, name: &str| all[what][name].as_f64();
    let mut worse = Vec::new();
    let same_compiler = kept["compiler"] == counted["compiler"];
    let can_count = counted["instructions"]
        .as_object()
        .is_some_and(|all| !all.is_empty());
    if !same_compiler || !can_count {
        println!("instructions are not compared: another compiler, or no valgrind");
    }
    for (variant, work) in pairs() {
        let name = name(variant, work);
        if same_compiler && can_count {
            let (before, now) = (
                number(kept, "instructions", &name),
                number(counted, "instructions", &name),
            );
            match (before, now) {
                (Some(before), Some(now)) if now > before * GROWTH => {
                    worse.push(format!(
                        "{name}: {now} instructions a call, {before} before"
                    ));
                }
                (Some(before), Some(now)) => println!("{name}: {now} instructions ({before})"),
                _ => worse.push(format!(
                    "{name}: instructions are not known; write guard.json anew"
                )),
            }
        }
        let (before, now) = (
            number(kept, "allocations", &name),
            number(counted, "allocations", &name),
        );
        match (before, now) {
            (Some(before), Some(now)) if now > before => {
                worse.push(format!("{name}: {now} allocations a call, {before} before"));
            }
            (Some(_), Some(_)) => {}
            _ => worse.push(format!(
                "{name}: allocations are not known; write guard.json anew"
            )),
        }
    }
    worse
}

fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    VARIANTS
        .into_iter()
        .flat_map(|variant| WORKS.into_iter().map(move |work| (variant, work)))
}

fn name(variant: &str, work: &str) -> String {
    format!("{variant}: {work}")
}

fn count() -> Value {
    let stacks = stacks();
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    let (mut instructions, mut allocations) = (Map::new(), Map::new());
    for (variant, work) in pairs() {
        // What a call has over the bare service, without what begins and ends the process.
        if has_valgrind {
            let a_call = |variant| {
                let counted = |n: u64| instructions_of(&stacks, variant, work, n);
                (counted(3000) - counted(1000)) / 4000.0 // each run makes its calls twice
            };
            let over = a_call(variant) - a_call("bare");
            instructions.insert(name(variant, work), json!(over.round()));
        }
        let output = Command::new(&stacks)
            .args(["--allocations", variant, work, "1000"])
            .output()
            .expect("the binary `stacks` runs");
        let counted = String::from_utf8_lossy(&output.stdout);
        let a_call: f64 = counted.trim().parse().expect("a number");
        allocations.insert(name(variant, work), json!((a_call * 10.0).round() / 10.0));
    }
    json!({
        "compiler": compiler(),
        "instructions": instructions,
        "allocations": allocations,
    })
}

/// The benchmark itself, which is built beside this program.
fn stacks() -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "build",
        "--quiet",
        "--release",
        "--bin",
        "stacks",
        "--manifest-path",
    ]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    let built = command.status().expect("cargo runs");
    assert!(built.success(), "the binary `stacks` does not build");
    let this = std::env::current_exe().expect("this program has a path");
    this.with_file_name("stacks")
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn instructions_of(stacks: &Path, variant: &str, work: &str, n: u64) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(stacks)
        .args(["--child", variant, work, &n.to_string()])
        .output()
        .expect("valgrind runs");
    let told = String::from_utf8_lossy(&output.stderr);
    let line = told.lines().find(|line| line.contains("Collected"));
    let last = line.and_then(|line| line.split_whitespace().last());
    last.and_then(|number| number.parse().ok())
        .expect("callgrind says how many instructions it collected")
}
