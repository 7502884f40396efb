"""Leaves out what nothing reads of shared objects; the working directory goes into
the tree.

The loader maps the segments of an object. What lies behind the last one, of wheels
mostly tables of symbols for debuggers and then the table of sections, is a tenth of
all. An object whose segments reach to its end is left as it is.
"""

import pathlib
import struct

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
STACK = 0x6474E551  # PT_GNU_STACK: permissions, and no content


def end_of_segments(content: bytes, header: tuple) -> int:
    start, size, count = header[5], header[9], header[10]
    segments = [SEGMENT.unpack_from(content, start + size * n) for n in range(count)]
    ends = [offset + length for kind, _, offset, _, _, length, _, _ in segments if kind != STACK]
    return max([start + size * count, *ends])


for path in sorted(pathlib.Path("/usr/local/lib").glob("python3.*/dist-packages/**/*.so*")):
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    # 64 bits, little-endian.
    if content[:6] != b"\x7fELF\x02\x01":
        continue
    header = list(HEADER.unpack_from(content))
    end = end_of_segments(content, header)
    if end >= len(content):
        continue
    # No table of sections: its place, the number of entries, the one with names.
    header[6] = header[12] = header[13] = 0
    trimmed = pathlib.Path(f".{path}")
    trimmed.parent.mkdir(parents=True, exist_ok=True)
    trimmed.write_bytes(HEADER.pack(*header) + content[HEADER.size : end])
