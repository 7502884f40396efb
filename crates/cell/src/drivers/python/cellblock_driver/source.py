"""The code of one execution."""

import _ast  # not `ast`, which takes milliseconds to import
from _frozen_importlib_external import decode_source

OPTIONS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURE = 0x1FE0000  # the flags of `from __future__ import …`


def is_coroutine(code):
    """Whether `await` occurs at the top level of a code object."""
    return bool(code.co_flags & 0x80)


class Source:
    def __init__(self, code, name):
        self.code, self.name = code, name

    def compile(self):
        """Code objects to evaluate in turn. The last one is an expression's if the
        code ends in one that no semicolon silences, as in Jupyter."""
        tree = compile(self.code, self.name, "exec", OPTIONS | _ast.PyCF_ONLY_AST, True)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, _ast.Expr) or self._semicolon_follows(last):
            return [compile(tree, self.name, "exec", OPTIONS, True)]
        tree.body.pop()
        statements = compile(tree, self.name, "exec", OPTIONS, True)
        future = statements.co_flags & FUTURE
        expression = _ast.Expression(last.value)
        return [statements, compile(expression, self.name, "eval", OPTIONS | future, True)]

    def _semicolon_follows(self, last):
        lines = self.code.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = b"\n".join(lines[last.end_lineno - 1 :])[last.end_col_offset :]
        return rest.lstrip(b" \t\f\\\n").startswith(b";")

    def get_source(self, module=None):
        """The code as text. `linecache` and `inspect` ask the loader of `__main__`."""
        try:
            return decode_source(self.code)
        except (LookupError, SyntaxError, UnicodeError):
            return self.code.decode("utf-8", "replace")

    def remember(self):
        """Lets `linecache` know the code, which is in no file."""
        import linecache

        lines = self.get_source().splitlines(True)
        linecache.cache[self.name] = (len(self.code), None, lines, self.name)
        return lines
