"""The magics: functions of the shell (`notebook`), of what follows their names in the line, and of
the cell's other lines."""

import os
import sys

from . import session
from .session import display


class UsageError(Exception):
    """A magic that does not exist, or not in this form."""


UsageError.__module__ = "builtins"  # as IPython shows it, without a package


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
    from . import capturing

    words = line.split()
    options = {"--no-stdout": "stdout", "--no-stderr": "stderr", "--no-display": "display"}
    wanted = {options[word]: False for word in words if word in options}
    with capturing.capture_output(**wanted) as captured:
        shell.evaluate(cell, 2)
    for name in words:
        if name not in options:
            shell.user_ns[name] = captured


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


def config(shell, line):
    """`%config Class.name = value`; without a value it is shown."""
    name, is_set, value = line.partition("=")
    kind, _, trait = name.strip().partition(".")
    if not kind:
        print("Available objects for config:")
        for known in sorted({"InlineBackend", *shell.config}):
            print("    " + known)
    elif is_set:
        settings = shell.config[kind] if kind[:1].isupper() else None
        if settings is None or not trait:
            raise UsageError("%config sets what is named as Class.name = value")
        settings[trait] = shell.ev(value.strip())
        if kind == "InlineBackend":
            from . import inline

            inline.set(trait, settings[trait])
    else:
        settings = shell.config.get(kind, {})
        if kind == "InlineBackend":
            settings = {**session.settings, **settings}
        return settings.get(trait) if trait else settings or None


def load_extension(shell, line):
    """`%load_ext NAME`; what cells have anyway needs no loading."""
    if line in BUILT_IN:
        return
    answer = shell.extension_manager.load_extension(line)
    if answer == "already loaded":
        print("The %s extension is already loaded." % line)
    elif answer:
        print("The %s module is not an IPython extension." % line)


BUILT_IN = "autoreload", "storemagic", "matplotlib_inline.backend_inline"


def precision(shell, line):
    """`%precision 3` shows floats, and numpy's, with as many digits; `%precision` as Python does."""
    digits = line.strip()
    form = "%." + digits + "f" if digits.isdigit() else digits or "%r"
    formatter = shell.display_formatter.formatters["text/plain"]
    formatter.for_type(float, lambda value, printer, cycle: printer.text(form % value))
    numpy = sys.modules.get("numpy")
    if numpy and digits.isdigit():
        numpy.set_printoptions(precision=int(digits))
    return form


def reset(shell, line):
    """`%reset out` lets go of the results that are kept; without a word, `%reset -f` also of the
    variables."""
    words = [word for word in line.split() if not word.startswith("-")]
    if words not in (["out"], []):
        raise UsageError("%reset takes out, or nothing")
    if session.history:
        session.history.reset()
    if not words:
        hidden = session.history.hidden() if session.history else ()
        for name in list(shell.user_ns):
            if not name.startswith("__") and name not in hidden:
                del shell.user_ns[name]


def history(shell, line):
    """`%history`: the code of earlier executions; with -n their numbers."""
    for _, number, code in shell.history_manager.get_range():
        print("%4d: %s" % (number, code) if "-n" in line.split() else code)


def names(shell):
    """The names of the code's variables."""
    hidden = session.history.hidden() if session.history else ()
    return sorted(name for name in shell.user_ns if name[:1] != "_" and name not in hidden)


def who(shell, line):
    print("\t".join(names(shell)) or "Interactive namespace is empty.")


def list_magics(shell, line):
    for kind, mark in ("line", "%"), ("cell", "%%"):
        print("Available %s magics:" % kind)
        print("  ".join(mark + name for name in sorted(shell.magics_manager.magics[kind])) + "\n")


LINE_MAGICS = {
    "autoreload": accepted,
    "cd": cd,
    "config": config,
    "env": env,
    "hist": history,
    "history": history,
    "load_ext": load_extension,
    "ls": lambda shell, line: shell.system("ls " + line),
    "lsmagic": list_magics,
    "matplotlib": accepted,
    "pip": pip,
    "precision": precision,
    "pwd": lambda shell, line: os.getcwd(),
    "reload_ext": lambda shell, line: shell.extension_manager.reload_extension(line) and None,
    "reset": reset,
    "run": run_file,
    "set_env": env,
    "sx": lambda shell, line: shell.getoutput(line),
    "system": lambda shell, line: shell.getoutput(line),
    "time": time,
    "timeit": timeit,
    "unload_ext": lambda shell, line: shell.extension_manager.unload_extension(line) and None,
    "warnings": accepted,
    "who": who,
    "who_ls": lambda shell, line: names(shell),
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
