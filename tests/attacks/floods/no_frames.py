# Nothing that is a frame, which is read all the same.
print("flood", flush=True)
while True:
    send(b"\xff" * 65536)
