"""Compiles Python modules ahead of time, to the same bytes each time.

python3 bytecode.py LIST OUT: LIST has the path of a module on each line. Modules
that are compiled already are skipped. So are those that this version of Python
cannot parse: importing them reports the error. Each process gets the same modules
each time, since what it compiled before can change the bytes that it writes.
"""

import _imp
import importlib.util
import os
import py_compile
import sys

WORKERS = 4


def is_current(source, compiled):
    try:
        with open(compiled, "rb") as file:
            header = file.read(16)
        with open(source, "rb") as file:
            digest = _imp.source_hash(importlib.util._RAW_MAGIC_NUMBER, file.read())
    except OSError:
        return False
    unchecked = (1).to_bytes(4, "little")
    return header == importlib.util.MAGIC_NUMBER + unchecked + digest


def work(sources, out):
    for source in sources:
        compiled = importlib.util.cache_from_source(source)
        if is_current(source, compiled):
            continue
        try:
            py_compile.compile(
                source,
                out + compiled,
                source,
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        except (py_compile.PyCompileError, SyntaxError, ValueError, RecursionError):
            pass


def main(listed, out):
    with open(listed, encoding="utf-8", errors="surrogateescape") as file:
        sources = file.read().splitlines()
    children = []
    for number in range(WORKERS):
        child = os.fork()
        if child == 0:
            try:
                work(sources[number::WORKERS], out)
            except BaseException as error:
                print("error:", error, file=sys.stderr)
                os._exit(1)
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    sys.exit(1 if failed else 0)


main(*sys.argv[1:])
