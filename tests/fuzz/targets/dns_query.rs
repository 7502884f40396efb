#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| broker::fuzz::dns_query(bytes));
