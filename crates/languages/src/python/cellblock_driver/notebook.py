"""`get_ipython()`: what code and packages for notebooks ask of their shell, whether IPython is
installed or not."""

import builtins
import os
import re
import sys

from . import session, source

# pip as a command of its own, which needs no shell.
PIP = re.compile(r"\s*(?:pip3?|\S*python3? +-m +pip) +(?!.*[|&;<>`])")


class Lines(list):
    """The lines that a command has printed."""

    n = property("\n".join)
    s = property(" ".join)
    l = property(list)


class ZMQInteractiveShell:
    """Stands for IPython's shell, under the name by which packages tell a notebook's from that of
    a terminal."""

    colors = "NoColor"
    autoindent = autocall = False
    custom_exceptions, CustomTB = (), None
    # What was asked of the front end has nowhere to go.
    parent_header = {}

    def __init__(self):
        self.input_transformers_cleanup = source.cleanup_transformers
        self.input_transformers_post = source.line_transformers
        self.input_transformer_manager = self
        # As that object names them.
        self.cleanup_transforms = source.cleanup_transformers
        self.line_transforms = source.line_transformers
        self.ast_transformers = source.ast_transformers
        self.configurables = []
        self.user_ns_hidden = {}
        session.shell = self

    def __getattr__(self, name):
        """The larger parts, when something first asks for them."""
        if name == "display_formatter":
            from . import formatters

            part = formatters.display_formatter
        else:
            from . import kernel

            make = kernel.PARTS.get(name)
            if make is None:
                raise AttributeError("the shell of a cell has no %r" % name)
            part = make(self)
        setattr(self, name, part)
        return part

    @classmethod
    def instance(cls, *_, **__):
        return shell

    @classmethod
    def initialized(cls):
        return True

    @property
    def user_module(self):
        return sys.modules["__main__"]

    @property
    def user_ns(self):
        return vars(sys.modules["__main__"])

    user_global_ns = user_ns

    @property
    def execution_count(self):
        """As IPython 9 has it: the number of the next execution."""
        return len(session.history.inputs) if session.history else 2

    @property
    def history_manager(self):
        from . import kernel

        return kernel.HistoryManager(session.history)

    # ------------------------------------------------------------------ commands

    def system(self, command):
        """Runs a command of the shell; its status is `_exit_code`."""
        from . import commands

        command = self.expand(command)
        is_pip = PIP.match(command)
        if is_pip:
            commands.pip(self, command[is_pip.end() :])
        else:
            self.user_ns["_exit_code"] = commands.spawn(["-c", command])

    system_raw = system_piped = system

    def getoutput(self, command, split=True, depth=0):
        """The lines that a command prints."""
        import subprocess

        from . import commands

        commands.flush()
        command = [commands.interpreter(), "-c", self.expand(command)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode("utf-8", "replace")
        return Lines(text.splitlines()) if split else text

    def run_line_magic(self, magic_name, line, _stack_depth=1):
        magic = self.find_line_magic(magic_name)
        if magic is None:
            self.refuse("%", magic_name, "line", "cell")
        return magic(self.expand(line) if magic_name not in ("time", "timeit") else line)

    def run_cell_magic(self, magic_name, line, cell):
        magic = self.find_cell_magic(magic_name)
        if magic is None:
            self.refuse("%%", magic_name, "cell", "line")
        return magic(line, cell)

    def refuse(self, mark, name, kind, other):
        from . import commands

        known = self.magics_manager.magics
        raise commands.UsageError(commands.unknown(mark, name, known[kind], known[other]))

    def magic(self, arg_s):
        name, _, rest = arg_s.lstrip("%").partition(" ")
        return self.run_line_magic(name, rest.strip())

    def find_magic(self, magic_name, magic_kind="line"):
        """The function of a magic, or None."""
        return self.magics_manager.magics[magic_kind].get(magic_name)

    def find_line_magic(self, magic_name):
        return self.find_magic(magic_name)

    def find_cell_magic(self, magic_name):
        return self.find_magic(magic_name, "cell")

    def register_magic_function(self, func, magic_kind="line", magic_name=None):
        self.magics_manager.register_function(func, magic_kind, magic_name)

    def register_magics(self, *magic_objects):
        self.magics_manager.register(*magic_objects)

    def define_magic(self, name, func):
        self.register_magic_function(lambda line: func(self, line), "line", name)

    # ------------------------------------------------------------------ code

    def run_cell(self, raw_cell, *_, **__):
        """Executes code in `__main__`, and shows the value of a last expression."""
        from . import kernel, results

        result = kernel.ExecutionResult()
        try:
            result.result = self.evaluate(raw_cell)
        except Exception as error:
            result.error_in_exec = error
            self.showtraceback()
        if result.result is not None:
            results.show(result.result)
        return result

    def evaluate(self, code, first_line=1):
        text = source.Source(b"\n" * (first_line - 1) + code.encode(), session.current.name)
        for part in text.compile():
            value = eval(part, self.user_ns)
        return value

    def ex(self, cmd):
        exec(cmd, self.user_ns)

    def ev(self, expr):
        return eval(expr, self.user_ns)

    def push(self, variables, interactive=True):
        """Makes variables, given by a dictionary or by names of the caller's own."""
        if not isinstance(variables, dict):
            names = variables.split() if isinstance(variables, str) else variables
            frame = sys._getframe(1)
            variables = {name: eval(name, frame.f_globals, frame.f_locals) for name in names}
        self.user_ns.update(variables)

    def drop_by_id(self, variables):
        for name, value in variables.items():
            if self.user_ns.get(name) is value:
                del self.user_ns[name]

    def del_var(self, varname, by_name=False):
        del self.user_ns[varname]

    def transform_cell(self, raw_cell):
        """The code as Python."""
        from . import magics

        return magics.transform(raw_cell.encode())

    def expand(self, text):
        """The text with `{expression}` and `$name` replaced by what they stand for here;
        what stands for nothing is left to the shell."""

        def replace(found):
            whole, expression, name = found.group(0, 1, 2)
            if whole in ("$$", "{{", "}}"):
                return whole[0]
            try:
                return str(eval(expression, self.user_ns) if expression else self.user_ns[name])
            except Exception:
                return whole

        return re.sub(r"\$\$|\{\{|\}\}|\{([^{}]+)\}|\$([^\W\d]\w*)", replace, text)

    var_expand = expand

    # ------------------------------------------------------------------ exceptions

    def _get_exc_info(self, exc_tuple=None):
        return exc_tuple or sys.exc_info()

    def _showtraceback(self, etype, evalue, stb):
        print("\n".join(stb), file=sys.stderr)

    def showtraceback(self, exc_tuple=None, *_, **__):
        """Prints a traceback, as for an exception that nothing catches."""
        import traceback

        kind, value, trace = self._get_exc_info(exc_tuple)
        lines = "".join(traceback.format_exception(kind, value, trace)).splitlines()
        self._showtraceback(kind, value, lines)

    showsyntaxerror = showtraceback

    def set_custom_exc(self, exc_tuple, handler):
        """Has a function called for exceptions of these classes that nothing catches."""
        self.custom_exceptions, self.CustomTB = tuple(exc_tuple), handler

    def report(self, kind, value, trace):
        """Calls what a package has put in the place of the functions above."""
        own = vars(self)
        if issubclass(kind, self.custom_exceptions):
            self.CustomTB(self, kind, value, trace, tb_offset=None)
        elif "showtraceback" in own or "_showtraceback" in own:
            self.showtraceback((kind, value, trace), running_compiled_code=False)

    # ------------------------------------------------------------------ the front end's part

    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        return "inline", "agg"

    def enable_pylab(self, gui=None, import_all=True, **_):
        return self.enable_matplotlib()

    def set_next_input(self, s, replace=False):
        print("the next input would be:\n" + s)

    def get_parent(self):
        return {}

    def set_hook(self, *_, **__):
        pass

    set_parent = set_custom_completer = set_hook

    def ask_yes_no(self, prompt, default=None, interrupt=None):
        answer = builtins.input(prompt)
        return answer.strip().lower().startswith("y") if answer else bool(default)

    def mktempfile(self, data=None, prefix="ipython_edit_"):
        import tempfile

        descriptor, path = tempfile.mkstemp(".py", prefix)
        with os.fdopen(descriptor, "w") as file:
            file.write(data or "")
        return path

    def __repr__(self):
        return "<the shell of this cell>"


# As packages look for it in the text of the type.
ZMQInteractiveShell.__module__ = "ipykernel.zmqshell"


shell = ZMQInteractiveShell()
