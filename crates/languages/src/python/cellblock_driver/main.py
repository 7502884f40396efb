"""Serves the requests that come from descriptor 3, and writes frames to descriptor 4. With the word
`template` behind the number, and names of modules, it is a template (template.py). `__main__.py`
executes this in its own place."""

import builtins
import gc
import os
import sys

PACKAGE = "cellblock_driver"
# Packages that expect a window, a browser, a notebook or a file with the code; and
# `linecache`, once it has code to learn.
ASSISTED = {
    "IPython",
    "PIL",
    "joblib",
    "loky",
    "matplotlib",
    "matplotlib_inline",
    "multiprocessing",
    "plotly",
    "subprocess",
}

# The driver has builtins of its own, since a program may replace or delete those
# that everything else shares.
__builtins__ = dict(vars(builtins))
standard_import = builtins.__import__
standard_system = os.system
# The path without this directory, where Python looks for a script's own modules.
standard_path = [entry for entry in sys.path if entry != DIRECTORY]
Module = type(sys)
package = Module(PACKAGE)


def load(name):
    """A module of the driver."""
    if not hasattr(package, name):
        module = Module(PACKAGE + "." + name)
        module.__file__ = DIRECTORY + "/" + name + ".py"
        module.__builtins__ = __builtins__
        code = compiled.get(name)
        code = loads(code) if code else compile(source(name), module.__file__, "exec")
        exec(code, vars(module))
        setattr(package, name, module)
    return getattr(package, name)


def driver_import(name, globals=None, locals=None, fromlist=(), level=0):
    """`import` in the driver's modules. A relative one finds the driver's own, whatever
    a program has done to `sys`. For any other, a program's file does not stand in
    for a module of Python's."""
    if level and name:
        return load(name)
    if level:
        for module in fromlist:
            load(module)
        return package
    if name in sys.modules:
        return standard_import(name, globals, locals, fromlist)
    program_path, sys.path = sys.path, standard_path
    try:
        return standard_import(name, globals, locals, fromlist)
    finally:
        sys.path = program_path


class Finder:
    """Assists with packages that expect what is not here."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ASSISTED:
            return load("hooks").find_spec(Finder, name, path, target)
        return None


class Installed:
    """Finds what was installed for the user while the program runs."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        home = os.environ.get("HOME", "")
        if path is None and home and os.path.isdir(home + "/.local/lib"):
            return load("packages").find_spec(name)
        return None


def system(command):
    return load("reserves").lifted(standard_system)(command)


__builtins__["__import__"] = driver_import
os.system = system
sys.meta_path.insert(0, Finder)
sys.meta_path.append(Installed)
if sys.argv[2:3] == ["template"]:
    sys.path = list(standard_path)
    # Returns in a copy that is to execute code.
    load("template").serve(int(sys.argv[1]), sys.argv[3:], load)
session = load("session").Session(int(sys.argv[1]), standard_path, ASSISTED)
# The first call makes a hundred classes, which are nothing of a program's.
compile("None", "<string>", "eval")
# Garbage collection need not look at what Python and the driver consist of, above
# all not at the end of the process.
gc.freeze()
session.run()
