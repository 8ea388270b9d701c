//! A contestant as a process: a line on its standard input is an order, a line of JSON on its
//! standard output the answer.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::counters::cpu_of;

/// What has to be run for a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// This program, as [`peer`](crate::peer) of this name.
    Rust(&'static str),
    /// A script of `crates/bench/peers`, with the modules that `crates/bench/compare` has
    /// installed.
    Python(&'static str),
    /// The same for Node.js.
    Node(&'static str),
}

/// Names the peer that this program is, and the URL of its store.
pub const PEER: &str = "LEASEHOLD_BENCH_PEER";

/// A contestant that runs.
#[derive(Debug)]
pub struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// What it says of its version.
    pub version: String,
}

/// What came of pairs of acquire and release.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// How many there were.
    pub pairs: f64,
    /// How many in a second.
    pub pace: f64,
    /// The median of one, in seconds.
    pub p50: f64,
}

impl Process {
    /// Starts it on the store at `url`. It is ready when this returns.
    pub fn start(program: Program, url: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let installed = root.join("../../target/bench-peers");
        let mut command = match program {
            Program::Rust(name) => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.env(PEER, format!("{name} {url}"));
                command
            }
            Program::Python(script) => {
                let mut command = Command::new("python3");
                command.arg(root.join("peers").join(script)).arg(url).env("PYTHONPATH", installed.join("python"));
                command
            }
            Program::Node(script) => {
                let mut command = Command::new("node");
                command.arg(root.join("peers").join(script)).arg(url);
                command.env("NODE_PATH", installed.join("node_modules"));
                command
            }
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, orders, answers, version: String::new() };
        process.version = process.answer()["version"].as_str().unwrap().to_owned();
        process
    }

    /// Pairs of so many tasks with a key each, for so long.
    pub fn pairs(&mut self, tasks: usize, time: Duration) -> Round {
        let answer = self.ask(&format!("pairs {tasks} {}", time.as_millis()));
        let [pairs, seconds, p50] = ["pairs", "seconds", "p50_us"].map(|name| answer[name].as_f64().unwrap());
        Round { pairs, pace: pairs / seconds, p50: p50 / 1e6 }
    }

    /// Takes the baton.
    pub fn take(&mut self) {
        self.ask("take");
    }

    /// Begins to wait for the baton.
    pub fn wait(&mut self) {
        assert_eq!(self.ask("wait")["waiting"], true);
    }

    /// When it got the baton, in nanoseconds since 1970.
    pub fn granted(&mut self) -> f64 {
        self.answer()["at_ns"].as_f64().unwrap()
    }

    /// Gives the baton back, and tells when it began to.
    pub fn release(&mut self) -> f64 {
        self.ask("release")["at_ns"].as_f64().unwrap()
    }

    /// Takes the locks with the numbers from one to below the other, for as long as it lives and
    /// longer.
    pub fn hold(&mut self, from: u64, to: u64) {
        self.ask(&format!("hold {from} {to}"));
    }

    /// The processor time that it has used.
    pub fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }

    fn ask(&mut self, order: &str) -> Value {
        writeln!(self.orders, "{order}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Value {
        let line = self.answers.next().expect("a contestant has ended").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
