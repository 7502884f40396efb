"""The parts of the shell (`notebook`): its configuration, events, magics, extensions, and the kernel
that packages ask for."""

import sys

from . import session


class Config(dict):
    """Settings by their classes: `config.InlineBackend.close_figures`. A class is there as soon as
    it is asked for."""

    def __missing__(self, key):
        if key[:1].isupper():
            self[key] = Config()
            return self[key]
        raise KeyError(key)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


class Comms:
    """Channels to widgets in a front end: there is none, so nothing comes of them."""

    def __init__(self):
        self.targets, self.comms = {}, {}

    def register_target(self, target_name, f):
        self.targets[target_name] = f

    def unregister_target(self, target_name, f):
        self.targets.pop(target_name, None)

    def register_comm(self, comm):
        return getattr(comm, "comm_id", None)

    def unregister_comm(self, comm):
        pass

    def get_comm(self, comm_id):
        return None


class Socket:
    def send(self, *_, **__):
        """There is nobody to send it to."""


class Kernel:
    """Stands for the process that a front end talks to."""

    implementation = "ipython"
    language_info = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}

    def __init__(self, shell):
        self.shell = shell
        self.comm_manager = Comms()
        self.iopub_socket = self.session = Socket()
        self._parent_header = {}

    execution_count = property(lambda self: self.shell.execution_count)

    def get_parent(self, *_):
        return self._parent_header

    def __repr__(self):
        return "<the kernel of this cell>"


class ExecutionResult:
    """What became of an execution."""

    error_in_exec = error_before_exec = result = info = None
    success = property(lambda self: not (self.error_in_exec or self.error_before_exec))
    execution_count = property(lambda self: session.shell.execution_count - 1)

    def raise_error(self):
        if self.error_in_exec:
            raise self.error_in_exec


class ExecutionInfo:
    """What is about to be executed."""

    store_history, silent, shell_futures, cell_id = True, False, True, None

    def __init__(self):
        self.raw_cell = self.transformed_cell = session.current.get_source()


class Events:
    """Functions that are called before and after each execution."""

    NAMES = "pre_execute", "pre_run_cell", "post_execute", "post_run_cell", "shell_initialized"

    def __init__(self, shell):
        self.shell = shell
        self.callbacks = {name: [] for name in self.NAMES}

    def register(self, event, function):
        if event not in self.callbacks:
            raise ValueError("no event %r; there are %s" % (event, ", ".join(self.NAMES)))
        if self.before not in session.before_code:
            session.before_code.append(self.before)
            session.before_done.append(self.after)
        if function not in self.callbacks[event]:
            self.callbacks[event].append(function)

    def unregister(self, event, function):
        try:
            self.callbacks[event].remove(function)
        except ValueError:
            raise ValueError("Function %r is not registered as a %s callback" % (function, event)) from None

    def trigger(self, event, *arguments):
        for function in list(self.callbacks[event]):
            try:
                function(*arguments)
            except Exception:
                print("Error in callback %r (for %s):" % (function, event), file=sys.stderr)
                self.shell.showtraceback()

    def before(self):
        self.trigger("pre_execute")
        self.trigger("pre_run_cell", ExecutionInfo())

    def after(self):
        self.trigger("post_execute")
        result = ExecutionResult()
        result.info = ExecutionInfo()
        result.error_in_exec = session.failure
        outputs = session.history.outputs if session.history else {}
        result.result = outputs.get(self.shell.execution_count - 1)
        self.trigger("post_run_cell", result)


class Magics:
    """The magics by their kind and name: functions of the line, or of the line and the cell."""

    def __init__(self, shell):
        from . import commands

        self.shell = shell
        self.magics = {"line": {}, "cell": {}}
        for kind, table in ("line", commands.LINE_MAGICS), ("cell", commands.CELL_MAGICS):
            for name, function in table.items():
                self.magics[kind][name] = self.bound(function)

    def bound(self, function):
        return lambda *texts: function(self.shell, *texts)

    def lsmagic(self):
        return {kind: dict(table) for kind, table in self.magics.items()}

    def register_function(self, func, magic_kind="line", magic_name=None):
        name = magic_name or func.__name__
        kinds = ("line", "cell") if magic_kind == "line_cell" else (magic_kind,)
        for kind in kinds:
            if kind not in self.magics:
                raise ValueError("no kind %r of magics; there are line, cell and line_cell" % kind)
            self.magics[kind][name] = func

    def register(self, *magic_objects):
        """Takes the magics of objects, or of classes, as IPython's decorators have marked them."""
        for each in magic_objects:
            if isinstance(each, type):
                each = each(shell=self.shell)
            for kind in self.magics:
                for name, method in each.magics[kind].items():
                    self.magics[kind][name] = getattr(each, method) if isinstance(method, str) else method


class Extensions:
    """Modules with `load_ipython_extension`."""

    def __init__(self, shell):
        self.shell = shell
        self.loaded = set()

    def load_extension(self, module_str):
        from importlib import import_module

        if module_str in self.loaded:
            return "already loaded"
        module = import_module(module_str)
        if not hasattr(module, "load_ipython_extension"):
            return "no load function"
        module.load_ipython_extension(self.shell)
        self.loaded.add(module_str)

    def unload_extension(self, module_str):
        unload = getattr(sys.modules.get(module_str), "unload_ipython_extension", None)
        if unload is None or module_str not in self.loaded:
            return "not loaded"
        unload(self.shell)
        self.loaded.discard(module_str)

    def reload_extension(self, module_str):
        from importlib import reload

        self.unload_extension(module_str)
        if module_str in sys.modules:
            reload(sys.modules[module_str])
        return self.load_extension(module_str)


class DisplayPublisher:
    def publish(self, data, metadata=None, source=None, **options):
        from .display import publish_display_data

        publish_display_data(data, metadata, **options)

    def clear_output(self, wait=False):
        from .display import clear_output

        clear_output(wait)


class HistoryManager:
    """What was executed so far."""

    def __init__(self, history):
        self.input_hist_parsed = self.input_hist_raw = history.inputs if history else [""]
        self.output_hist = history.outputs if history else {}

    def get_range(self, session=0, start=1, stop=None, raw=True, output=False):
        codes = list(enumerate(self.input_hist_raw))[start:stop]
        for number, code in codes:
            yield 0, number, (code, self.output_hist.get(number)) if output else code

    def get_tail(self, n=10, raw=True, output=False, include_latest=False):
        last = len(self.input_hist_raw) - (not include_latest)
        return list(self.get_range(0, max(1, last - n), last, raw, output))


# The parts of the shell by their names there.
PARTS = {
    "config": lambda shell: Config(),
    "display_pub": lambda shell: DisplayPublisher(),
    "events": Events,
    "extension_manager": Extensions,
    "kernel": Kernel,
    "magics_manager": Magics,
    "meta": lambda shell: Config(),
}
