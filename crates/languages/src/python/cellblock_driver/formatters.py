"""`get_ipython().display_formatter`: functions that the code, or a package, gives for types of
which the forms are to be other ones than the types' own."""

import sys

from . import pretty, results, rich, session

MISSING = object()


class Formatter:
    """Makes one form of objects: by a function that was given for the object or its type, else by
    the object's own method."""

    format_type = print_method = None
    enabled = True

    def __init__(self, format_type=None, print_method=None, **_):
        self.format_type = format_type or self.format_type
        self.print_method = print_method or self.print_method
        self.singleton_printers, self.type_printers, self.deferred_printers = {}, {}, {}

    def __call__(self, value):
        printer = self.printer(value)
        if printer:
            return printer(value)
        method = not isinstance(value, type) and getattr(value, self.print_method or "", None)
        return method() if callable(method) else None

    def printer(self, value):
        try:
            return self.lookup(value)
        except KeyError:
            return None

    def lookup(self, value):
        """The function for an object; KeyError if there is none."""
        if id(value) in self.singleton_printers:
            return self.singleton_printers[id(value)]
        return self.lookup_by_type(type(value))

    def lookup_by_type(self, kind):
        if isinstance(kind, str):
            kind = tuple(kind.rpartition(".")[::2])
            for known in self.type_printers:
                if (known.__module__, known.__name__) == kind:
                    return self.type_printers[known]
            return self.deferred_printers[kind]
        for base in kind.__mro__:
            self.resolve(base)
            if base in self.type_printers:
                return self.type_printers[base]
        raise KeyError("no function for %r" % kind)

    def resolve(self, kind):
        """Makes a function for the type's name one for the type."""
        name = getattr(kind, "__module__", None), kind.__name__
        if name in self.deferred_printers:
            self.type_printers[kind] = self.deferred_printers.pop(name)

    def for_type(self, typ, func=None):
        """Takes a function for a type; the one from before, or that there is."""
        if isinstance(typ, str):
            module, _, name = typ.rpartition(".")
            return self.for_type_by_name(module, name, func)
        self.resolve(typ)
        before = self.type_printers.get(typ)
        if func is not None:
            self.type_printers[typ] = func
            results.PLAIN -= {kind for kind in results.PLAIN if issubclass(kind, typ)}
        return before

    def for_type_by_name(self, type_module, type_name, func=None):
        name = type_module, type_name
        for known in self.type_printers:
            if (known.__module__, known.__name__) == name:
                return self.for_type(known, func)
        kind = getattr(sys.modules.get(type_module), type_name, None)
        if isinstance(kind, type):
            return self.for_type(kind, func)
        before = self.deferred_printers.get(name)
        if func is not None:
            self.deferred_printers[name] = func
        return before

    def pop(self, typ, default=MISSING):
        """Takes the function of a type away."""
        if isinstance(typ, str):
            name = tuple(typ.rpartition(".")[::2])
            known = [k for k in self.type_printers if (k.__module__, k.__name__) == name]
            typ, printers = (known[0], self.type_printers) if known else (name, self.deferred_printers)
        else:
            self.resolve(typ)
            printers = self.type_printers
        if default is MISSING:
            return printers.pop(typ)
        return printers.pop(typ, default)


class TextFormatter(Formatter):
    """The text of an object. Functions get a printer (pretty.py), also for what a collection has."""

    format_type, print_method = "text/plain", "_repr_pretty_"
    pprint = True
    float_precision = ""
    max_width = pretty.WIDTH

    def for_type(self, typ, func=None):
        if func is not None:
            results.PLAIN -= set(pretty.OPENING)
        return super().for_type(typ, func)

    def __call__(self, value):
        if not self.pprint:
            return repr(value)
        return pretty.pretty(value, self.printer, max_width=self.max_width)


class Formatters(dict):
    """The formatters by their media types. One that the code puts in a place sees all values."""

    def __setitem__(self, key, formatter):
        if key == "text/plain":
            results.PLAIN.clear()
        super().__setitem__(key, formatter)


class DisplayFormatter:
    """What makes the forms of what is displayed."""

    def __init__(self):
        self.formatters = Formatters({"text/plain": TextFormatter()})
        for method, key in rich.FORMS:
            self.formatters[key] = Formatter(key, "_repr_%s_" % method)
        self.ipython_display_formatter = Formatter(print_method="_ipython_display_")
        self.mimebundle_formatter = Formatter(print_method="_repr_mimebundle_")

    @property
    def format_types(self):
        return list(self.formatters)

    @property
    def active_types(self):
        return [key for key, each in self.formatters.items() if getattr(each, "enabled", True)]

    @active_types.setter
    def active_types(self, wanted):
        for key, formatter in self.formatters.items():
            formatter.enabled = key in wanted

    def format(self, value, include=None, exclude=None):
        """The forms of an object, and what goes with them."""
        about = {}
        bundle = rich.describe(value, {}, about) or {}
        for key in list(bundle):
            is_wanted = not include or key in include
            if key in ("chart", "data") or bundle[key] is None or not is_wanted or key in (exclude or ()):
                del bundle[key]
        return bundle, about

    # What `rich` asks.

    def shows(self, value):
        """Whether the object was displayed by a function for its type."""
        printer = self.ipython_display_formatter.printer(value)
        if printer:
            printer(value)
        return printer is not None

    def bundle(self, value):
        printer = self.mimebundle_formatter.printer(value)
        return printer and printer(value)

    def given(self, value):
        """The functions for this object that are not its own methods, by media types."""
        found = {}
        for key, formatter in self.formatters.items():
            if type(formatter) is TextFormatter:
                has_own = formatter.printer(value) or is_collection(value, formatter)
                printer = formatter if has_own or not formatter.pprint else None
            elif getattr(type(formatter), "__call__", None) is Formatter.__call__:
                printer = formatter.printer(value)
            else:
                printer = formatter
            if printer:
                found[key] = printer
        return found


def is_collection(value, formatter):
    """Whether functions for types may concern what is in the object."""
    return type(value) in pretty.OPENING and (formatter.type_printers or formatter.deferred_printers)


session.formatters = display_formatter = DisplayFormatter()
