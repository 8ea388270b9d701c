//! Fuzzing without a fuzzer: each target of the folder `fuzz` gets its corpus, and then for a
//! moment whatever a seeded generator makes of it.
//!
//! `FUZZ_SEED` and `FUZZ_SECONDS` change where it starts and how long it goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fastrand::Rng;
use libtest_mimic::{Arguments, Failed, Trial};

/// The name of a target, what it does with its input, and input worth starting from.
pub type Target = (&'static str, fn(&[u8]), &'static [&'static [u8]]);

/// What tends to break things.
const ODD: [&[u8]; 40] = [
    b"@",
    b"%40",
    b"?",
    b"&",
    b"=",
    b"#",
    b"/",
    b"//",
    b":",
    b",",
    b"%",
    b"%00",
    b"%ff",
    b"\0",
    b"\n",
    b"\"",
    b"\\",
    b"{",
    b"[[",
    b"]",
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"18446744073709551616",
    b"9223372036854775807",
    b"s",
    b"ms",
    b" ",
    b"\t",
    b"\x1b[31m",
    b"\xff",
    b"\xc3",
    "\u{202e}".as_bytes(),
    "\u{9b}".as_bytes(),
    "e\u{301}".as_bytes(),
    "❤\u{fe0f}".as_bytes(),
    "👩\u{200d}👩".as_bytes(),
    "日".as_bytes(),
    "\u{1100}\u{1161}".as_bytes(),
];

/// The `main` of a test with `harness = false`: a test for each target.
pub fn main(targets: impl IntoIterator<Item = Target>) -> ExitCode {
    let trial = |target: Target| Trial::test(target.0, move || fuzz(target).map_err(Failed::from));
    libtest_mimic::run(&Arguments::from_args(), targets.into_iter().map(trial).collect()).exit_code()
}

/// # Errors
///
/// The input on which the target panics, or that no fuzzer knows the target.
fn fuzz((name, run, corpus): Target) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let binary = format!("path = \"fuzz_targets/{name}.rs\"");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).map_err(|error| error.to_string())?;
    if !manifest.contains(&binary) || !folder.join(format!("fuzz_targets/{name}.rs")).exists() {
        return Err(format!("{name} is not in the folder of fuzz targets"));
    }
    let seed = number("FUZZ_SEED", 1);
    let until = Instant::now() + Duration::from_secs(number("FUZZ_SECONDS", 2));
    let mut random = Rng::with_seed(seed);
    let mut count = 0;
    while count < corpus.len() || Instant::now() < until {
        let input = corpus.get(count).map_or_else(|| mutated(&mut random, corpus), |input| input.to_vec());
        count += 1;
        if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
            return Err(format!("{name} fails on b\"{}\", input {count} of seed {seed}", input.escape_ascii()));
        }
    }
    println!("{count} inputs");
    Ok(())
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// One of the corpus, or nothing, with a few changes.
fn mutated(random: &mut Rng, corpus: &[&[u8]]) -> Vec<u8> {
    let mut input = if random.u8(..) < 16 { Vec::new() } else { pick(random, corpus).to_vec() };
    for _ in 0..random.usize(1..8) {
        let at = random.usize(..=input.len());
        let end = random.usize(at..=input.len().min(at + 16));
        match random.u8(..7) {
            0 => insert(&mut input, at, pick(random, &ODD)),
            1 => insert(&mut input, at, random.char(..).to_string().as_bytes()),
            2 => insert(&mut input, at, &[random.u8(..)]),
            3 => drop(input.drain(at..end)),
            4 => {
                let again = input[at..end].repeat(random.usize(1..20));
                insert(&mut input, end, &again);
            }
            5 => {
                let other = pick(random, corpus);
                let from = random.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.u8(..8);
                }
            }
        }
    }
    input
}

fn pick<'a>(random: &mut Rng, from: &[&'a [u8]]) -> &'a [u8] {
    from[random.usize(..from.len())]
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    drop(input.splice(at..at, bytes.iter().copied()));
}
