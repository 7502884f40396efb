# As many frames as go into a byte.
flood = (frame(b"result") + frame(b"clear") + frame(b"update", field(b"t", b"display_id", b"a"))
         + frame(b"result", field(b"t", b"display_id", b"a")) + frame(b"zzz")) * 1000
print("flood", flush=True)
while True:
    send(flood)
