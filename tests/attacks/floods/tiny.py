# As many frames as possible. They clear each other's results, but not the main one.
send(frame(b"result", field(b"j", b"main", b"true"), field(b"t", b"text/plain", b"kept")))
flood = (frame(b"result") + frame(b"clear") + frame(b"update", field(b"t", b"display_id", b"a"))
         + frame(b"result", field(b"t", b"display_id", b"a")) + frame(b"zzz")) * 1000
print("flood", flush=True)
while True:
    send(flood)
