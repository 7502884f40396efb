#!/usr/bin/env bash
# Cargo 1.95 (rustc 1.95): a profile that inherits another one keeps its settings for single packages,
# and they win over what the new profile says for all packages.
#
#   [profile.release.package.itoa]
#   opt-level = 1
#   [profile.dist]
#   inherits = "release"
#   opt-level = 3
#
# builds itoa with opt-level 1 in `dist`, and all else with 3. Cargo gives no warning. A profile for
# releases that inherits one for quick builds has to name these packages again; the list is easily
# forgotten, since the build succeeds and the program is only slower or larger.
#
# Needs: crates.io, cargo.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "overrides"
version = "0.0.0"
edition = "2021"
[dependencies]
itoa = "=1.0.15"
ryu = "=1.0.20"
[profile.release.package.itoa]
opt-level = 1
[profile.dist]
inherits = "release"
opt-level = 3
[profile.named]
inherits = "release"
opt-level = 3
[profile.named.package.itoa]
opt-level = 3
TOML
cat >src/main.rs <<'RUST'
fn main() {
    println!("{}{}", itoa::Buffer::new().format(1), ryu::Buffer::new().format(1.0));
}
RUST
seen=$(
    for profile in dist named; do
        cargo build --profile "$profile" --verbose 2>&1 |
            sed -n 's/.*--crate-name \([a-z]*\) .* opt-level=\([0-9]\).*/\1 \2/p' | sort |
            sed "s/^/$profile: /"
    done
)
echo "$seen"
diff - <(echo "$seen") <<'SEEN' || { echo "the behaviour has changed"; exit 1; }
dist: itoa 1
dist: overrides 3
dist: ryu 3
named: itoa 3
named: overrides 3
named: ryu 3
SEEN
