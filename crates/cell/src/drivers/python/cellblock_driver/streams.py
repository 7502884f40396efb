"""Standard output and error without buffers. Python keeps text that ends without a newline in one:
it would come late, and never if the process is killed."""

import sys
from _io import FileIO, TextIOWrapper


class Unbuffered(FileIO):
    """Writes all that it is given. The system may take a part: a signal came, or a process that shares
    the pipe has made it non-blocking. Those above would drop the rest."""

    def write(self, data, /):
        count = put(self, data)
        total = len(data) if type(data) is bytes else memoryview(data).nbytes
        written = count or 0
        while written < total:
            if not count:
                await_room(self)
            count = put(self, memoryview(data).cast("B")[written:])
            written += count or 0
        return total


put = FileIO.write


def await_room(file):
    from select import POLLOUT, poll

    waiting = poll()
    waiting.register(file.fileno(), POLLOUT)
    waiting.poll()


def unbuffer():
    for name in "stdout", "stderr":
        stream = getattr(sys, name)
        if type(stream) is not TextIOWrapper:
            continue  # it is closed
        raw = Unbuffered(stream.fileno(), "wb", closefd=False)
        raw.name = stream.name
        options = {"encoding": stream.encoding, "errors": stream.errors, "newline": "\n"}
        options["line_buffering"] = stream.line_buffering
        new = TextIOWrapper(raw, write_through=True, **options)
        new.mode = stream.mode
        setattr(sys, name, new)
        setattr(sys, "__%s__" % name, new)
