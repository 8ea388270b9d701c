//! Whatever the command is given or has to show, it is dealt with.

use leasehold_cli::fuzzing::TARGETS;
use test_support::fuzz;

fn main() -> std::process::ExitCode {
    fuzz::main(TARGETS.iter().map(|target| (target.name, target.run, target.corpus)))
}
