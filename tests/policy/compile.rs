//! What the compiler says of a policy that cannot mean what it says.
//!
//! The sources in `tests/compile_fail` are compiled as a package of their own, against this crate. Each
//! lists, after `//~`, what the compiler's message has to contain. The text is that of the policy; how
//! a compiler frames it is its own business, and differs from one to the next.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_message_names_every_problem_and_both_numbers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile_fail");
    let sources = package.join("src/bin");
    fs::create_dir_all(&sources).unwrap();
    let dependency = root.display();
    let manifest = format!(
        "[package]\nname = \"compile-fail\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         tower-deadline = {{ path = {:?}, default-features = false }}\n",
        dependency.to_string()
    );
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    // The same versions as here, so that nothing has to be fetched.
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).unwrap();

    for entry in fs::read_dir(root.join("tests/compile_fail")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        fs::copy(&path, sources.join(path.file_name().unwrap())).unwrap();
        let output = Command::new(env!("CARGO"))
            .args(["check", "--offline", "--quiet", "--bin", &name])
            .arg("--manifest-path")
            .arg(package.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(package.join("target"))
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        let source = fs::read_to_string(&path).unwrap();
        let mut expected = source.lines().filter_map(|line| line.strip_prefix("//~ "));
        let refused = source.contains("//~");
        assert_eq!(output.status.success(), !refused, "{name}: {told}");
        assert!(expected.all(|text| told.contains(text)), "{name}: {told}");
    }
}
