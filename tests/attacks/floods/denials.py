# A call that the filter denies: the supervisor answers each.
import ctypes
libc = ctypes.CDLL(None)
print("flood", flush=True)
while True:
    libc.syscall(101, 0, 0, 0, 0)
