"""`In`, `Out`, `_`, `_1`, `_i` and so on: what a notebook keeps of earlier executions. A single run
has none of it."""

import builtins
import os
from sys import getsizeof

from .source import decoded

MOST = 1000  # results, as in IPython
ROOM = 64 << 20  # bytes of results, as far as they tell their size: a cell has little memory
ITEMS = 100  # of a list, that are asked for their size
LAST = "_", "__", "___"


class Gone:
    """Stands for a result that is no longer kept."""

    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return (
            "<Out[%d] is no longer kept, since later results are larger than %d MiB:"
            " give a name to what is needed again>" % (self.number, ROOM >> 20)
        )


class History:
    def __init__(self, scope):
        self.scope = scope
        self.inputs, self.outputs = [""], {}
        self.sizes = {}  # of results that are kept, by their numbers
        self.last = ["", "", ""]  # the values of LAST
        self.own = {}  # names that are the history's while they have these values
        self.push(_dh=[os.getcwd()], **dict(zip(LAST, self.last)))
        self.name_lists()

    def name_lists(self):
        self.push(In=self.inputs, _ih=self.inputs, Out=self.outputs, _oh=self.outputs)

    def push(self, **names):
        self.own.update(names)
        self.scope.update(names)

    def is_the_codes(self, name):
        """Whether the code has given that name to something else, and so has it."""
        if name == "_" and hasattr(builtins, "_"):
            return True  # as gettext.install() does
        return name in self.scope and self.scope[name] is not self.own.get(name)

    def begin(self, source):
        """Notes code that is about to be executed."""
        if "_" in self.own and hasattr(builtins, "_"):
            self.rename("_", self.own["_"], None)
        text = decoded(source.code)
        before = [*self.inputs[:0:-1], "", "", ""]
        self.inputs.append(text)
        self.push(_i=before[0], _ii=before[1], _iii=before[2])
        self.push(**{"_i%d" % (len(self.inputs) - 1): text})

    def note(self, value):
        """Notes the value of a last expression."""
        if value is self.outputs:
            return
        number = len(self.inputs) - 1
        self.last = [value, *self.last[:2]]
        for name, last in zip(LAST, self.last):
            if not self.is_the_codes(name):
                self.push(**{name: last})
        self.outputs[number] = value
        self.push(**{"_%d" % number: value})
        self.sizes[number] = size_of(value)
        self.make_room()

    def make_room(self):
        """Lets go of the oldest results, but never of the last one."""
        while len(self.outputs) > MOST:
            number = next(iter(self.outputs))
            self.replace(number, None)
            del self.outputs[number]
        while len(self.sizes) > 1 and self.room() > ROOM:
            number = next(iter(self.sizes))
            self.replace(number, Gone(number))

    def room(self):
        kept = ((id(self.outputs.get(number)), size) for number, size in self.sizes.items())
        return sum(dict(kept).values())  # a value may be several results

    def replace(self, number, other):
        """Puts something else in the place of a result."""
        del self.sizes[number]
        value = self.outputs.get(number)
        if number in self.outputs:
            self.outputs[number] = other
        is_elsewhere = any(self.outputs.get(kept) is value for kept in self.sizes)
        name = "_%d" % number
        self.rename(name, value, other)
        for index, name in enumerate(LAST if not is_elsewhere else ()):
            if self.last[index] is value:
                self.last[index] = other
                self.rename(name, value, other)

    def rename(self, name, value, other):
        if self.scope.get(name) is value:
            self.scope[name] = other
            if other is None:
                del self.scope[name]
        self.own[name] = other
        if other is None:
            del self.own[name]

    def reset(self):
        """Lets go of all results."""
        for name in [name for name, value in self.own.items() if name[1:].isdigit()]:
            self.rename(name, self.own[name], None)
        self.outputs.clear()
        self.sizes.clear()
        self.last = ["", "", ""]
        self.push(**dict(zip(LAST, self.last)))

    def hidden(self):
        """The names that are the history's own, which no list of variables has."""
        return {name for name, value in self.own.items() if self.scope.get(name) is value}


def size_of(value, depth=2):
    """The bytes that a result keeps, as far as it tells."""
    try:
        if isinstance(value, (list, tuple)) and depth:
            return getsizeof(value) + sum(size_of(item, depth - 1) for item in value[:ITEMS])
        for name in "nbytes", "memory_usage", "estimated_size":
            size = getattr(value, name, None)
            size = size() if callable(size) else size
            size = size.sum() if hasattr(size, "sum") else size
            if size is not None:
                return int(size)
        # What matplotlib draws keeps its whole figure.
        figure = getattr(value, "figure", None)
        if hasattr(figure, "canvas"):
            width, height = figure.bbox.size
            return int(width * height * 4) + (1 << 20)
        return getsizeof(value)
    except Exception:
        return 0
