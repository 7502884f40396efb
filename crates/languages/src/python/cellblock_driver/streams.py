"""Standard output and error without buffers. Python keeps text that ends without a newline in one:
it would come late, and never if the process is killed. One print() is one write, so that a reader sees
whole lines, and those of threads stay apart."""

import builtins
import sys
from _io import FileIO, StringIO, TextIOWrapper
from _thread import get_ident

PLAIN = {str, int, float, bool, type(None)}  # their text is made without a program's code

standard_print = builtins.print
held = {}  # of each thread the calls of print() that are under way: stream and text


class Unbuffered(FileIO):
    """Writes all that it is given. The system may take a part: a signal came, or a process that shares
    the pipe has made it non-blocking. Those above would drop the rest."""

    def write(self, data, /):
        if held:
            release()
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


def print(*args, sep=" ", end="\n", file=None, flush=False):
    stream = sys.stdout if file is None else file
    if type(stream) is not TextIOWrapper or type(stream.buffer) is not Unbuffered:
        return standard_print(*args, sep=sep, end=end, file=file, flush=flush)
    if PLAIN.issuperset(map(type, args)) and type(sep) is type(end) is str:
        stream.write(sep.join(map(str, args)) + end)
        return
    calls = held.setdefault(get_ident(), [])
    text = StringIO()
    calls.append((stream, text))
    try:
        standard_print(*args, sep=sep, end=end, file=text)
    finally:
        try:
            release()
        finally:
            calls.pop()
            if not calls:
                held.pop(get_ident(), None)


print.__doc__ = standard_print.__doc__
print.__module__ = standard_print.__module__


def release():
    """Writes what this thread holds: a value that is printed may itself write something."""
    calls = held.pop(get_ident(), ())  # what is written here releases nothing
    try:
        for stream, text in calls:
            value = text.getvalue()
            if value:
                text.seek(0)
                text.truncate()
                stream.write(value)
    finally:
        if calls:
            held[get_ident()] = calls
