"""Describes variables without running code of theirs: what a class defines in Python may
raise, lie or never end. Types are asked by `type`'s own descriptors, values by methods
that are written in C."""

import sys
from itertools import islice
from types import BuiltinFunctionType, FunctionType, ModuleType

from .protocol import TEXT, text

LIMIT = 1000  # variables
WIDTH = 100  # characters of a preview
DEPTH = 3
ITEMS = 50
BITS = 1000  # of an integer: the digits of longer ones take long to find

NAME, MRO, DICT, FLAGS = (
    type.__dict__[name].__get__ for name in ("__name__", "__mro__", "__dict__", "__flags__")
)
HEAP = 1 << 9  # the flag of a type that is not compiled into a library
METHOD, ATTRIBUTE = type(list.append), type(type.__dict__["__name__"])
OPENING = {list: "[", tuple: "(", set: "{", frozenset: "{", dict: "{"}
CLOSING = {"[": "]", "(": ")", "{": "}"}
ATOMS = bool, int, float, complex, str, bytes, bytearray
# Types of C whose repr runs nothing else.
PLAIN = {("datetime", "date"), ("datetime", "timedelta"), ("decimal", "Decimal")}


def describe(scope, fields, hidden):
    """Adds the fields of a frame to the list; it is whole after each variable. Those whose
    names are hidden are left out."""
    found = [
        (name, value)
        for name, value in list(scope.items())
        if type(name) is str and not name[:2] == "__" == name[-2:] and name not in hidden
    ]
    fields.append((TEXT, "total", b"%d" % len(found)))
    for name, value in found[:LIMIT]:
        kind = type(value)
        size = size_of(value, kind)
        fields += [
            (TEXT, "name", text(name, 200)),
            (TEXT, "type", text(NAME(kind), 200)),
            *([] if size is None else [(TEXT, "size", b"%d" % size)]),
            (TEXT, "preview", text(preview(value), WIDTH)),
        ]


def in_class(kind, name):
    """An attribute as the class has it, or inherits it."""
    for base in MRO(kind):
        attributes = DICT(base)
        if name in attributes:
            return attributes[name]
    return None


def is_static(kind):
    """Whether the type is compiled: code in Python cannot have made it."""
    return not FLAGS(kind) & HEAP


def genuine(kind, *names):
    """The name of the class, if it is one of these: module and name."""
    name = NAME(kind)
    for module, known in names:
        if name == known and DICT(ModuleType)["__dict__"].__get__(
            sys.modules.get(module, sys)
        ).get(name) is kind:
            return name
    return None


FRAMES = ("pandas.core.frame", "DataFrame"), ("polars.dataframe.frame", "DataFrame")
SERIES = ("pandas.core.series", "Series"), ("polars.series.series", "Series")


def size_of(value, kind):
    """The bytes of the value itself and of an array's data, if a method in C knows."""
    try:
        if is_array(kind):
            return in_class(kind, "nbytes").__get__(value)
        if genuine(kind, *FRAMES, *SERIES):
            if hasattr(kind, "estimated_size"):
                return int(value.estimated_size())
            usage = value.memory_usage(deep=False)
            return int(usage if type(usage) is int else usage.sum())
        if type(in_class(kind, "__sizeof__")) is METHOD:
            return sys.getsizeof(value)
    except Exception:
        pass
    return None


def is_array(kind):
    return is_static(kind) and NAME(kind) == "ndarray" and kind.__module__ == "numpy"


def preview(value):
    shown = ""
    try:
        for piece in pieces(value, DEPTH):
            shown += piece
            if len(shown) > WIDTH:
                break
    except Exception:
        shown += "…"  # a thread has changed the value meanwhile
    shown = "".join(c if c.isprintable() else "\ufffd" for c in shown[: WIDTH + 1])
    return shown if len(shown) <= WIDTH else shown[: WIDTH - 1] + "…"


def pieces(value, depth):
    """The text of a value, piece by piece."""
    kind = type(value)
    bases = MRO(kind)
    base = next((base for base in (*ATOMS, *OPENING) if base in bases), None)
    name = NAME(kind)[:WIDTH]
    if value is None or value is NotImplemented or value is ...:
        yield repr(value)
    elif base is None:
        yield plain(value, kind, name)
    else:
        if base is not kind:
            yield name + "("
        yield from atom(value, base) if base in ATOMS else items(value, base, depth)
        if base is not kind:
            yield ")"


def atom(value, base):
    if base in (str, bytes, bytearray):
        yield repr(base.__getitem__(value, slice(0, WIDTH)))
        if base.__len__(value) > WIDTH:
            yield "…"
    elif base is int and int.bit_length(value) > BITS:
        yield "… an integer of %d bits" % int.bit_length(value)
    else:
        yield base.__repr__(value)


def items(value, base, depth):
    length = base.__len__(value)
    opening = OPENING[base]
    if base is frozenset or base is set and not length:
        yield base.__name__ + "("
    if length or base is not set:
        yield opening if length or base is not frozenset else ""
    if length and depth == 0:
        yield "…"
    elif base is dict:
        for index, (key, item) in enumerate(islice(dict.items(value), ITEMS)):
            yield ", " if index else ""
            yield from pieces(key, depth - 1)
            yield ": "
            yield from pieces(item, depth - 1)
    else:
        for index, item in enumerate(islice(base.__iter__(value), ITEMS)):
            yield ", " if index else ""
            yield from pieces(item, depth - 1)
    if depth and length > ITEMS:
        yield ", …"
    if base is tuple and length == 1:
        yield ","
    if length or base is not set:
        yield CLOSING[opening] if length or base is not frozenset else ""
    if base is frozenset or base is set and not length:
        yield ")"


def plain(value, kind, name):
    """The text of what consists of nothing, or is not to be asked."""
    if type in MRO(kind):
        return "class " + NAME(value)
    if kind is FunctionType:
        code = value.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        return "%s(%s)" % (value.__name__[:WIDTH], ", ".join(code.co_varnames[:count])[:WIDTH])
    if kind is BuiltinFunctionType:
        return "%s(…)" % value.__name__[:WIDTH]
    if kind is ModuleType:
        known = DICT(ModuleType)["__dict__"].__get__(value).get("__name__")
        return "module " + known[:WIDTH] if type(known) is str else "module"
    if is_array(kind):
        shape = in_class(kind, "shape").__get__(value)
        return "%s %r" % (NAME(in_class(kind, "dtype").__get__(value).type), shape)
    if is_static(kind):
        module = kind.__module__
        if module == "numpy" and type(in_class(kind, "item")) is METHOD:
            return "%s(%s)" % (name, preview(in_class(kind, "item")(value)))
        if (module, name) in PLAIN:
            return repr(value)
        if (module, name) == ("datetime", "datetime") and value.tzinfo is None:
            return repr(value)
    if genuine(kind, *FRAMES):
        return "%d × %d: %s" % (*value.shape, preview([str(name) for name in value.columns[:20]]))
    if genuine(kind, *SERIES):
        return "%s, length %d" % (value.dtype, len(value))
    return "<%s>" % name
