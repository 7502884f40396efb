"""Uncaught exceptions. By then memory may be short, and everything that user code
can reach may be broken."""

import sys

from . import protocol, session
from .protocol import TEXT, text

MESSAGE = 64 << 10


def report(kind, value, trace, source, excepthook):
    """Reports an exception; the status that the process would end with."""
    trace = user_frames(trace, source)
    # Without memory even for a traceback, Python chains another one.
    while not trace and kind is MemoryError and type(value.__context__) is kind:
        value = value.__context__
        trace = user_frames(value.__traceback__, source)
    is_syntax = not source.is_parsed and issubclass(kind, SyntaxError)
    fields = brief(kind, value, trace, source, is_syntax)
    try:
        from . import tracebacks

        fields += tracebacks.fields(kind, value, trace, source)
    except BaseException:
        pass  # the brief form has to do
    is_sent = protocol.channel.send("error", *fields)
    if not is_sent or sys.excepthook is not excepthook:
        try:
            sys.excepthook(kind, value, trace)
        except Exception:
            pass
    if session.shell is not None:
        try:
            session.shell.report(kind, value, trace)
        except Exception:
            pass
    return 130 if issubclass(kind, KeyboardInterrupt) else 1


def user_frames(trace, source):
    """A traceback without the frames below user code."""
    while trace and trace.tb_frame.f_code.co_filename != source.name:
        trace = trace.tb_next
    return trace


def brief(kind, value, trace, source, is_syntax):
    """What can be reported with no import, little memory and little stack."""
    fields = [
        (TEXT, "name", text(type.__dict__["__name__"].__get__(kind), 200)),
        (TEXT, "message", clipped(value, MESSAGE)),
    ]
    line = value.lineno if is_syntax else None
    while trace:
        if trace.tb_frame.f_code.co_filename == source.name:
            line = trace.tb_lineno
        trace = trace.tb_next
    if type(line) is int:
        fields.append((TEXT, "line", b"%d" % line))
    # The base class's own attribute: a subclass may override it.
    errno = OSError.errno.__get__(value) if issubclass(kind, OSError) else None
    if type(errno) is int:
        fields.append((TEXT, "errno", b"%d" % errno))
    if is_syntax:
        fields.append((TEXT, "syntax", b"1"))
    return fields


def clipped(value, limit):
    try:
        return text(str(value), limit)
    except KeyboardInterrupt:
        raise  # it would not end
    except BaseException as error:
        return ("<unprintable: str() raised %s>" % type(error).__name__).encode()


def complaint(error):
    """Why a form of a result is missing."""
    return text(type(error).__name__, 100) + b": " + clipped(error, 300)
