#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| serve::fuzz::mcp_lines(bytes));
