#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| doors::fuzz::mcp_lines(bytes));
