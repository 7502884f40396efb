"""Writes hostile tar archives to the current directory; argv[1] is where they lead."""

import io
import os
import sys
import tarfile

TARGET = sys.argv[1]
LINK, HARD, DIRECTORY = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


def archive(name, entries):
    with tarfile.open(name, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, data, fields in entries:
            info = tarfile.TarInfo(path)
            for field, value in fields.items():
                setattr(info, field, value)
            if data is not None:
                info.size = len(data)
            tar.addfile(info, None if data is None else io.BytesIO(data))


def header(name, size, kind, link=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info.tobuf(tarfile.USTAR_FORMAT)


def padded(data):
    return data + bytes(-len(data) % 512)


def pax(records):
    text = b""
    for key, value in records:
        length = len(key) + len(value) + 3
        total = length + len(str(length))
        total = length + len(str(total))
        text += f"{total} {key}={value}\n".encode()
    return text


def raw(name, *parts):
    with open(name, "wb") as file:
        for part in parts:
            file.write(part)
        file.write(bytes(1024))


def extended(records, name, size, data, kind=b"0"):
    text = pax(records)
    return header("x", len(text), b"x") + padded(text) + header(name, size, kind) + padded(data)


up = "../" * 12
archive("climbs.tar", [
    ("ok", b"1", {}),
    (f"{up}{TARGET}/planted1", b"x", {}),
    (f"{TARGET}/planted2", b"x", {}),
    ("a/../../planted3", b"x", {}),
])
archive("links.tar", [
    ("ok", b"1", {}),
    ("link", None, {"type": LINK, "linkname": TARGET}),
    ("link/planted4", b"x", {}),
    ("up", None, {"type": LINK, "linkname": ".."}),
    ("up/planted5", b"x", {}),
    ("deep/up", None, {"type": LINK, "linkname": up}),
    ("ok2", None, {"type": LINK, "linkname": "ok"}),
    ("ok2", b"through", {}),
    ("dir", None, {"type": DIRECTORY}),
    ("dir/f", b"1", {}),
    ("dir", None, {"type": LINK, "linkname": TARGET}),
    ("dir/planted6", b"x", {}),
])
archive("hardlinks.tar", [
    ("ok", b"1", {}),
    ("h1", None, {"type": HARD, "linkname": f"{TARGET}/secret"}),
    ("h2", None, {"type": HARD, "linkname": f"{up}{TARGET}/secret"}),
    ("h3", None, {"type": HARD, "linkname": "ok"}),
    ("h1", b"written through", {}),
])
archive("kinds.tar", [
    ("ok", b"1", {}),
    ("char", None, {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
    ("block", None, {"type": tarfile.BLKTYPE, "devmajor": 254}),
    ("fifo", None, {"type": tarfile.FIFOTYPE}),
    ("marked", b"x", {"mode": 0o6755}),
    ("closed", None, {"type": DIRECTORY, "mode": 0}),
    ("closed/in", b"x", {"mode": 0}),
    ("ok/beneath", b"x", {}),
    ("ok", None, {"type": DIRECTORY}),
    (".cellblock-pending", b"x", {}),
    ("n\nl\x1b[31m", b"x", {}),
])
with tarfile.open("bomb.tar.gz", "w:gz", compresslevel=1) as tar:
    class Zeros:
        def read(self, count):
            return bytes(count)
    info = tarfile.TarInfo("zeros")
    info.size = 256 << 20
    tar.addfile(info, Zeros())
sparse = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")]
raw("sparse.tar", extended(
    sparse + [("GNU.sparse.name", "huge"), ("GNU.sparse.realsize", str(1 << 40))],
    "GNUSparseFile.0/huge", 1024, padded(b"1\n1099511627775\n1\n") + padded(b"x")))
raw("sparse-name.tar", extended(
    sparse + [("GNU.sparse.name", f"{up}{TARGET}/planted7"), ("GNU.sparse.realsize", "1")],
    "y", 1024, padded(b"1\n0\n1\n") + padded(b"x")))
raw("size.tar", extended(
    [("size", str((1 << 64) - 1)), ("path", f"{up}{TARGET}/planted8")], "y", 1, b"z"))
comment = pax([("comment", "A" * 900_000)])
raw("globals.tar", *[header("g", len(comment), b"g") + padded(comment)] * 20,
    header("y", 1, b"0") + padded(b"z"))
raw("long-name.tar", header("././@LongLink", (1 << 33) - 1, b"L") + b"A" * 4096)
raw("many.tar", b"".join(header(f"f{n}", 0, b"0") for n in range(20_000)))
raw("cut.tar", header("y", 100_000, b"0") + b"short")
raw("noise.tar", os.urandom(100_000))
raw("deep.tar", b"".join(header("d/" * depth + "f", 0, b"0") for depth in (10, 45)),
    extended([("path", "d/" * 5000 + "f")], "y", 1, b"z"))
raw("empty.tar", bytes(10_240))
open("nothing.tar", "wb").close()
