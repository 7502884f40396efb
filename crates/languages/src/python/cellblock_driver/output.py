"""Gives results their place in what is printed: before one is sent, the supervisor has
read all that was printed so far. It reads frames first, so what is printed later comes
after them."""

import sys
from os import fstat
from stat import S_ISFIFO
from time import monotonic, sleep

FIONREAD = 0x541B
LONGEST = 1  # seconds: between executions nobody reads
PAUSE = 50e-6

pipes = {}  # which pipe the supervisor reads, by its number


def look():
    """Notes the pipes; the program may put something else in their places."""
    for number in 1, 2:
        try:
            status = fstat(number)
        except OSError:
            continue
        if S_ISFIFO(status.st_mode):
            pipes[number] = status[1:3]


def settle():
    """Waits until what was printed has been read."""
    for stream in sys.stdout, sys.stderr:
        try:
            stream.flush()
        except Exception:
            pass  # closed, or not there
    until = None
    while any(map(is_unread, tuple(pipes))):
        until = until or monotonic() + LONGEST
        if monotonic() > until:
            # Something writes without end. The next request looks for these pipes again.
            pipes.clear()
            break
        sleep(PAUSE)


def is_unread(number):
    try:
        from fcntl import ioctl  # most programs show nothing

        is_pipe = fstat(number)[1:3] == pipes.get(number)
        return is_pipe and ioctl(number, FIONREAD, bytes(4)) != bytes(4)
    except (ImportError, OSError):
        return False
