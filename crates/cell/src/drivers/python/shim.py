# Takes the request from the channel (see frames/mod.rs) and runs its code.
# Compiled anew at every start: mod.rs says why it holds so little, and why what
# it holds is so.


def start():
    # Runs with globals and builtins of its own (see the last lines): code that
    # replaces or deletes builtins does not reach it.
    import _thread
    import _warnings
    import builtins
    import gc
    import os
    import sys

    channel = int(sys.argv[1])
    with open(channel, "rb", closefd=False) as stream:
        length = int.from_bytes(stream.read(4), "big")
        body = stream.read(length)
    if not 0 < length == len(body):
        raise SystemExit("cellblock: the request ends early")
    request, at = {}, 0
    while at < len(body):
        middle = at + 6 + body[at + 1]
        end = middle + int.from_bytes(body[at + 2 : at + 6], "big")
        request.setdefault(str(body[at + 6 : middle], "ascii"), []).append(body[middle:end])
        at = end
    source = request["code"][0]
    name, directory = os.fsdecode(request["name"][0]), os.fsdecode(request["directory"][0])
    path = [entry for entry in sys.path if entry != os.path.dirname(sys.argv[0])]
    os.set_inheritable(channel, False)
    channel += 1  # frames go to the next one
    os.set_inheritable(channel, False)
    getpid, fstat, write, leave = os.getpid, os.fstat, os.write, os._exit
    owner, identity = getpid(), fstat(channel)[1:3]
    streams, excepthook = (sys.stdout, sys.stderr), sys.excepthook
    queue, lock = [], _thread.allocate_lock()
    parts = {"__builtins__": __builtins__, "__name__": "cellblock"}

    def call(part, function, *arguments, **keywords):
        """Calls a function of another part of the shim."""
        if part not in parts:
            exec(request[part][0], parts)
            parts[part] = True
        return parts[function](*arguments, **keywords)

    def display(*values, **options):
        """Shows each value as a result of its own, in its richest forms."""
        return call("results.py", "show_all", *values, **options)

    def find_spec(self, module, *where):
        """Asked first for whatever is imported: some packages want a hand."""
        if module.partition(".")[0] in {"IPython", "PIL", "matplotlib", "plotly"}:
            return call("hooks.py", "find", self, module, *where)

    def show_main(value):
        if value is not None:
            call("results.py", "show", value, True)

    def say(frame=None):
        """Writes a frame, or only says whether that may be done."""
        # A forked child shares the channel and would garble it. A program that
        # closed the descriptor may have put something else in its place.
        try:
            own = getpid() == owner and fstat(channel)[1:3] == identity
            return own and (not frame or write(channel, frame))
        except OSError:
            return False

    def captured(run, text):
        """The code object that exec() or eval() makes of a text."""
        code = None

        def stop(frame, event, _):
            nonlocal code
            if event == "call":
                code = frame.f_code
                raise StopIteration

        def named(code):
            consts = (named(c) if type(c) is type(code) else c for c in code.co_consts)
            return code.replace(co_filename=name, co_consts=tuple(consts))

        sys.setprofile(stop)
        try:
            run(text, {})
        except StopIteration:
            sys.setprofile(None)
            return named(code)
        finally:
            sys.setprofile(None)

    def codes():
        """The code objects to evaluate in turn; the last is an expression's, if
        the code ends in one that no semicolon silences, as in Jupyter."""
        # Mostly that is an expression of its own from the last line that is not
        # indented. compile() would first set up all types of syntax trees.
        at = len(source)
        while at > 0 and source[at : at + 1] in b" \t\f\r\n#)]}\\":
            at = source.rfind(b"\n", 0, at - 1) + 1
        head, tail = source[:at], source[at:]
        try:
            odd = sys.gettrace() or sys.getprofile() or b"\r" in source or b"coding" in source
            if not odd and b";" not in tail:
                # What warns is left to compile(), which knows the code's name.
                _warnings.filters.insert(0, ("error", None, Warning, None, 0))
                try:
                    tail = captured(eval, b"\n" * head.count(b"\n") + tail)
                    return [captured(exec, head), tail]
                finally:
                    del _warnings.filters[0]
        except Exception:
            pass
        return call("code.py", "codes_by_tree")

    def is_tame():
        """Whether Python's own way out could do nothing that anyone would
        notice: no module came, and no object that may act when it goes."""
        tame = {dict, list, set, tuple, type(call), type(call.__closure__[0])}
        return (
            sys.modules.keys() == modules
            and modules.isdisjoint(("atexit", "threading"))
            and (sys.stdout, sys.stderr) == streams
            and not any(gc.get_count()[1:])  # that is, few objects
            and tame.issuperset(map(type, gc.get_objects()))
        )

    def enter(_):
        module = type(sys)("__main__")
        space = vars(module)
        file = os.path.join(directory, name)
        space.update(__builtins__=builtins, __file__=file, __loader__=loader)
        sys.modules["__main__"] = module
        sys.argv = [name, *map(os.fsdecode, request.get("argument", ()))]
        builtins.display = display
        if streams[0] is not None:
            streams[0].reconfigure(line_buffering=True)
        say(b"\0\0\0\x11t\4\0\0\0\7kindstarted")
        try:
            steps = codes()
        except BaseException as error:
            call("errors.py", "fail", type(error), error, None, isinstance(error, SyntaxError))
        sys.path = [directory, *path]
        if any(code.co_flags & 0x80 for code in steps):
            values = call("code.py", "awaiting", steps, space)
        else:
            # The bytes after the steps are never evaluated. They are untouched
            # pages that unwinding sets free before exit() runs, which would
            # otherwise lack the memory to explain a MemoryError.
            values = map(eval, steps + [bytes(4 << 20)], [space] * len(steps))
        steps = [map(show_main, values)]
        gc.freeze()
        return steps

    def exit(_, kind, value, trace):
        if kind:
            gc.unfreeze()
            if not issubclass(kind, SystemExit):
                call("errors.py", "fail", kind, value, trace, False)
        if "figures.py" in parts:
            parts["show_rest"]()
        if "results.py" in parts:
            parts["send"]("done")
        else:
            say(b"\0\0\0\x0et\4\0\0\0\4kinddone")
        if not kind:
            try:
                if is_tame():
                    sys.stdout.flush()
                    sys.stderr.flush()
                    leave(0)
            except Exception:
                pass  # Python itself will say so
            gc.unfreeze()

    # linecache and inspect ask it for the code, which no file holds.
    source_of = lambda *_: call("code.py", "decoded")
    loader = type("Loader", (), {"get_source": source_of, "find_spec": find_spec})()
    sys.meta_path.insert(0, loader)
    modules = sys.modules.keys() - {"gc"}
    del sys.modules["gc"]
    parts.update(locals())
    return type("Session", (), {"__enter__": enter, "__exit__": exit})()


# The only frame below user code, and it holds no handle.
with type(start)(start.__code__, {"__builtins__": dict(vars(__builtins__))})() as steps:
    for _ in steps.pop():
        pass
