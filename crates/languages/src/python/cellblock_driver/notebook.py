"""`get_ipython()`: what code for notebooks asks of its shell."""

import os
import re
import sys

from . import session
from .session import display


# pip as a command of its own, which needs no shell.
PIP = re.compile(r"\s*(?:pip3?|\S*python3? +-m +pip) +(?!.*[|&;<>`])")


class UsageError(Exception):
    """A magic that does not exist, or not in this form."""


UsageError.__module__ = "builtins"  # as IPython shows it, without a package


class Lines(list):
    """The lines that a command has printed."""

    n = property("\n".join)
    s = property(" ".join)
    l = property(list)


class Events:
    """Callbacks of notebooks; there is nothing to call them for."""

    def register(self, event, function):
        pass

    unregister = register


class Shell:
    """Stands for IPython's shell."""

    def __init__(self):
        self.config = {}
        self.events = Events()

    @property
    def user_ns(self):
        return vars(sys.modules["__main__"])

    def system(self, command):
        """Runs a command of the shell; its status is `_exit_code`."""
        command = self.expand(command)
        is_pip = PIP.match(command)
        if is_pip:
            pip(self, command[is_pip.end() :])
        else:
            self.user_ns["_exit_code"] = spawn(["-c", command])

    system_raw = system_piped = system

    def getoutput(self, command, split=True, depth=0):
        """The lines that a command prints."""
        import subprocess

        flush()
        command = [interpreter(), "-c", self.expand(command)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode("utf-8", "replace")
        return Lines(text.splitlines()) if split else text

    def run_line_magic(self, name, line, _stack_depth=1):
        magic = LINE_MAGICS.get(name)
        if magic is None:
            raise UsageError(unknown("%", name, LINE_MAGICS, CELL_MAGICS))
        return magic(self, self.expand(line) if name not in ("time", "timeit") else line)

    def run_cell_magic(self, name, line, cell):
        magic = CELL_MAGICS.get(name)
        if magic is None:
            raise UsageError(unknown("%%", name, CELL_MAGICS, LINE_MAGICS))
        return magic(self, line, cell)

    def magic(self, line):
        name, _, rest = line.lstrip("%").partition(" ")
        return self.run_line_magic(name, rest.strip())

    def run_cell(self, code, *_, **__):
        """Executes code in `__main__`; the value of a last expression."""
        return self.evaluate(code)

    def evaluate(self, code, first_line=1):
        source = session.Source(b"\n" * (first_line - 1) + code.encode(), session.current.name)
        for part in source.compile():
            value = eval(part, self.user_ns)
        return value

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

    # What only a front end could do.
    def enable_gui(self, gui=None):
        pass

    enable_matplotlib = enable_pylab = enable_gui

    def __repr__(self):
        return "<the shell of this cell>"


def unknown(mark, name, known, others):
    """Why a magic is not run."""
    text = "%s%s is not a magic that cells have" % (mark, name)
    if name[:1] == "%":
        return "%" + name + " takes the rest of the code, so it has to be the first line"
    if name in others:
        text = "%s is there as %s%s only" % (mark + name, "%" if mark == "%%" else "%%", name)
    return "%s; there are %s" % (text, ", ".join(mark + each for each in sorted(known)))


def interpreter():
    for path in "/bin/bash", "/bin/sh":
        if os.path.exists(path):
            return path
    raise UsageError("this cell has no shell, so ! and %%bash cannot work; use Python instead")


def flush():
    """What was printed so far comes before what a process prints."""
    for stream in sys.stdout, sys.stderr:
        if stream is not None:
            stream.flush()


def spawn(arguments, program=None):
    """Runs a program to its end: its status."""
    import subprocess

    flush()
    return subprocess.call([program or interpreter(), *arguments])


def bash(shell, line, cell):
    status = spawn(["-c", cell, "bash", *line.split()])
    if status:
        import subprocess

        raise subprocess.CalledProcessError(status, "bash")


def pip(shell, line):
    from . import packages

    shell.user_ns["_exit_code"] = packages.pip(line)


def cd(shell, line):
    os.chdir(os.path.expanduser(line.strip("'\"") or "~"))
    print(os.getcwd())


def env(shell, line):
    name, _, value = line.partition("=" if "=" in line else " ")
    if not name:
        return dict(os.environ)
    if not value and "=" not in line:
        return os.environ.get(name)
    os.environ[name.strip()] = value.strip()
    print("env: %s=%s" % (name.strip(), value.strip()))


def write_file(shell, line, cell):
    *options, name = line.split() or [""]
    with open(name, "a" if "-a" in options else "w") as file:
        file.write(cell)
    print("Writing " + name)


def run_file(shell, line):
    import runpy
    import shlex

    arguments, before = shlex.split(line), sys.argv
    sys.argv = arguments
    try:
        shell.user_ns.update(runpy.run_path(arguments[0], run_name="__main__"))
    finally:
        sys.argv = before


def capture(shell, line, cell):
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        shell.evaluate(cell, 2)
    if line:
        shell.user_ns[line.split()[0]] = Captured(out.getvalue(), err.getvalue())


class Captured:
    """What a cell has printed."""

    def __init__(self, stdout, stderr):
        self.stdout, self.stderr = stdout, stderr

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    __str__ = lambda self: self.stdout


def time(shell, line, cell=None):
    from . import timing

    first_line = 1 if cell is None else 2
    return timing.once(lambda: shell.evaluate(line if cell is None else cell, first_line))


def timeit(shell, line, cell=None):
    from . import timing

    return timing.often(line, cell, shell.user_ns)


def shows(name):
    """A magic that displays its cell as an object of IPython.display."""

    def show(shell, line, cell):
        from . import ipython

        display(ipython.NAMES[name](cell))

    return show


def accepted(shell, line):
    """A setting of notebooks that means nothing here, or is in force anyway."""


LINE_MAGICS = {
    "autoreload": accepted,
    "cd": cd,
    "config": accepted,
    "env": env,
    "load_ext": accepted,
    "ls": lambda shell, line: shell.system("ls " + line),
    "matplotlib": accepted,
    "pip": pip,
    "precision": accepted,
    "pwd": lambda shell, line: os.getcwd(),
    "run": run_file,
    "set_env": env,
    "sx": lambda shell, line: shell.getoutput(line),
    "system": lambda shell, line: shell.getoutput(line),
    "time": time,
    "timeit": timeit,
    "warnings": accepted,
}
CELL_MAGICS = {
    "bash": bash,
    "capture": capture,
    "html": shows("HTML"),
    "javascript": shows("Javascript"),
    "latex": shows("Latex"),
    "markdown": shows("Markdown"),
    "sh": bash,
    "svg": shows("SVG"),
    "time": time,
    "timeit": timeit,
    "writefile": write_file,
}
shell = Shell()
