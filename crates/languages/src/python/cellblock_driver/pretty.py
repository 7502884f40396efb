"""`_repr_pretty_`: the printer that these methods, and functions of the code's own for text, write
to, and what `IPython.lib.pretty` has where IPython is not installed."""

from contextlib import contextmanager

WIDTH = 79
MOST = 1000  # items of a collection
OPENING = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), dict: ("{", "}")}


class Group(list):
    """Texts, groups, and pairs for places at which a line may break: what is there otherwise, and
    the indentation of the next line. All of them break, or none."""

    def length(self):
        """The characters up to a newline, on one line."""
        length = 0
        for item in self:
            if type(item) is Group:
                length += item.length()
            else:
                length += len(item[0] if type(item) is tuple else item)
        return length


class Printer:
    """What `_repr_pretty_` gets as `p`."""

    def __init__(self, printers=None, max_width=WIDTH, newline="\n", max_seq_length=MOST, verbose=False):
        self.printer_of = printers
        self.max_width, self.newline = max_width, newline
        self.max_seq_length, self.verbose = max_seq_length, verbose
        self.indentation = 0
        self.whole = Group()
        self.open = [self.whole]
        self.stack = []  # the objects that are being printed, by their ids

    def text(self, text):
        self.open[-1].append(str(text))

    def breakable(self, sep=" "):
        self.open[-1].append((sep, self.indentation))

    def break_(self):
        self.text(self.newline + " " * self.indentation)

    def begin_group(self, indent=0, open=""):
        if open:
            self.text(open)
        group = Group()
        self.open[-1].append(group)
        self.open.append(group)
        self.indentation += indent

    def end_group(self, dedent=0, close=""):
        self.indentation -= dedent
        if len(self.open) > 1:
            self.open.pop()
        if close:
            self.text(close)

    @contextmanager
    def group(self, indent=0, open="", close=""):
        self.begin_group(indent, open)
        try:
            yield
        finally:
            self.end_group(indent, close)

    @contextmanager
    def indent(self, indent):
        self.indentation += indent
        try:
            yield
        finally:
            self.indentation -= indent

    def pretty(self, value):
        is_cycle = id(value) in self.stack
        self.stack.append(id(value))
        try:
            self.begin_group()
            try:
                self.print(value, is_cycle)
            finally:
                self.end_group()
        finally:
            self.stack.pop()

    def print(self, value, is_cycle):
        kind = type(value)
        printer = self.printer_of and self.printer_of(value)
        if printer:
            printer(value, self, is_cycle)
        elif has_printer(value):
            value._repr_pretty_(self, is_cycle)
        elif kind in OPENING and (value or kind is not set) and len(value) <= self.max_seq_length:
            self.items(value, kind, is_cycle)
        else:
            for index, line in enumerate(repr(value).splitlines()):
                if index:
                    self.break_()
                self.text(line)

    def items(self, values, kind, is_cycle):
        opening, closing = OPENING[kind]
        if is_cycle:
            return self.text(opening + "..." + closing)
        with self.group(1, opening, closing):
            for index, item in enumerate(values):
                if index:
                    self.text(",")
                    self.breakable()
                self.pretty(item)
                if kind is dict:
                    self.text(": ")
                    self.pretty(values[item])
            if kind is tuple and len(values) == 1:
                self.text(",")

    def flush(self):
        pass

    def getvalue(self):
        self.parts, self.column = [], 0
        self.write(self.whole)
        return "".join(self.parts)

    def write(self, group):
        breaks = self.column + group.length() > self.max_width
        for item in group:
            if type(item) is Group:
                self.write(item)
                continue
            if type(item) is tuple:
                item = self.newline + " " * item[1] if breaks else item[0]
            self.parts.append(item)
            before, newline, last = item.rpartition("\n")
            self.column = len(last) if newline else self.column + len(item)


def has_printer(value):
    """Whether `_repr_pretty_` makes the object's text: a class's own `__repr__` comes before a
    method that it inherits."""
    for base in type(value).__mro__ if not isinstance(value, type) else ():
        if "_repr_pretty_" in vars(base):
            return callable(vars(base)["_repr_pretty_"])
        if base is not object and "__repr__" in vars(base):
            return False
    return False


def pretty(value, printer_of=None, **options):
    """The text of a value, by `_repr_pretty_` where it has that."""
    printer = Printer(printer_of, **options)
    printer.pretty(value)
    return printer.getvalue()
