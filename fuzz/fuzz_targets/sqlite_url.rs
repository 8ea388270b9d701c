#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (leasehold::fuzzing::SQLITE_URL.run)(data));
