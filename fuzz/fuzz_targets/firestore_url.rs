#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (leasehold::fuzzing::FIRESTORE_URL.run)(data));
