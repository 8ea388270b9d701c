//! Whatever comes through the pipes, it is understood or refused.

use leasehold_conformance::remote::fuzzing::PEER_PROTOCOL;
use test_support::fuzz;

fn main() -> std::process::ExitCode {
    fuzz::main([(PEER_PROTOCOL.name, PEER_PROTOCOL.run, PEER_PROTOCOL.corpus)])
}
