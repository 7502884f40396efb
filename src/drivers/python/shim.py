# Runs the code of one request and reports on the channel; frames/mod.rs
# describes what passes there. This file is compiled anew at every start, so it
# holds only what every run needs, and it imports nothing that a bare
# interpreter has not loaded already. The rest is in report.py.


def cell():
    # Everything lives in this function's closures, and the function runs with
    # globals and builtins of its own (see the last lines): code that replaces
    # or deletes builtins does not reach it, and a walk over the frames below
    # user code meets only the frame of the last lines, which holds no handle.
    import _ast
    import _thread
    import builtins
    import os
    import sys

    LIMIT = 8 << 20  # bytes of one format
    COROUTINE = 0x80  # code objects that await have this flag
    # Types of which every value is shown by its repr alone.
    PLAIN = {bool, bytes, complex, dict, float, frozenset, int, list, range, set, str, tuple}

    channel = int(sys.argv[1])
    read, write, fstat, getpid = os.read, os.write, os.fstat, os.getpid
    owner = getpid()
    identity = fstat(channel)[1:3]
    os.set_inheritable(channel, False)

    def take(count):
        parts = []
        while count:
            part = read(channel, min(count, 1 << 20))
            if not part:
                raise SystemExit("cellblock: the request ends early")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    request = {}
    body = take(int.from_bytes(take(4), "big"))
    at = 0
    while at < len(body):
        start = at + 6 + body[at + 1]
        end = start + int.from_bytes(body[at + 2 : at + 6], "big")
        request.setdefault(body[at + 6 : start], []).append(body[start:end])
        at = end
    source = request[b"code"][0]
    name = os.fsdecode(request[b"name"][0])
    directory = os.fsdecode(request[b"directory"][0])
    arguments = [os.fsdecode(argument) for argument in request.get(b"argument", ())]
    del body, request

    plain_path = [entry for entry in sys.path if entry != os.path.dirname(sys.argv[0])]
    excepthook = sys.excepthook
    reserve = [bytes(4 << 20)]  # untouched pages, for explaining a MemoryError
    queue = []
    lock = _thread.allocate_lock()

    def send(kind, *fields):
        """Sends a frame of (type, key, bytes) fields; false when it cannot."""
        nonlocal identity
        # A forked child shares the channel and would garble it. A program that
        # closed the descriptor may have put something else in its place.
        try:
            if getpid() != owner or fstat(channel)[1:3] != identity:
                return False
        except OSError:
            return False
        parts = [b"\0\0\0\0"]
        for form, key, value in ((b"t", "kind", kind.encode()),) + fields:
            key = key.encode()
            parts += (form, len(key).to_bytes(1, "big"), len(value).to_bytes(4, "big"), key, value)
        parts[0] = sum(map(len, parts[1:])).to_bytes(4, "big")
        queue.append(memoryview(b"".join(parts)))
        # Whoever holds the lock sends for all: waiting for it would deadlock in
        # a signal handler that displays something. Only the last frame waits.
        while queue and lock.acquire(True, 5 if kind == "done" else 0):
            try:
                while queue:
                    queue[0] = queue[0][write(channel, queue[0]) :]
                    if not queue[0]:
                        del queue[0]
            except OSError:
                identity = None
                return False
            finally:
                lock.release()
        return True

    def text(value, limit):
        # Unbound methods: a subclass of str may override its own.
        return str.encode(str.__getitem__(value, slice(0, limit)), "utf-8", "surrogatepass")

    def clipped(value, limit):
        try:
            return text(str(value), limit)
        except BaseException as error:
            return ("<unprintable: str() raised %s>" % type(error).__name__).encode()

    # Read now, compiled when needed: by then the program may have used up its
    # descriptors or changed its root.
    report_path = sys.argv[0][:-3] + "_report.py"
    report_file = os.open(report_path, os.O_RDONLY | os.O_CLOEXEC)
    report_code = read(report_file, 1 << 20)
    os.close(report_file)
    loaded = []

    def report():
        if not loaded:
            exec(compile(report_code, report_path, "exec"), globals())
            loaded.append(Report(source, name, send, text, clipped, LIMIT))
        return loaded[0]

    def show(value, main=False, raw=False):
        if type(value) in PLAIN and not raw:
            try:
                plain = text(repr(value), LIMIT)
            except Exception:
                plain = None
            if plain is not None and len(plain) < LIMIT:
                fields = [(b"t", "text/plain", plain)]
                if main:
                    fields.append((b"t", "main", b"1"))
                if not send("result", *fields):
                    print(repr(value))
                return
        if not send("result", *report().fields(value, main, raw)):
            print(repr(value))

    def display(*values, raw=False, **_):
        """Shows each value as a result of its own, in its richest forms."""
        for value in values:
            show(value, raw=raw and isinstance(value, dict))

    def show_main(value):
        if value is not None:
            show(value, main=True)

    def codes():
        """The code objects to evaluate in turn; the last is an expression's, if
        the code ends in one that no semicolon silences, as in Jupyter."""
        flags = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(source, name, "exec", flags | _ast.PyCF_ONLY_AST, True)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, _ast.Expr) or semicolon_follows(last):
            return [compile(tree, name, "exec", flags, True)]
        tree.body.pop()
        first = compile(tree, name, "exec", flags, True)
        flags |= first.co_flags & 0x1FE0000  # its `from __future__ import …`
        return [first, compile(_ast.Expression(last.value), name, "eval", flags, True)]

    def semicolon_follows(last):
        lines = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = b"\n".join(lines[last.end_lineno - 1 :])[last.end_col_offset :]
        return rest.lstrip(b" \t\f\\\n").startswith(b";")

    class Loader:
        # linecache and inspect ask it for the code, which no file holds.
        def get_source(self, _module):
            return report().decoded()

    def user_frames(trace):
        """A traceback without the frames below user code."""
        while trace and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        return trace

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

    class Session:
        def __enter__(self):
            module = type(sys)("__main__")
            scope = module.__dict__
            path = os.path.join(directory, name)
            scope.update(__builtins__=builtins, __file__=path, __loader__=Loader())
            sys.modules["__main__"] = module
            sys.argv = [name] + arguments
            builtins.display = display
            if sys.stdout is not None:
                sys.stdout.reconfigure(line_buffering=True)
            send("started")
            try:
                parts = codes()
            except BaseException as error:
                self.finish(type(error), error, None, isinstance(error, SyntaxError))
            sys.path = [directory] + plain_path
            if any(part.co_flags & COROUTINE for part in parts):
                values = report().awaiting(parts, scope)
            else:
                # The bytes after the parts are never evaluated. They are
                # untouched pages that unwinding sets free before __exit__ runs,
                # which would otherwise lack the memory to explain a MemoryError.
                values = map(eval, parts + [bytes(4 << 20)], [scope] * len(parts))
            return [map(show_main, values)]

        def __exit__(self, kind, value, trace):
            if kind is None or issubclass(kind, SystemExit):
                send("done")
                return  # Python itself knows how to exit
            trace = user_frames(trace)
            # Without memory even for a traceback, Python chains another one.
            while not trace and kind is MemoryError and type(value.__context__) is kind:
                value = value.__context__
                trace = user_frames(value.__traceback__)
            self.finish(kind, value, trace, False)

        def finish(self, kind, value, trace, is_syntax):
            fields = brief(kind, value, trace, is_syntax)
            path, sys.path = sys.path, plain_path
            try:
                fields += report().traceback(kind, value, trace)
            except BaseException:
                pass  # the brief form has to do
            sys.path = path
            if not send("error", *fields):
                value.__traceback__ = trace
                raise value
            send("done")
            if sys.excepthook is not excepthook:
                try:
                    sys.excepthook(kind, value, trace)
                except Exception:
                    pass
            raise SystemExit(130 if issubclass(kind, KeyboardInterrupt) else 1)

    return Session()


with type(cell)(cell.__code__, {"__builtins__": dict(vars(__builtins__))})() as steps:
    for _ in steps.pop():
        pass
