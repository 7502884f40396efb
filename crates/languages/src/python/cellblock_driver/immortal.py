"""Makes a template's objects immortal (PEP 683, Python 3.12), as `None` is: nothing counts
references to them any more. Otherwise a copy of the template writes to each object that it
looks at, and so copies half of the memory that it shares.

An object that acts when it is freed is left as it is. The others are never freed, which
is no loss: their memory belongs to the template.
"""

import gc
from ctypes import c_uint32
from sys import getrefcount
from types import CodeType

from .ending import is_passive_class

count_at = c_uint32.from_address  # the low half of an object's count, on a little-endian machine
IMMORTAL = count_at(id(None)).value
LEAST = 1 << 31  # counts from here on are those of immortal objects


def is_possible():
    """Tries whether this Python has immortal objects."""
    thing = object()
    before = getrefcount(thing)
    if IMMORTAL < LEAST or count_at(id(thing)).value != before - 1:
        return False
    count_at(id(thing)).value = IMMORTAL
    things = [thing] * 3
    is_unchanged = count_at(id(thing)).value == IMMORTAL
    del things
    return is_unchanged and count_at(id(thing)).value == IMMORTAL


def immortalise():
    """Makes all objects immortal that can be found now and are passive."""
    if not is_possible():
        return
    things = gc.get_objects()
    left_out = set()
    passive = {}
    while things:
        thing = things.pop()
        count = count_at(id(thing))
        if count.value >= LEAST or id(thing) in left_out:
            continue
        kind = type(thing)
        is_passive = passive.get(kind)
        if is_passive is None:
            is_passive = passive[kind] = is_passive_class(kind)
        if is_passive:
            count.value = IMMORTAL
        else:
            left_out.add(id(thing))
        things += gc.get_referents(thing)
        things += hidden(thing, kind)


def hidden(thing, kind):
    """Objects that this one refers to, and that the garbage collector does not report."""
    if kind is dict:
        return list(thing)
    if kind is CodeType:
        tables = thing.co_linetable, thing.co_exceptiontable, thing.co_consts
        names = thing.co_names, thing.co_varnames, thing.co_freevars, thing.co_cellvars
        return *tables, *names, thing.co_filename, thing.co_name, thing.co_qualname
    return ()
