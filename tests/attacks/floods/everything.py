# All sources at once.
import ctypes, threading
libc = ctypes.CDLL(None)
def frames():
    flood = frame(b"result", field(b"j", b"a/b", AMPLIFIED)) * 4
    while True:
        send(flood)
def streams():
    while True:
        os.write(2, b"\xff" * 65536)
def denials():
    while True:
        libc.syscall(101, 0, 0, 0, 0)  # ptrace
print("flood", flush=True)
threads = [threading.Thread(target=flood) for flood in (frames, streams, denials)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
