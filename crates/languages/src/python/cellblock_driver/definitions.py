"""What processes that start anew get of the code: all of it, or what it defines (functions,
classes, imports, constants). The rest is blank, so that lines keep their numbers."""

import ast
import builtins

from .source import decoded

# What makes types and constants when it is called.
MAKERS = (
    "Enum IntEnum NamedTuple NewType ParamSpec TypeVar TypeVarTuple TypedDict frozenset make_dataclass"
    " namedtuple partial"
).split()
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
# Names that only this process has.
OWN = {"display", "get_ipython"}


class Names(ast.NodeVisitor):
    """The names that a statement uses and makes when it is executed itself, and what it calls."""

    def __init__(self, *nodes):
        self.used, self.made, self.called = set(), set(), set()
        self.awaits = False
        for node in nodes:
            self.visit(node)

    def visit_Name(self, node):
        (self.used if isinstance(node.ctx, ast.Load) else self.made).add(node.id)

    def visit_FunctionDef(self, node):
        self.made.add(node.name)
        returns = [node.returns] if node.returns else []
        for part in (*node.decorator_list, *returns, node.args):
            self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self.visit(node.args)

    def visit_ClassDef(self, node):
        self.made.add(node.name)
        self.generic_visit(node)

    def visit_Import(self, node):
        for alias in node.names:
            self.made.add(alias.asname or alias.name.partition(".")[0])

    visit_ImportFrom = visit_Import

    def visit_Call(self, node):
        function = node.func
        self.called.add(getattr(function, "attr", None) or getattr(function, "id", None))
        self.generic_visit(node)

    def visit_Await(self, node):
        self.awaits = True

    visit_AsyncFor = visit_AsyncWith = visit_Await


def is_guard(statement):
    """Whether it is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and "__name__" in Names(statement.test).used


def is_guarded(code, line):
    """Whether what is executed in this line is so in this process alone; without a line,
    whether there is such a place."""
    return any(
        is_guard(node) and (line is None or node.lineno <= line <= node.end_lineno)
        for node in ast.walk(ast.parse(decoded(code)))
    )


def joined(codes, reduced):
    """All codes as one file; of those at the places `reduced` only what they define."""
    if len(codes) == 1 and not reduced and b"coding" in codes[0]:
        return codes[0]  # which may have another encoding
    known = set(dir(builtins)) - OWN | {"__file__"}
    future, pieces = [], []
    for place, code in enumerate(codes):
        pieces.append(piece(decoded(code), place in reduced, known, future))
    head = "from __future__ import %s\n" % ", ".join(sorted(set(future)))
    whole = (head if future else "").encode() + b"\n".join(pieces)
    # It is UTF-8, whatever the comment of one of them said.
    lines = whole.split(b"\n", 2)
    return b"\n".join([line.replace(b"coding", b"c0ding") for line in lines[:2]] + lines[2:])


def piece(code, is_reduced, known, future):
    """One of them. `known` are names that are there, to which its own are added; `future`
    likewise, since such imports have to come first."""
    lines = code.encode("utf-8", "surrogatepass").split(b"\n")
    for statement in ast.parse(code).body:
        names = Names(statement)
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            future += [alias.name for alias in statement.names]
            blank(lines, statement)
        elif names.awaits or is_value(statement) or (is_reduced and not defines(statement, known)):
            blank(lines, statement)
        elif not is_guard(statement):
            known |= names.made
    return b"\n".join(lines)


def is_value(statement):
    """Whether it does nothing but have a value, as the last line of a notebook's cell."""
    is_text = isinstance(getattr(statement, "value", None), ast.Constant)
    return isinstance(statement, ast.Expr) and not is_text and not Names(statement).called


def defines(statement, known):
    """Whether a statement defines something, by names that are known."""
    kind = type(statement)
    if kind in (ast.Import, ast.ImportFrom, ast.Pass) or is_guard(statement):
        return True
    if kind is ast.Expr:
        return isinstance(statement.value, ast.Constant)  # a text about the code
    names = Names(statement)
    if not names.used - names.made <= known and "*" not in known:
        return False
    if kind in FUNCTIONS or kind is ast.ClassDef:
        return True
    if kind in (ast.Assign, ast.AnnAssign):
        targets = statement.targets if kind is ast.Assign else [statement.target]
        return names.called.issubset(MAKERS) and all(type(target) is ast.Name for target in targets)
    if kind in (ast.If, ast.Try):
        parts = list(statement.body + statement.orelse + getattr(statement, "finalbody", []))
        for handler in getattr(statement, "handlers", ()):
            parts += handler.body
        has_calls = kind is ast.If and Names(statement.test).called
        return not has_calls and all(defines(part, known | names.made) for part in parts)
    return False


def blank(lines, statement):
    """Puts a statement that does nothing in the place of this one."""
    first = min(node.lineno for node in (statement, *getattr(statement, "decorator_list", ())))
    last = statement.end_lineno
    begin = statement.col_offset if first == statement.lineno else 0
    for number in range(first, last + 1):
        line = lines[number - 1]
        start = begin if number == first else 0
        stop = statement.end_col_offset if number == last else len(line)
        mark = b"0" if number == first else b""
        lines[number - 1] = line[:start] + mark + b" " * (stop - start - len(mark)) + line[stop:]
