//! What bytes from the wire must never do: panic, loosen a bound, or pass for "unlimited".
//!
//! Each target is a function of bytes here, with its seeds in `corpus/`, and is run in three ways:
//!
//! ```sh
//! cargo test                               # the seeds and some thousand mutations of them, in seconds
//! cargo run --bin grpc -- artifacts/grpc/* # these files again
//! cargo +nightly fuzz run grpc             # for as long as you like, with cargo-fuzz
//! ```
//!
//! All targets but `deadline` read their input as lines of `name: value`.

mod grpc;
mod hop;
mod retry_after;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, HeaderName, HeaderValue};

pub use self::grpc::grpc;
pub use self::hop::{deadline, request};
pub use self::retry_after::retry_after;

/// Runs a target over the files that the program is called with.
///
/// # Errors
///
/// A file that cannot be read.
pub fn replay(target: fn(&[u8])) -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        println!("{path}");
        target(&std::fs::read(path)?);
    }
    Ok(())
}

/// The headers that the lines of `data` are; lines that are none are left out.
fn headers(data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in data.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let Ok(name) = HeaderName::from_bytes(name) else {
            continue;
        };
        if let Ok(value) = HeaderValue::from_bytes(value.strip_prefix(b" ").unwrap_or(value)) {
            let _ = headers.try_append(name, value);
        }
    }
    headers
}

/// Polls once.
fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    const MUTATIONS: usize = 3000;

    /// What a mutation is likely to get somewhere with.
    const TOKENS: [&[u8]; 16] = [
        b"0",
        b"9",
        b"99999999",
        b"18446744073709551616",
        b"-",
        b"+",
        b".",
        b" ",
        b"\t",
        b"\n",
        b"m",
        b"n",
        b"H",
        b"\xff",
        b",",
        b"grpc-timeout: ",
    ];

    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let files = fs::read_dir(folder.join(target)).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        assert!(files.len() > 5, "{target} has seeds");
        files.iter().map(|file| fs::read(file).unwrap()).collect()
    }

    fn mutate(data: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut fastrand::Rng) {
        let at = random.usize(..=data.len());
        match random.u8(..6) {
            0 => data.truncate(at),
            1 if at < data.len() => data[at] ^= 1 << random.u8(..8),
            2 if at < data.len() => {
                data.remove(at);
            }
            3 => {
                let other = random.choice(seeds).unwrap();
                data.extend_from_slice(other);
            }
            4 => {
                let other = random.choice(seeds).unwrap();
                let from = random.usize(..=other.len());
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            _ => {
                let token = random.choice(TOKENS).unwrap();
                data.splice(at..at, token.iter().copied());
            }
        }
    }

    /// Says of the input that fails what it was.
    struct Input<'a>(&'a [u8]);

    impl Drop for Input<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the input was {:?}", self.0.escape_ascii().to_string());
            }
        }
    }

    fn run(name: &str, target: fn(&[u8])) {
        let seeds = seeds(name);
        let checked = |data: &[u8]| {
            let input = Input(data);
            target(input.0);
        };
        for seed in &seeds {
            checked(seed);
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..MUTATIONS {
            let mut data = random.choice(&seeds).unwrap().clone();
            for _ in 0..random.usize(1..6) {
                mutate(&mut data, &seeds, &mut random);
            }
            checked(&data);
        }
    }

    #[test]
    fn deadline() {
        run("deadline", super::deadline);
    }

    #[test]
    fn request() {
        run("request", super::request);
    }

    #[test]
    fn retry_after() {
        run("retry_after", super::retry_after);
    }

    #[test]
    fn grpc() {
        run("grpc", super::grpc);
    }
}
