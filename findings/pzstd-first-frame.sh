#!/usr/bin/env bash
# zstandard 0.25.0 and pyzstd 0.17.0 (PyPI): some calls return nothing for what pzstd writes.
#
# pzstd, the parallel tool of zstd's own repository, begins every file with a skippable frame of
# twelve bytes that holds the size of the next frame. Some calls of the Python bindings stop after
# the first frame, also when it is a skippable one:
#   - zstandard's decompressobj() and read_to_iter(), and pyzstd's ZstdDecompressor, return no bytes
#     and raise no error;
#   - zstandard's decompress() raises an error that says "expected 4": it takes the size of the
#     skippable frame's content for that of the data.
# stream_reader(), copy_stream() and open() return everything.
# So a reader of OCI layers or archives must not end at the first frame that yields nothing.
#
# Needs: PyPI, python3 with venv, and Debian's package zstd (pzstd 1.5.4 was tried).

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv python
python/bin/pip install --quiet zstandard==0.25.0 pyzstd==0.17.0
seq 1 500000 >plain
pzstd --quiet --processes 2 --stdout plain >plain.zst
python/bin/python - <<'PYTHON'
import io

import pyzstd
import zstandard

data, plain = open("plain.zst", "rb").read(), open("plain", "rb").read()
assert data[:8] == b"\x50\x2a\x4d\x18\x04\x00\x00\x00", data[:8]
reader = zstandard.ZstdDecompressor()
out = io.BytesIO()
calls = {
    "zstandard decompress": lambda: reader.decompress(data),
    "zstandard decompressobj": lambda: reader.decompressobj().decompress(data),
    "zstandard read_to_iter": lambda: b"".join(reader.read_to_iter(io.BytesIO(data))),
    "zstandard stream_reader": lambda: reader.stream_reader(io.BytesIO(data)).read(),
    "zstandard copy_stream": lambda: reader.copy_stream(io.BytesIO(data), out) and out.getvalue(),
    "zstandard open": lambda: zstandard.open("plain.zst").read(),
    "pyzstd ZstdDecompressor": lambda: pyzstd.ZstdDecompressor().decompress(data),
    "pyzstd decompress": lambda: pyzstd.decompress(data),
}
seen = {}
for name, call in calls.items():
    try:
        read = call()
        seen[name] = "all" if read == plain else f"{len(read)} bytes"
    except zstandard.ZstdError as error:
        seen[name] = f"error: {error}"
    print(f"{name}: {seen[name]}")
expected = dict.fromkeys(calls, "all") | {
    "zstandard decompress": "error: decompression error: decompressed 0 bytes; expected 4",
    "zstandard decompressobj": "0 bytes",
    "zstandard read_to_iter": "0 bytes",
    "pyzstd ZstdDecompressor": "0 bytes",
}
assert seen == expected, "the behaviour has changed"
PYTHON
