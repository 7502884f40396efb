"""Starts the driver: `python3 cellblock_driver/__main__.py 3`. It is short, since Python compiles it
at every start. All else is in two files, which are read at once: a program may leave no descriptor
to open others when its error is to be reported. `modules` has the sources; `compiled`, if there is
such a file, has the code of some of them, of a Python like this one (compiled.py)."""

from _frozen_importlib_external import MAGIC_NUMBER
from marshal import loads  # a program may replace those of modules
from sys import flags

DIRECTORY = __file__.rpartition("/")[0]


def read(name):
    with open(DIRECTORY + "/" + name, "rb") as file:
        return file.read()


def source(name):
    """The source of a module. This needs no builtins, which a program may replace."""
    start = b"\f%s\n" % name.encode()
    return modules.split(start, 1)[1].split(b"\f", 1)[0]


def read_compiled():
    """The code of modules by their names; none if it is of another Python. One that is told to
    optimise leaves docstrings out."""
    try:
        data = memoryview(read("compiled"))
        if data[: len(MAGIC_NUMBER)] == MAGIC_NUMBER and not flags.optimize:
            places = loads(data[len(MAGIC_NUMBER) :])
            return {name: data[-place:] for name, place in places.items()}
    except Exception:
        pass
    return {}


modules = read("modules")
compiled = read_compiled()
if "main" in compiled:
    exec(loads(compiled["main"]))
else:
    exec(compile(source("main"), DIRECTORY + "/main.py", "exec"))
