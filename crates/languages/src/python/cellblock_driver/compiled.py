"""Compiles the modules that come on standard input, as the driver's sources do: before each, a form
feed and a line with its name. The argument is their directory in a cell. Writes a file `compiled`
for `__main__.py` to standard output, in hexadecimal digits: Python's magic number, where each
module's code begins, counted from the end, and the code."""

import sys
from _frozen_importlib_external import MAGIC_NUMBER
from marshal import dumps

places, code = {}, b""
for module in sys.stdin.buffer.read().decode().split("\f")[1:]:
    name, source = module.split("\n", 1)
    code = dumps(compile(source, "%s/%s.py" % (sys.argv[1], name), "exec")) + code
    places[name] = len(code)
print((MAGIC_NUMBER + dumps(places) + code).hex(), end="")
