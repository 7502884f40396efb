//! Leaves the unwind tables out of the released executable.

use std::env;

/// A panic aborts there, so nothing ever unwinds, and the tables would be an eighth of the
/// executable. `-C force-unwind-tables=no` does not remove them: functions keep their
/// personality, and a personality brings its table. Tests unwind, and are left alone.
fn main() {
    println!("cargo::rerun-if-changed=packaging/no-unwind-tables.ld");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release")
        && is("CARGO_CFG_TARGET_ENV", "musl")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
    {
        let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{root}/packaging/no-unwind-tables.ld");
    }
}
