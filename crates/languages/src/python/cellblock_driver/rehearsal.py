"""Finds the memory that a program mostly uses, so that a copy of a template has it ready
before it gets a program: the first write to each page that is shared costs as much as
thousands of instructions, and Python writes to whatever it looks at. A fork has no page of
a file mapped either, so that each first use of a library's code is a page fault as well.

A fork of the template executes a few programs; what it has used is learnt from pagemap
(proc_pid_pagemap(5)). Copies have the same layout.

After that the template's memory is put into huge pages, where the kernel has some: forks
share each as one, and not as 512 pages that a fork and its end deal with one by one. What a
fork writes to is copied in small pages all the same.
"""

import builtins
import ctypes
import os
import sys
from _struct import Struct, iter_unpack

from . import protocol, results
from .ending import Ending
from .source import Source

PAGE, HUGE_PAGE = os.sysconf("SC_PAGE_SIZE"), 2 << 20
COLLAPSE = 25  # of madvise(2), since Linux 6.1
POPULATE_READ, POPULATE_WRITE = 22, 23  # likewise, since 5.14
ARENA = 1 << 20  # what Python's allocator maps at once
RESERVED = 64  # arenas
PIECE = Struct("=QQi")  # an address, a length and an advice
PRESENT, OF_A_FILE, EXCLUSIVE = 1 << 63, 1 << 61, 1 << 56  # bits of an entry of pagemap
# What is executed for a module that is loaded.
PROGRAMS = {
    "builtins": """
class Point:
    def __init__(self, x):
        self.x = x
def squares(count):
    return {str(i): Point(i * i) for i in range(count)}
print(end="")
sorted(point.x for point in squares(200).values())[:3]
""",
    "numpy": """
import numpy as np
table = np.arange(12.0).reshape(3, 4)
(table @ table.T).sum(), np.sqrt(table).mean(axis=0)
table
""",
    "pandas": """
import pandas as pd
table = pd.DataFrame({"a": range(100), "b": [x / 2 for x in range(100)], "c": list("abcd") * 25})
table.groupby("c")["a"].sum()
table[table.a > 50].sort_values("b").describe()
""",
}


class Stage(protocol.Channel):
    """A channel that leads nowhere."""

    def __init__(self):
        self.execution = b"1"
        self.frames = self

    def is_usable(self):
        return True

    def write(self, frame, is_last):
        return True


def advise(pieces):
    """Advises the kernel about pieces of memory, each an address, a length and the advice.
    What it refuses is not needed."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for piece in pieces:
        madvise(*piece)


def reserve():
    """Has Python's allocator map memory for the modules in one piece: its arenas would lie
    between libraries otherwise, each too small for a huge page. They stay while the returned list
    holds something in each of them; those that are empty then are unmapped."""
    block = 512 - bytes.__basicsize__  # the largest that is taken of an arena
    blocks = [None] * (RESERVED * ARENA // 512)
    for index in range(len(blocks)):
        blocks[index] = bytes(block)
    return blocks[:: ARENA // 512 // 2]


def collapse():
    """Puts writable memory into huge pages."""
    for first, last in areas("rw"):
        begin = -(-first // HUGE_PAGE) * HUGE_PAGE
        places = range(begin, last - HUGE_PAGE + 1, HUGE_PAGE)
        advise((place, HUGE_PAGE, COLLAPSE) for place in places)


def learn():
    """What to advise the kernel in a copy, by what the programs write to and which files they
    read in memory."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            known = areas("rw")
            rehearse()
            Ending([]).is_plain()
            pieces = [(*piece, POPULATE_WRITE) for piece in used(known, is_written)]
            pieces += [(*piece, POPULATE_READ) for piece in used(areas("r-"), is_mapped)]
            with open(writes, "wb") as file:
                for piece in pieces:
                    file.write(PIECE.pack(*piece))
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads, "rb") as file:
        learnt = file.read()
    os.waitpid(child, 0)
    return list(PIECE.iter_unpack(learnt[: len(learnt) // PIECE.size * PIECE.size]))


def rehearse():
    protocol.channel = Stage()
    for name, program in PROGRAMS.items():
        if name not in sys.modules:
            continue
        scope = {"__name__": "__main__", "__builtins__": builtins}
        try:
            for code in Source(program.encode(), "main.py").compile():
                value = eval(code, scope)
            results.show(value, main=True)
        except Exception:
            pass  # another version of the package
    protocol.channel = None


def areas(access):
    """The private memory with this access, as first and last address."""
    found = []
    with open("/proc/self/maps") as file:
        for line in file:
            where, mode = line.split()[:2]
            if mode.startswith(access) and mode.endswith("p"):
                found.append([int(address, 16) for address in where.split("-")])
    return found


def is_written(entry):
    """Whether this process has a page of anonymous memory for itself."""
    return entry & PRESENT and entry & EXCLUSIVE and not entry & OF_A_FILE


def is_mapped(entry):
    """Whether this process has a page of a file in its page tables."""
    return entry & PRESENT and entry & OF_A_FILE


def used(areas, is_used):
    """The pieces of these areas with such pages, each its address and length."""
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        for first, last in areas:
            file.seek(first // PAGE * 8)
            entries = file.read((last - first) // PAGE * 8)
            begin = None
            for index, (entry,) in enumerate(iter_unpack("=Q", entries)):
                if is_used(entry) and begin is None:
                    begin = index
                elif not is_used(entry) and begin is not None:
                    yield first + begin * PAGE, (index - begin) * PAGE
                    begin = None
            if begin is not None:
                yield first + begin * PAGE, len(entries) // 8 * PAGE - begin * PAGE
