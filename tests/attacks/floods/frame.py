# Frames as the driver writes them.
import os, struct

EXECUTION = globals().get("EXECUTION", b"1")

def field(form, key, value):
    return form + bytes([len(key)]) + struct.pack(">I", len(value)) + key + value

def frame(kind, *fields):
    body = b"".join((field(b"t", b"kind", kind), field(b"t", b"execution", EXECUTION)) + fields)
    return struct.pack(">I", len(body)) + body

def send(bytes):
    rest = memoryview(bytes)
    while rest:
        rest = rest[os.write(4, rest):]

# Parsed, this takes ninety times its length.
AMPLIFIED = b"[" + b",".join([b'{"":0}'] * 32700) + b"]"
