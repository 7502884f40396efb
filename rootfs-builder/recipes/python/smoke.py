import asyncio
import bz2
import csv
import ctypes
import dataclasses
import datetime
import decimal
import hashlib
import importlib.util
import json
import lzma
import multiprocessing
import re
import readline
import sqlite3
import ssl
import statistics
import subprocess
import sys
import tomllib
import urllib.request
import uuid
import xml.etree.ElementTree
import zlib
import zoneinfo


async def answer():
    await asyncio.sleep(0)
    return 42


assert asyncio.run(answer()) == 42
assert sqlite3.connect(":memory:").execute("select 6 * 7").fetchone() == (42,)
assert zlib.decompress(zlib.compress(b"x")) == bz2.decompress(bz2.compress(b"x")) == b"x"
assert lzma.decompress(lzma.compress(b"x")) == b"x"
assert len(hashlib.sha256(b"").hexdigest()) == 64
paris = datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))
assert paris.utcoffset() == datetime.timedelta(hours=2)
assert len(ssl.create_default_context().get_ca_certs()) > 50
assert ctypes.CDLL(None).getpid() == __import__("os").getpid()
assert subprocess.check_output(["sh", "-c", "echo ok"], text=True) == "ok\n"
assert "é".encode("latin-1") == b"\xe9"

# Every module of the standard library is there, but for games, windows and what
# other systems have.
absent = {
    "antigravity",
    "ensurepip",
    "idlelib",
    "msvcrt",
    "nt",
    "pydoc_data",
    "this",
    "tkinter",
    "turtle",
    "turtledemo",
    "winreg",
    "winsound",
}
for name in sorted(sys.stdlib_module_names):
    if not name.startswith("_") and name not in absent:
        __import__(name)

for name in ("json.decoder", "asyncio.base_events", "email.message"):
    compiled = importlib.util.find_spec(name).cached
    assert __import__("os").path.exists(compiled), f"{name} is not compiled"
