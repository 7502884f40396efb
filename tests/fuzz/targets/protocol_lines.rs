#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| serve::fuzz::protocol_lines(bytes));
