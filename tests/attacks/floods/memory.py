# Shared memory that no process has resident any more, and that takes long to free.
import mmap, sys, time
pages = []
for _ in range(int(sys.argv[1])):
    part = mmap.mmap(-1, 1 << 30)
    for at in range(0, 1 << 30, 4 << 20):
        part[at:at + (4 << 20)] = b"x" * (4 << 20)
        part.madvise(mmap.MADV_DONTNEED, at, 4 << 20)
    pages.append(part)
while time.process_time() < 0.6:
    pass
open("/shared/filled", "w").close()
time.sleep(1000)
