"""Renews generators of random numbers in a process that has the memory of another one, or its own
of an earlier moment: a copy of a template, and an interpreter with the state of a checkpoint.

The kernel's generator, and the C library's, are new by themselves, as in a child of fork(2).
Libraries that look at the pid notice nothing, since interpreters have the same pid in every cell.
"""

import sys
from os import urandom

SEED = 32  # bytes
LIBRARIES = b"/libcrypto", b"/libsqlite3"
RTLD_LAZY, RTLD_NOLOAD = 1, 4  # of dlopen(3): only a library that is there already


def renew():
    """Does what happens in a child of fork(2): a generator that the code seeded itself goes on, but
    Python's own `random` begins anew."""
    attempt(renew_python)
    attempt(renew_names)
    attempt(renew_openssl)
    attempt(renew_cryptography)
    attempt(renew_libraries)


def renew_preloaded():
    """Renews what modules made before there was any code, and what is meant to be one cell's own."""
    attempt(renew_legacy, "numpy.random")
    attempt(renew_legacy, "torch")
    attempt(renew_key)
    attempt(renew_node)


def attempt(step, *arguments):
    try:
        step(*arguments)
    except Exception:
        pass  # it is not loaded, or the code has put something else in its place


def renew_python():
    sys.modules["random"]._inst.seed()


def renew_names():
    sys.modules["tempfile"]._name_sequence = None  # the next name makes another one


def renew_openssl():
    sys.modules["_ssl"].RAND_add(urandom(SEED), SEED)


def renew_cryptography():
    """The OpenSSL that this package has linked statically."""
    library = sys.modules["cryptography.hazmat.bindings._rust"]._openssl.lib
    library.RAND_add(urandom(SEED), SEED, SEED)


def renew_libraries():
    """OpenSSL and SQLite, whatever has loaded them."""
    with open("/proc/self/maps", "rb") as file:
        lines = [line.split(None, 5) for line in file if any(name in line for name in LIBRARIES)]
    for path in {fields[5].rstrip() for fields in lines}:
        attempt(renew_library, path)


def renew_library(path):
    import ctypes

    library = ctypes.CDLL(path.decode(), RTLD_LAZY | RTLD_NOLOAD)
    if LIBRARIES[0] in path:
        library.RAND_add(urandom(SEED), SEED, ctypes.c_double(SEED))
    else:
        library.sqlite3_randomness(0, None)  # it is seeded before it is used again


def renew_legacy(name):
    sys.modules[name].seed()


def renew_key():
    """That by which processes of `multiprocessing` trust each other."""
    sys.modules["multiprocessing.process"].current_process().authkey = urandom(SEED)


def renew_node():
    """What `uuid1` takes for the machine's address where it has none."""
    sys.modules["uuid"]._node = sys.modules["uuid"]._last_timestamp = None
