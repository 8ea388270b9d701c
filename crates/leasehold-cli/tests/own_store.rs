//! The command of another program, with a store of its own.

#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use leasehold::backend::Backend;
use leasehold::memory::Memory;
use leasehold::stores::{StoreDescriptor, StoreDriver};
use leasehold::{Check, Error, ErrorCode, Verdict};

/// Set to arguments, it makes this test the command.
const ARGUMENTS: &str = "LEASEHOLD_TEST_ARGUMENTS";

#[derive(Debug)]
struct Driver;

#[async_trait]
impl StoreDriver for Driver {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        match url {
            "own://me:secret@bad" => Err(Error::new(ErrorCode::AuthFailed, "who are you?").with_hint("ask the owner")),
            _ => Ok(Arc::new(Memory::new())),
        }
    }

    async fn examine(&self, _: &str) -> Result<Vec<Check>, Error> {
        Ok(vec![Check::new("own check", Verdict::Ok, "as it should be")])
    }

    fn migration(&self, _: &str) -> Result<Option<String>, Error> {
        Ok(Some("make everything\n".to_owned()))
    }
}

#[test]
fn the_command_works_for_a_store_that_its_program_registered() {
    if let Ok(arguments) = std::env::var(ARGUMENTS) {
        let own = StoreDescriptor::new("Own", &["own"], "own://host", &Driver);
        leasehold::stores::register(own).unwrap();
        let arguments = std::iter::once("leasehold").chain(arguments.split(' ')).map(OsString::from);
        let code = leasehold_cli::main(arguments.collect());
        println!("\nended: {}", if code == ExitCode::SUCCESS { "well" } else { "badly" });
        return;
    }
    for (arguments, ended, expected) in [
        (
            "doctor --store own://me:secret@good",
            "well",
            &["own check", "exclusion", "fences grow", "verdict: good"][..],
        ),
        (
            "doctor --store own://me:secret@bad",
            "badly",
            &["reachable", "who are you?", "hint: ask the owner", "verdict: BAD"],
        ),
        ("ls --store own://me:secret@bad", "badly", &["who are you?", "hint: ask the owner"]),
        ("migrate --store own://me:secret@good --print", "well", &["make everything"]),
        ("migrate --store own://me:secret@good", "well", &[]),
        ("ls --help", "well", &["Own (own:)", "own://host"]),
    ] {
        let said = command(arguments);
        assert!(said.contains(&format!("ended: {ended}")), "{arguments}: {said}");
        for text in expected {
            assert!(said.contains(text), "{arguments}: no {text:?} in {said}");
        }
        assert!(!said.contains("secret"), "{arguments}: {said}");
    }
}

/// What this program says as the command.
fn command(arguments: &str) -> String {
    let mut this = Command::new(std::env::current_exe().unwrap());
    this.args(["--exact", "the_command_works_for_a_store_that_its_program_registered", "--nocapture"]);
    let output = this.env(ARGUMENTS, arguments).env_remove("LEASEHOLD_STORE").stdin(Stdio::null()).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    format!("{stdout}{stderr}")
}
