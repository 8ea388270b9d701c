#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (leasehold_conformance::remote::fuzzing::PEER_PROTOCOL.run)(data));
