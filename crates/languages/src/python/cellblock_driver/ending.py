"""The end of the process, as short as it may be.

Python's own end takes every module and object apart. That takes longer than most
programs, and a fork copies nearly all the memory that it shares with its template. Where
nobody could see a difference, the process exits after what comes before that: it waits
for threads, calls what `atexit` has, and flushes the streams. A difference would be
whatever acts when it is freed: a file with buffered text, a suspended generator, a method
`__del__`, a callback of a weak reference, an object of a package that is not known here.
All of them are looked for among the objects that came after the driver's own start.
"""

import _thread
import atexit
import gc
import sys
from _weakref import ref
from os import _exit, getpid

MOST = 50_000  # objects, and new modules, that are looked at
# Compiled modules whose objects do no more than free memory when they go, by their names
# or those of their packages.
HARMLESS = frozenset(
    "PIL contourpy kiwisolver matplotlib numpy pandas pyarrow.lib pyarrow._compute scipy"
    " sklearn yaml"
    " _bisect _blake2 _bz2 _contextvars _csv _ctypes _cyutility _datetime _decimal"
    " _elementtree _hashlib _heapq _json _lzma _md5 _opcode _pickle _posixsubprocess _queue"
    " _random _sha1 _sha2 _sha256 _sha3 _sha512 _socket _statistics _struct _typing _uuid"
    " _zoneinfo array binascii cmath fcntl grp math mmap pyexpat resource select unicodedata"
    " zlib".split()
)
# Those that do more, also where they are a part of Python's own program.
ACTIVE = frozenset("_curses _dbm _gdbm _sqlite3 readline".split())

# pyarrow, of which pandas loads a part, has streams, too. They write what they hold when they are
# freed, and the garbage collector does not see them. They exist only if the code contains this name
# or executes other code, which may contain it.
HOLDER = "pyarrow"
USES = (
    b"pyarrow",
    b"exec",
    b"runpy",
    b"_magic(",
    b"import_module",
    b"__import__",
    b"run_cell",
)
INSTALLED = sys.prefix + "/"

contents = type.__dict__["__dict__"].__get__  # a class may have another `__dict__`
ancestors = type.__dict__["__mro__"].__get__
callback = ref.__dict__["__callback__"].__get__
Builtin = type(len)
last_module = None  # the last one of those that were there before any code
is_known = False  # whether these are harmless
await_end = None  # what a copy of a template does before it exits


def survey():
    """Looks at the modules that are there before any code."""
    global last_module, is_known
    is_known = all(map(is_harmless, list(sys.modules)))
    last_module = next(reversed(sys.modules))


class Ending:
    def __init__(self, executed):
        self.executed = executed  # the code of all executions
        self.owner = getpid()
        # No references: Python's own end flushes a stream that is freed.
        self.streams = id(sys.stdout), id(sys.stderr)
        self.first = None
        if last_module is None:
            survey()

    def begin(self):
        """Objects that are made from now on are a program's."""
        self.first = [self]

    def hasten(self, status):
        """Ends the process with this status, if that can be done now."""
        try:
            if not self.is_plain():
                return
            threading = sys.modules.get("threading")
            if threading:
                threading._shutdown()
            has_callbacks = atexit._ncallbacks() > 0
            atexit._run_exitfuncs()
            for stream in sys.stdout, sys.stderr:
                if stream is not None:
                    stream.flush()
            if not has_callbacks or self.is_plain():
                if await_end:
                    await_end(status)
                _exit(status)
        except BaseException:
            pass  # Python's own end reports it

    def is_plain(self):
        """Whether nobody could see a difference."""
        if not is_known or getpid() != self.owner or _thread._count() > 0:
            return False
        if (id(sys.stdout), id(sys.stderr)) != self.streams:
            return False
        if HOLDER in sys.modules and names_holder(self.executed):
            return False
        return has_harmless_modules() and has_passive_objects(self.first)


def has_harmless_modules():
    for count, name in enumerate(reversed(sys.modules)):
        if name == last_module:
            return True
        if count == MOST or not is_harmless(name):
            return False
    return False


def is_harmless(name):
    """Whether a module is not compiled, or known."""
    if name in ACTIVE:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    is_compiled = isinstance(file, str) and file.endswith(".so")
    return not is_compiled or name in HARMLESS or name.partition(".")[0] in HARMLESS


def names_holder(executed):
    """Whether the program has code that may use the package: its own, or a module that is
    not installed with Python."""
    if any(word in code for code in executed for word in USES):
        return True
    for name in reversed(sys.modules):
        if name == last_module:
            return False
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str) and not file.startswith(INSTALLED):
            return True
    return True


def has_passive_objects(first):
    things = gc.get_objects()
    # A program that has called gc.freeze() hides what it has made so far.
    is_whole = False
    if len(things) > MOST:
        return False
    passive = {}
    for thing in things:
        is_whole |= thing is first
        kind = type(thing)
        is_passive = passive.get(kind)
        if is_passive is None:
            is_passive = passive[kind] = is_passive_class(kind)
        if not is_passive:
            return False
        if issubclass(kind, type) and not is_passive_class(thing):
            return False
        if issubclass(kind, ref) and acts(callback(thing)):
            return False
    return is_whole


def is_passive_class(kind):
    """Whether nothing happens when its objects go. A library that is loaded by ctypes may
    have functions for the end of the process."""
    for ancestor in ancestors(kind):
        attributes = contents(ancestor)
        if "__del__" in attributes or attributes.get("__module__") == "ctypes":
            return False
    return True


def acts(function):
    """Whether a weak reference's callback does more than Python's own, which keep
    collections of weak references in order."""
    if function is None or type(function) is Builtin:
        return False
    return getattr(function, "__module__", None) not in ("weakref", "_weakrefset")
