#!/usr/bin/env bash
# flate2 1.1.5 (crates.io) and IO::Uncompress::Gunzip 2.106 (Perl 5.36): after a gzip stream,
# flate2 reports zeros as an error, and Perl returns them as data.
#
# Tapes and some writers of archives pad a gzip file with zeros to a whole block. gzip(1), Python's
# gzip, Java's GZIPInputStream and Node's zlib ignore the padding. But
#   - flate2's MultiGzDecoder, which readers of files with several members need, returns all the
#     data and then the error "invalid gzip header"; GzDecoder reads the first member only;
#   - Perl's gunzip with MultiStream appends the zeros to the data, since it takes what follows the
#     last member for uncompressed text (Transparent, on by default) and reports success.
# So the padding must be recognised before a reader of several members is asked for the next one.
#
# Needs: crates.io, cargo, gzip, perl, python3.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
{
    printf 'hello\n' | gzip --no-name
    head --bytes 488 /dev/zero
} >padded.gz
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "padded"
version = "0.0.0"
edition = "2021"
[dependencies]
flate2 = "=1.1.5"
TOML
cat >src/main.rs <<'RUST'
use flate2::read::{GzDecoder, MultiGzDecoder};
use std::io::Read;

fn show(name: &str, mut reader: impl Read) {
    let mut text = Vec::new();
    let end = reader.read_to_end(&mut text).map_err(|error| error.to_string());
    println!("{name}: {} bytes, {end:?}", text.len());
}

fn main() {
    let file = std::fs::read("padded.gz").unwrap();
    show("flate2 GzDecoder", &mut GzDecoder::new(&file[..]));
    show("flate2 MultiGzDecoder", &mut MultiGzDecoder::new(&file[..]));
}
RUST
seen=$(
    echo "gzip: $(gzip --decompress --stdout padded.gz | wc --bytes) bytes"
    python3 -c 'import gzip; print("python:", len(gzip.open("padded.gz").read()), "bytes")'
    cargo run --quiet
    perl -MIO::Uncompress::Gunzip=gunzip -e '
        gunzip("padded.gz" => \my $many, MultiStream => 1) or die;
        print "perl MultiStream: ", length($many), " bytes\n";
        gunzip("padded.gz" => \my $strict, MultiStream => 1, Transparent => 0) or die;
        print "perl MultiStream, not Transparent: ", length($strict), " bytes\n"'
)
echo "$seen"
diff - <(echo "$seen") <<'SEEN' || { echo "the behaviour has changed"; exit 1; }
gzip: 6 bytes
python: 6 bytes
flate2 GzDecoder: 6 bytes, Ok(6)
flate2 MultiGzDecoder: 6 bytes, Err("invalid gzip header")
perl MultiStream: 494 bytes
perl MultiStream, not Transparent: 6 bytes
SEEN
