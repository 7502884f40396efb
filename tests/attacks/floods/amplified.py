# JSON results whose parsed form takes some ninety times their size; it ends by itself.
forms = [field(b"j", b"a/%d" % number, AMPLIFIED) for number in range(32)]
for _ in range(2):
    send(frame(b"result", *forms))
print("sent")
