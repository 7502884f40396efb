"""`IPython.core.magic` where IPython is not installed: what marks functions and methods as magics."""

from .session import get_ipython

NAMES = (
    "Magics magics_class line_magic cell_magic line_cell_magic no_var_expand needs_local_scope"
    " register_line_magic register_cell_magic register_line_cell_magic"
).split()
KINDS = {"line": ("line",), "cell": ("cell",), "line_cell": ("line", "cell")}


class Magics:
    """The base of classes with methods that are magics."""

    def __init__(self, shell=None, **_):
        self.shell = shell
        self.magics = {kind: {} for kind in KINDS["line_cell"]}
        for name in dir(type(self)):
            for kind, magic in getattr(getattr(type(self), name), "magics", ()):
                self.magics[kind][magic] = getattr(self, name)


def magics_class(cls):
    return cls


def marks(kind):
    def mark(name):
        def marked(function, magic=None):
            function.magics = [(each, magic or function.__name__) for each in KINDS[kind]]
            return function

        return marked(name) if callable(name) else lambda function: marked(function, name)

    return mark


def registers(kind):
    def register(name):
        def registered(function, magic=None):
            get_ipython().register_magic_function(function, kind, magic or function.__name__)
            return function

        return registered(name) if callable(name) else lambda function: registered(function, name)

    return register


line_magic, cell_magic, line_cell_magic = map(marks, KINDS)
register_line_magic, register_cell_magic, register_line_cell_magic = map(registers, KINDS)


def no_var_expand(function):
    return function


needs_local_scope = no_var_expand
