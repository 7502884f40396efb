"""Forks twice; the process in between ends at once, and leaves the copy to the cell's init."""

import ctypes
import mmap
import os


class DoubleFork:
    """os.fork() twice, while the process in between shares this one's memory, by machine code of
    the supervisor's (double_fork.rs)."""

    STACK = 1 << 18  # bytes, of the process in between

    def __init__(self, code):
        flags, writable = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
        self.memory = mmap.mmap(-1, len(code), flags, writable)
        self.memory[:] = code
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        libc, python = ctypes.CDLL(None, use_errno=True), ctypes.pythonapi
        length, executable = ctypes.c_size_t(len(code)), mmap.PROT_READ | mmap.PROT_EXEC
        if libc.mprotect(ctypes.c_void_p(address), length, executable):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.stack = ctypes.create_string_buffer(self.STACK)
        functions = (
            python.PyOS_BeforeFork,
            libc.fork,
            python.PyOS_AfterFork_Child,
            python.PyOS_AfterFork_Parent,
        )
        self.arguments = [ctypes.cast(function, ctypes.c_void_p) for function in functions]
        end = ctypes.addressof(self.stack) + self.STACK
        self.arguments.append(ctypes.c_void_p(end & ~15))
        # Without giving up the interpreter's lock, as os.fork() does it.
        self.function = ctypes.PYFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * 5)(address)

    def __call__(self):
        """The pid of the process in between, or 0 in the copy."""
        between = self.function(*self.arguments)
        if between < 0:
            raise OSError(-between, "clone")
        return between


def fork_twice():
    """The same without machine code."""
    between = os.fork()
    if between == 0:
        copy = -1
        try:
            copy = os.fork()
        finally:
            if copy != 0:
                os._exit(0 if copy > 0 else 1)
    return between


def find(code):
    """How to fork here: the machine may have no such code, and Python may not export its API."""
    try:
        return DoubleFork(code) if code else fork_twice
    except (AttributeError, OSError):
        return fork_twice
