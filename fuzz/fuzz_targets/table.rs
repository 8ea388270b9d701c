#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (leasehold_cli::fuzzing::TABLE.run)(data));
