#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| doors::fuzz::signed_link(bytes));
