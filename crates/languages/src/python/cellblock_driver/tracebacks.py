"""Tracebacks as Python prints them, without the driver's frames."""

import builtins
import linecache
import traceback

from .protocol import TEXT, text
from .source import show

LINES, WIDTH = 400, 2000
DIRECTORY = __file__.rpartition("/")[0] + "/"


def fields(kind, value, trace, source):
    """The traceback as fields of an error frame."""
    hide_own_frames(value)
    source.remember()
    show(linecache)
    if isinstance(value, SyntaxError) and value.filename == source.name and value.text is None:
        lines = source.lines()
        if value.lineno and value.lineno <= len(lines):
            value.text = lines[value.lineno - 1]
    shown = "".join(traceback.format_exception(kind, value, without_own(trace))).split("\n")[:-1]
    if len(shown) > LINES:
        left_out = "  … %d lines left out …" % (len(shown) - LINES)
        shown[LINES // 4 : -LINES * 3 // 4] = [left_out]
    return [(TEXT, "traceback", text(line, WIDTH)) for line in shown]


def without_own(trace):
    """A traceback without the driver's frames, which are in it when the code
    displays something."""
    while trace and is_own(trace.tb_frame):
        trace = trace.tb_next
    last = trace
    while last:
        following = last.tb_next
        while following and is_own(following.tb_frame):
            following = following.tb_next
        if following is not last.tb_next:
            last.tb_next = following
        last = following
    return trace


def is_own(frame):
    return frame.f_code.co_filename.startswith(DIRECTORY)


def hide_own_frames(value):
    """Hides them in all exceptions that a traceback shows with this one."""
    group = getattr(builtins, "BaseExceptionGroup", ())
    seen, left = set(), [value]
    while left and len(seen) < 1000:
        error = left.pop()
        if isinstance(error, BaseException) and id(error) not in seen:
            seen.add(id(error))
            error.__traceback__ = without_own(error.__traceback__)
            left += (error.__cause__, error.__context__)
            left += error.exceptions if isinstance(error, group) else ()
