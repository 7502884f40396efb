# JSON that costs more to read than to write, and is dropped once there is enough.
flood = frame(b"result", field(b"j", b"a/b", AMPLIFIED)) * 4
print("flood", flush=True)
while True:
    send(flood)
