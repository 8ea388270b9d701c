#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (leasehold::fuzzing::REDIS_RECORD.run)(data));
