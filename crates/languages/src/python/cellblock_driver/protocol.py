"""The channel to the supervisor: requests come from one pipe, frames go to
another. The messages are described in crates/languages/src/frames/mod.rs."""

import _thread
import os
from os import fstat, getpid, read, write  # a program may replace those of `os`

from . import output

TEXT, BYTES, JSON = b"t", b"b", b"j"  # the types of fields
LONGEST = 64 << 20  # bytes of a request
SHOWN = {"result", "update", "clear"}  # frames that have a place in the output


def text(value, limit):
    """At most that many characters, in UTF-8."""
    # Unbound methods: a subclass of str may override its own.
    return str.encode(str.__getitem__(value, slice(0, limit)), "utf-8", "surrogatepass")


def fields(body):
    """The fields of a message by their keys."""
    found = {}
    at = 0
    while at < len(body):
        middle = at + 6 + body[at + 1]
        end = middle + int.from_bytes(body[at + 2 : at + 6], "big")
        key = str(body[at + 6 : middle], "ascii")
        found.setdefault(key, []).append(bytes(body[middle:end]))
        at = end
    return found


class Request:
    """Code to execute, and what goes with it."""

    def __init__(self, body):
        self.fields = fields(body)
        self.work = self.fields.get("work", [b"execute"])[0]
        self.code = self.fields.get("code", [b""])[0]
        self.name = "".join(self._strings("name"))
        self.directory = "".join(self._strings("directory"))
        self.arguments = self._strings("argument")
        self.has_file = "file" in self.fields
        self.execution = self.fields["execution"][0]

    def _strings(self, key):
        return [os.fsdecode(value) for value in self.fields.get(key, ())]


class Descriptor:
    """A descriptor of the channel. A forked child shares it and must not use it;
    and a program that closed it may have put something else in its place."""

    def __init__(self, number):
        os.set_inheritable(number, False)
        self.number = number
        self.owner = getpid()
        self.look()

    def look(self):
        self.identity = fstat(self.number)[1:3]

    def is_usable(self):
        try:
            return getpid() == self.owner and fstat(self.number)[1:3] == self.identity
        except OSError:
            return False


class Channel:
    def __init__(self, number):
        self.requests = Descriptor(number)
        self.frames = Descriptor(number + 1)
        self.execution = b"1"
        self.queue = []
        self.lock = _thread.allocate_lock()

    def is_in_fork(self):
        """Whether this process is a copy that the code has made."""
        return getpid() != self.frames.owner

    def receive(self):
        """The next request, or None at the end."""
        both = self.requests.is_usable(), self.frames.is_usable()
        length = int.from_bytes(self._read(4), "big")
        if all(both) and not self.requests.is_usable():
            # While it waited, this process was given the state of another one, or the
            # state of this one was given to another: its pipes have other inodes.
            self.requests.look()
            self.frames.look()
        if not 0 < length <= LONGEST:
            return None  # the end, or what a program itself wrote to the pipe
        body = self._read(length)
        if not body:
            raise SystemExit("cellblock: the request ends early")
        output.look()
        request = Request(body)
        self.execution = request.execution
        return request

    def _read(self, count):
        """That many bytes; none at the end."""
        taken = bytearray()
        while len(taken) < count:
            chunk = self.requests.is_usable() and read(
                self.requests.number, min(count - len(taken), 1 << 20)
            )
            if not chunk:
                return b""
            taken += chunk
        return taken

    def send(self, kind, *fields):
        """Sends a frame of (type, key, bytes) fields; false if that is impossible."""
        if not self.frames.is_usable():
            return False
        if kind in SHOWN:
            output.settle()
        parts = []
        head = (TEXT, "kind", kind.encode()), (TEXT, "execution", self.execution)
        for form, key, value in head + fields:
            key = key.encode()
            parts += (form, len(key).to_bytes(1, "big"), len(value).to_bytes(4, "big"), key, value)
        length = sum(map(len, parts)).to_bytes(4, "big")
        is_sent = self.write(memoryview(b"".join([length, *parts])), kind == "done")
        if interrupts:
            interrupts.end_whole()
        return is_sent

    def write(self, frame, is_last):
        self.queue.append(frame)
        # The thread that holds the lock sends for all: waiting for it would deadlock
        # in a signal handler that displays something. Only the last frame waits.
        while self.queue and self.lock.acquire(True, 5 if is_last else 0):
            try:
                while self.queue:
                    self.queue[0] = self.queue[0][write(self.frames.number, self.queue[0]) :]
                    if not self.queue[0]:
                        del self.queue[0]
            except OSError:
                self.queue.clear()
                return False
            finally:
                self.lock.release()
        return True


channel = interrupts = None  # the session makes them
