#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| broker::fuzz::client_hello(bytes));
