//! Whatever comes from outside the library, it is read or refused, and nothing else.

use leasehold::fuzzing::TARGETS;
use test_support::fuzz;

fn main() -> std::process::ExitCode {
    fuzz::main(TARGETS.iter().map(|target| (target.name, target.run, target.corpus)))
}
