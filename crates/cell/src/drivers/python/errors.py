# Exceptions: compiled when there is one, in the globals that all parts of the
# shim share. By then memory may be short and everything that user code can
# reach may be broken.

call("results.py", "text", "", 0)  # loads it

LINES, WIDTH = 400, 2000  # of a traceback


def clipped(value, limit):
    try:
        return text(str(value), limit)
    except BaseException as error:
        return ("<unprintable: str() raised %s>" % type(error).__name__).encode()


def user_frames(trace):
    """A traceback without the frames below user code."""
    while trace and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    return trace


def without_own(trace):
    """A traceback without the shim's frames, through which code goes that
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
    return frame.f_globals is parts or frame.f_globals is call.__globals__


def hide_own_frames(value):
    """In all exceptions that a traceback shows with this one."""
    group = getattr(builtins, "BaseExceptionGroup", ())
    seen, left = set(), [value]
    while left and len(seen) < 1000:
        error = left.pop()
        if isinstance(error, BaseException) and id(error) not in seen:
            seen.add(id(error))
            error.__traceback__ = without_own(error.__traceback__)
            left += (error.__cause__, error.__context__)
            left += error.exceptions if isinstance(error, group) else ()


def fail(kind, value, trace, is_syntax):
    """Reports an exception and ends the program as Python would."""
    trace = user_frames(trace)
    # Without memory even for a traceback, Python chains another one.
    while not trace and kind is MemoryError and type(value.__context__) is kind:
        value = value.__context__
        trace = user_frames(value.__traceback__)
    fields = brief(kind, value, trace, is_syntax)
    users, sys.path = sys.path, path
    try:
        fields += traceback(kind, value, trace)
    except BaseException:
        pass  # the brief form has to do
    sys.path = users
    if not send("error", *fields):
        value.__traceback__ = trace
        raise value
    if "figures.py" in parts:
        call("figures.py", "show_rest")
    send("done")
    if sys.excepthook is not excepthook:
        try:
            sys.excepthook(kind, value, trace)
        except Exception:
            pass
    raise SystemExit(130 if issubclass(kind, KeyboardInterrupt) else 1)


def brief(kind, value, trace, is_syntax):
    """What can be said with no import, little memory and little stack."""
    fields = [
        (b"t", "name", text(type.__dict__["__name__"].__get__(kind), 200)),
        (b"t", "message", clipped(value, 64 << 10)),
    ]
    line = value.lineno if is_syntax else None
    while trace:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    if type(line) is int:
        fields.append((b"t", "line", b"%d" % line))
    # The base class's own attribute: a subclass may override it.
    errno = OSError.errno.__get__(value) if issubclass(kind, OSError) else None
    if type(errno) is int:
        fields.append((b"t", "errno", b"%d" % errno))
    if is_syntax:
        fields.append((b"t", "syntax", b"1"))
    return fields


def traceback(kind, value, trace):
    """The traceback as Python prints it, as fields of an error frame."""
    import linecache
    import traceback

    hide_own_frames(value)
    trace = without_own(trace)
    lines = call("code.py", "decoded").splitlines(True)
    linecache.cache[name] = (len(source), None, lines, name)
    if isinstance(value, SyntaxError) and value.filename == name and value.text is None:
        if value.lineno and value.lineno <= len(lines):
            value.text = lines[value.lineno - 1]
    shown = "".join(traceback.format_exception(kind, value, trace)).split("\n")[:-1]
    if len(shown) > LINES:
        left_out = "  … %d lines left out …" % (len(shown) - LINES)
        shown[LINES // 4 : -LINES * 3 // 4] = [left_out]
    return [(b"t", "traceback", text(line, WIDTH)) for line in shown]
