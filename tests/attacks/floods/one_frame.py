# Each frame as long as one may be: forms that grow when they are shown, and one
# that has room.
grows = b"\xff\1" * (4 << 20)
forms = [field(b"t", b"text/%d" % number, grows) for number in range(6)]
flood = frame(b"result", field(b"t", b"text/plain", b"x" * 1_500_000), *forms)
print("flood", flush=True)
while True:
    send(flood)
