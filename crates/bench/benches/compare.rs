//! Leasehold beside other locks. `crates/bench/compare` installs those and runs this.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::PathBuf;

use leasehold_bench::contest::{Contestant, Settings, run};
use leasehold_bench::place::{Files, postgres};
use leasehold_bench::process::Program::{Node, Python, Rust};
use leasehold_bench::results::Results;
use leasehold_bench::{machine, memory, page, peer, server_time};

const OURS: [Contestant; 2] = [
    Contestant { name: "leasehold", program: Rust("guard"), ours: true, waits: true, holds_many: true },
    Contestant { name: "leasehold, store alone", program: Rust("call"), ours: true, waits: false, holds_many: false },
];

const fn other(name: &'static str, program: leasehold_bench::process::Program) -> Contestant {
    Contestant { name, program, ours: false, waits: true, holds_many: true }
}

const fn by_hand(name: &'static str, peer: &'static str) -> Contestant {
    Contestant { waits: false, ..other(name, Rust(peer)) }
}

fn main() {
    if peer::is_peer() {
        return;
    }
    let quick = std::env::args().any(|argument| argument == "--quick");
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |store: &str| only.as_ref().is_none_or(|only| only == store);
    let settings = if quick { Settings::QUICK } else { Settings::FULL };
    let machine = machine::describe();
    let mut stores = Vec::new();
    // First, while there is no freed memory.
    let in_memory = wanted("memory").then(|| memory::run(&settings));
    if wanted("redis") {
        let peers = [
            other("rslock", Rust("rslock")),
            other("redis-py", Python("redis_py.py")),
            other("redlock (Node.js)", Node("node_redlock.js")),
        ];
        let server = test_servers::Redis::start();
        let mut results = run("redis", &server, &[&OURS[..], &peers].concat(), &settings);
        results.notes.push(server_time::redis(&server, settings.calls));
        stores.push(results);
    }
    if wanted("postgres") {
        let advisory = Contestant { holds_many: false, ..other("advisory lock", Rust("advisory")) };
        let peers = [advisory, by_hand("insert and delete", "insert"), by_hand("upsert", "upsert")];
        stores.push(run("postgres", &postgres(), &[&OURS[..], &peers].concat(), &settings));
    }
    if wanted("sqlite") {
        let peers = [by_hand("two transactions by hand", "transactions")];
        stores.push(run("sqlite", &Files::new(), &[&OURS[..], &peers].concat(), &settings));
    }
    stores.extend(in_memory);
    let results = Results {
        machine,
        date: machine::date(),
        command: format!("crates/bench/compare{}", if quick { " --quick" } else { "" }),
        rounds: format!("{} rounds of {:.1} s each", settings.rounds, settings.turn.as_secs_f64()),
        stores,
    };
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    // What is only tried, or is not the whole, is no page to show.
    let directory = root.join(if quick || only.is_some() { "target/benchmarks" } else { "docs" });
    page::write(&results, &directory);
    eprintln!("compare: wrote {}", directory.canonicalize().unwrap_or(directory).join("benchmarks.md").display());
}
