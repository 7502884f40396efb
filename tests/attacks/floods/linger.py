# A close of this socket waits: it lingers, has unsent data, and its peer reads nothing.
import array, errno, os, socket, struct, sys, time

def lingering(seconds):
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    ours = socket.socket()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
    ours.connect(server.getsockname())
    theirs, _ = server.accept()
    ours.setblocking(False)
    try:
        while True:
            ours.send(b"x" * 65536)
    except BlockingIOError:
        return ours, (server, theirs)

def pass_on(channel, descriptor):
    rights = array.array("i", [descriptor])
    channel.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

# What reads from a socket closes the descriptors that it does not take.
left, right = socket.socketpair()
passed, peers = lingering(1)
pass_on(left, passed.fileno())
os.close(passed.detach())
began = time.monotonic()
os.read(right.fileno(), 1)
print("a read waits" if time.monotonic() - began > 0.5 else "a read does not wait", flush=True)

# The driver's channel: frames go to descriptor 4.
passed, peers = lingering(2147483647)
try:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, 4)
    pass_on(channel, passed.fileno())
    print("passed")
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
os.close(passed.detach())
while True:
    time.sleep(1)
