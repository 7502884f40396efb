# Runs one request's code and reports on the channel; the frames are described
# in frames.rs. It is compiled anew at every start, so it is kept short, and it
# imports nothing that a bare interpreter has not loaded already, until an error
# has to be explained.


def cell():
    # Everything lives in this function's closures, and the function runs with
    # globals and builtins of its own (see the last lines): code that replaces
    # or deletes builtins does not reach it, and a walk over the frames below
    # user code meets only the last lines' frame, which holds no handle.
    import _ast
    import _thread
    import builtins
    import os
    import sys

    LIMIT = 8 << 20  # bytes of one format
    BUDGET = 15 << 20  # bytes of all formats of one result
    MESSAGE = 64 << 10  # characters of a message
    LINES, WIDTH = 400, 2000  # of a traceback

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

    queue = []
    lock = _thread.allocate_lock()

    def send(kind, *fields):
        """Sends a frame of (type, key, bytes) fields; false when it cannot."""
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
            parts += (
                form + len(key).to_bytes(1, "big") + len(value).to_bytes(4, "big"),
                key,
                value,
            )
        parts[0] = sum(map(len, parts[1:])).to_bytes(4, "big")
        queue.append(b"".join(parts))
        # Whoever holds the lock sends for all. Waiting for it instead would
        # deadlock in a signal handler that displays something.
        while queue and lock.acquire(False):
            try:
                while queue:
                    rest = memoryview(queue[0])
                    while rest:
                        rest = rest[write(channel, rest) :]
                    del queue[0]
            except OSError:
                queue.clear()
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
        except Exception as error:
            return ("<unprintable: str() raised %s>" % type(error).__name__).encode()

    def complaint(error):
        return text(type(error).__name__, 100) + b": " + clipped(error, 300)

    def ask(value, method, failed, key, *arguments, **keywords):
        """What a `_repr_*_` method gives, without its metadata."""
        try:
            function = getattr(value, method, None)
            data = None if function is None else function(*arguments, **keywords)
            return data[0] if type(data) is tuple and len(data) == 2 else data
        except Exception as error:
            failed[key] = complaint(error)

    def describe(value, failed):
        """Media types and data, in the order of preference."""
        bundle = {}
        # A class's methods are not for the class itself, and an object that has
        # every attribute has none that means anything.
        canary = "_ipython_canary_method_should_not_exist_"
        if not isinstance(value, type) and ask(value, canary, {}, "") is None:
            data = ask(value, "_repr_mimebundle_", failed, "bundle", include=None, exclude=None)
            if isinstance(data, dict):
                bundle.update(data)
            for method, key in (
                ("html", "text/html"),
                ("markdown", "text/markdown"),
                ("latex", "text/latex"),
                ("svg", "image/svg+xml"),
                ("png", "image/png"),
                ("jpeg", "image/jpeg"),
                ("pdf", "application/pdf"),
                ("json", "application/json"),
                ("javascript", "application/javascript"),
            ):
                if key not in bundle:
                    bundle[key] = ask(value, "_repr_%s_" % method, failed, key)
        if "text/plain" not in bundle:
            try:
                bundle["text/plain"] = repr(value)
            except Exception as error:
                failed["text/plain"] = complaint(error)
                bundle["text/plain"] = "<unprintable %s object>" % type(value).__name__
        return bundle

    def pack(key, data):
        """A field of one format."""
        if isinstance(data, str):
            form, value = b"t", text(data, LIMIT + 1)
        elif isinstance(data, (bytes, bytearray, memoryview)):
            form, value = b"b", bytes.join(b"", [data])
        else:
            import json

            form, value = b"j", text(json.dumps(data, allow_nan=False), LIMIT + 1)
        if len(value) > LIMIT:
            if key != "text/plain":
                raise ValueError("more than %d bytes" % LIMIT)
            value = value[:LIMIT]
        return form, key, value

    def show(value, main=False, raw=False):
        failed = {}
        bundle = dict(value) if raw else describe(value, failed)
        fields, budget = [(b"t", "main", b"1")] if main else [], BUDGET
        for key, data in bundle.items():
            if data is None or type(key) is not str or len(key) > 100:
                continue
            try:
                field = pack(key, data)
                budget -= len(field[2])
                if budget < 0:
                    raise ValueError("more than %d bytes in one result" % BUDGET)
                fields.append(field)
            except Exception as error:
                failed[key] = complaint(error)
        for key, reason in failed.items():
            fields.append((b"t", "failed", text(key, 100) + b": " + reason))
        if not send("result", *fields):
            builtins.print(repr(value))

    def display(*values, raw=False, **_):
        """Shows each value as a result of its own, in its richest forms."""
        for value in values:
            show(value, raw=raw and isinstance(value, dict))

    def displayhook(value):
        if value is not None:
            show(value, main=True)

    class Loader:
        # linecache and inspect ask it for the code, which no file holds.
        def get_source(self, _module):
            return decoded()

    def decoded():
        try:
            return sys.modules["_frozen_importlib_external"].decode_source(source)
        except (LookupError, SyntaxError, UnicodeError):
            return source.decode("utf-8", "replace")

    def silenced(last):
        """Whether a semicolon follows the last expression, as in Jupyter."""
        lines = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = b"\n".join(lines[last.end_lineno - 1 :])[last.end_col_offset :]
        return rest.lstrip(b" \t\f\\\n").startswith(b";")

    def steps():
        """The code objects to run: all of it, or all before a last expression, and that."""
        flags = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(source, name, "exec", flags | _ast.PyCF_ONLY_AST, True)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, _ast.Expr) or silenced(last):
            return [compile(tree, name, "exec", flags, True)]
        tree.body.pop()
        first = compile(tree, name, "exec", flags, True)
        flags |= first.co_flags & 0x1FE0000  # its `from __future__ import …`
        # "single" hands the value to sys.displayhook.
        return [first, compile(_ast.Interactive([last]), name, "single", flags, True)]

    async def awaited(codes, scope):
        for code in codes:
            outcome = eval(code, scope)
            if code.co_flags & 0x80:  # CO_COROUTINE
                await outcome

    def inner(trace):
        """A traceback without the frames below user code."""
        while trace and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        return trace

    def brief(kind, value, trace):
        """What needs no import, and hardly any memory or stack."""
        fields = [(b"t", "name", text(type.__dict__["__name__"].__get__(kind), 200))]
        fields.append((b"t", "message", clipped(value, MESSAGE)))
        line = getattr(value, "lineno", None) if isinstance(value, SyntaxError) else None
        while trace:
            if trace.tb_frame.f_code.co_filename == name:
                line = trace.tb_lineno
            trace = trace.tb_next
        if type(line) is int:
            fields.append((b"t", "line", b"%d" % line))
        if isinstance(value, OSError) and type(value.errno) is int:
            fields.append((b"t", "errno", b"%d" % value.errno))
        return fields

    def explained(kind, value, trace):
        """The traceback as Python prints it."""
        path, sys.path = sys.path, plain_path
        try:
            import linecache
            import traceback
        finally:
            sys.path = path
        lines = decoded().splitlines(True)
        linecache.cache[name] = (len(source), None, lines, name)
        if isinstance(value, SyntaxError) and value.filename == name and value.text is None:
            if value.lineno and value.lineno <= len(lines):
                value.text = lines[value.lineno - 1]
        shown = "".join(traceback.format_exception(kind, value, trace)).splitlines()
        if len(shown) > LINES:
            left_out = "  … %d lines left out …" % (len(shown) - LINES)
            shown[LINES // 4 : len(shown) - LINES * 3 // 4] = [left_out]
        return [(b"t", "traceback", text(line, WIDTH)) for line in shown]

    class Session:
        def __enter__(self):
            module = type(sys)("__main__")
            scope = module.__dict__
            scope.update(
                __builtins__=builtins, __file__=os.path.join(directory, name), __loader__=Loader()
            )
            sys.modules["__main__"] = module
            sys.argv = [name] + arguments
            sys.displayhook = displayhook
            builtins.display = display
            if sys.stdout is not None:
                sys.stdout.reconfigure(line_buffering=True)
            send("started")
            try:
                codes = steps()
            except BaseException as error:
                self.finish(type(error), error, None, isinstance(error, SyntaxError))
            sys.path = [directory] + plain_path
            if any(code.co_flags & 0x80 for code in codes):
                import asyncio

                return map(asyncio.run, [awaited(codes, scope)])
            return map(exec, codes, [scope] * len(codes))

        def __exit__(self, kind, value, trace):
            if kind is None or issubclass(kind, SystemExit):
                send("done")
                return  # Python itself knows how to exit
            self.finish(kind, value, inner(trace), False)

        def finish(self, kind, value, trace, is_syntax):
            reserve.clear()
            try:
                fields = brief(kind, value, trace)
            except BaseException as error:
                fields = [(b"t", "name", text(type(error).__name__, 200))]
            if is_syntax:
                fields.append((b"t", "syntax", b"1"))
            try:
                fields += explained(kind, value, trace)
            except BaseException:
                pass
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

    plain_path = [entry for entry in sys.path if entry != os.path.dirname(sys.argv[0])]
    excepthook = sys.excepthook
    reserve = bytearray(4 << 20)  # untouched pages, for explaining a MemoryError
    return Session()


with type(cell)(cell.__code__, {"__builtins__": dict(vars(__builtins__))})() as steps:
    for _ in steps:
        pass
