#!/usr/bin/env bash
# Linux 6.18, ioctl PAGEMAP_SCAN (since 6.7): a search that goes on at `walk_end` reports regions
# that it has already reported.
#
# The kernel writes the address at which a search stopped into `walk_end` of the argument, and a
# caller that has not reached the end goes on there. With more than 512 separate regions in the range, the kernel collects them
# in parts. If the last part is not full when the room for regions or the range is used up,
# `walk_end` is the end of the part before, although the call has returned the regions behind it.
# The next call returns these again. No region is lost; the sum of what was found is too large.
# So a caller goes on at the larger one of `walk_end` and the end of the last region.
#
# Needs: Linux 6.7 or later on x86-64 or arm64, python3. Nothing is installed.

set -euo pipefail
python3 - <<'PYTHON'
import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys

PAGEMAP_SCAN = 0xC0606610
PAGE_IS_WRITTEN, PAGE_IS_PRESENT = 1 << 1, 1 << 3
MADV_NOHUGEPAGE = 15
PAGE = mmap.PAGESIZE
ROOM = 1024
PAGES = 2048

memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(MADV_NOHUGEPAGE)
for page in range(0, PAGES, 2):
    memory[page * PAGE] = 1
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
end = start + PAGES * PAGE
pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
regions = (ctypes.c_uint64 * (3 * ROOM))()


def scan(start):
    """The pages found from `start` on, and walk_end."""
    argument = bytearray(
        struct.pack(
            "12Q", 96, 0, start, end, 0, ctypes.addressof(regions), ROOM, 0,
            0, PAGE_IS_PRESENT, 0, PAGE_IS_PRESENT,
        )
    )
    try:
        count = fcntl.ioctl(pagemap, PAGEMAP_SCAN, argument)
    except OSError as error:
        if error.errno == errno.ENOTTY:
            sys.exit("this kernel has no PAGEMAP_SCAN")
        raise
    ends = [(regions[3 * n], regions[3 * n + 1]) for n in range(count)]
    return [page for low, high in ends for page in range(low, high, PAGE)], struct.unpack_from("12Q", argument)[4]


found, calls = [], 0
while start < end:
    pages, walk_end = scan(start)
    found += pages
    calls += 1
    print(f"call {calls}: {len(pages)} pages; walk_end is {(pages[-1] + PAGE - walk_end) // PAGE} pages before the end of the last one")
    start = walk_end
print(f"Linux {os.uname().release}: {len(set(found))} pages are there, {len(found)} were reported")
assert len(set(found)) == PAGES // 2, "pages are missing"
assert len(found) > PAGES // 2, "the behaviour has changed"
PYTHON
