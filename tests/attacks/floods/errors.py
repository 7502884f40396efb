# The longest errors, in characters that JSON escapes.
lines = [field(b"t", b"traceback", b"\1" * 8192) for _ in range(512)]
flood = frame(b"error", field(b"t", b"message", b"\1" * 65536), *lines)
print("flood", flush=True)
while True:
    send(flood)
