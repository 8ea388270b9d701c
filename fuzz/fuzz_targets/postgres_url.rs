#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (leasehold::fuzzing::POSTGRES_URL.run)(data));
