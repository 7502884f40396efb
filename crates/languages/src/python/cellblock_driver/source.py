"""The code of one execution."""

import sys
from _frozen_importlib_external import decode_source

# The options of compile(); importing them from `ast` takes milliseconds.
ONLY_AST = 0x400
TOP_LEVEL_AWAIT = 0x2000
FUTURE = 0x1FE0000  # the flags of `from __future__ import …`


# Code that `linecache` does not know yet, by its name in tracebacks.
unshown = {}
# What the code has its shell do with the code of later executions: functions of lines, before
# and after notebook lines become Python, and transformers of syntax trees.
cleanup_transformers, line_transformers, ast_transformers = [], [], []


def is_coroutine(code):
    """Whether `await` occurs at the top level of a code object."""
    return bool(code.co_flags & 0x80)


class Source:
    future = 0  # what earlier executions have imported of `__future__`

    def __init__(self, code, name, directory=""):
        self.code, self.name, self.directory = code, name, directory
        self.python = code  # without what only notebooks have
        self.is_parsed = False

    def compile(self):
        """Code objects to evaluate in turn. The last one is an expression's if the
        code ends in one that no semicolon silences, as in Jupyter."""
        is_indented = False
        if cleanup_transformers or line_transformers:
            from . import magics

            self.python = magics.transform_by(self.code, cleanup_transformers, line_transformers)
        try:
            codes = self._compile()
        except SyntaxError as error:
            is_indented = isinstance(error, IndentationError) and self._dedent()
            if not is_indented and not any(mark in self.code for mark in (b"!", b"%", b"?")):
                raise
            codes = None
        if is_indented:
            return self.compile()
        if codes is None:
            from . import magics

            self.python = magics.transform(self.code).encode("utf-8", "surrogatepass")
            codes = self._compile()
        self.is_parsed = True
        return codes

    def _dedent(self):
        """Removes the first line's indentation from all lines, as notebooks do; returns
        whether there was any."""
        lines = self.code.splitlines(True)
        first = next((line for line in lines if line.strip()), b"")
        indent = first[: len(first) - len(first.lstrip(b" \t"))]
        lines = [line[len(indent) :] if line.startswith(indent) else line for line in lines]
        self.code = self.python = b"".join(lines)
        return bool(indent)

    def _compile(self):
        options = TOP_LEVEL_AWAIT | Source.future
        tree = compile(self.python, self.name, "exec", options | ONLY_AST, True)
        for transformer in ast_transformers:
            tree = transformer.visit(tree)
        last = tree.body[-1] if tree.body else None
        is_shown = type(last).__name__ == "Expr" and not self._semicolon_follows(last)
        if is_shown:
            tree.body.pop()
        statements = compile(tree, self.name, "exec", options, True)
        Source.future |= statements.co_flags & FUTURE
        if not is_shown:
            return [statements]
        expression = compile("None", self.name, "eval", ONLY_AST)
        expression.body = last.value
        options |= Source.future
        return [statements, compile(expression, self.name, "eval", options, True)]

    def _semicolon_follows(self, last):
        lines = self.python.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = b"\n".join(lines[last.end_lineno - 1 :])[last.end_col_offset :]
        return rest.lstrip(b" \t\f\\\n").startswith(b";")

    def get_source(self, module=None):
        """The code as text. `linecache` and `inspect` ask the loader of `__main__`."""
        return decoded(self.code)

    def lines(self):
        return decoded(self.code).splitlines(True)

    def remember(self):
        """Lets `linecache` know the code, which is in no file. That module takes a
        megabyte with what it imports, so the code waits until something imports it."""
        unshown[self.name] = self
        show(sys.modules.get("linecache"))


def show(linecache):
    """Puts the code that waits into the cache of that module, if it has one."""
    cache = getattr(linecache, "cache", None)
    while unshown and type(cache) is dict:
        name, source = unshown.popitem()
        path = source.directory + "/" + name  # where some packages look for it
        cache[name] = cache[path] = len(source.code), None, source.lines(), name


def decoded(code):
    """Code as text."""
    try:
        if not any(b"coding" in line for line in code.split(b"\n", 2)[:2]):
            # Without the modules that the other way imports.
            return code.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        return decode_source(code)
    except (LookupError, SyntaxError, UnicodeError):
        return code.decode("utf-8", "replace")
