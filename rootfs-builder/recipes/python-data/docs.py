"""Shortens the descriptions in packages that consist of them to a large part: plotly has a
generated module for each option of each plot, altair a class for each of Vega-Lite, and
polars, networkx and sympy have examples for each function. The working directory goes
into the tree.

The first line of a description stays, except in
plotly's modules, whose error messages then list the names of the options alone.
"""

import ast
import pathlib

PACKAGES = pathlib.Path("/usr/local/lib").glob("python3.*/dist-packages")
KINDS = (ast.Module, ast.ClassDef, ast.FunctionDef)
OLD = """        raise NotImplementedError

    @property
    def _props(self):
"""
NEW = """        return "\\n".join(f"        {name}" for name in sorted(self._valid_props))

    @property
    def _props(self):
"""


def description(node):
    first = node.body[0] if isinstance(node, KINDS) and node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first
    return None


def short(source, keeps_first_line):
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if not keeps_first_line and isinstance(node, ast.FunctionDef) and node.name == "_prop_descriptions":
            first, last, new = node.decorator_list[0].lineno, node.end_lineno, None
        elif found := description(node):
            first, last = found.lineno, found.end_lineno
            words = found.value.value.strip().split("\n")[0] if keeps_first_line else ""
            keeps = keeps_first_line or len(node.body) == 1
            new = " " * found.col_offset + repr(words) if keeps else None
        else:
            continue
        if lines[first - 1] is not None and lines[first - 1].strip().startswith(("'", '"', "r", "@")):
            lines[first - 1 : last] = [new] + [None] * (last - first)
    return "\n".join(line for line in lines if line is not None)


def write(path, text):
    ast.parse(text)
    new = pathlib.Path(f".{path}")
    new.parent.mkdir(parents=True, exist_ok=True)
    new.write_text(text)


for packages in PACKAGES:
    base = packages / "plotly/basedatatypes.py"
    source = base.read_text()
    if source.count(OLD) == 1:
        write(base, source.replace(OLD, NEW))
        for path in sorted(packages.glob("plotly/graph_objs/**/*.py")):
            write(path, short(path.read_text(), False))
    whole = [f"{package}/**/*.py" for package in ("polars", "networkx", "sympy")]
    for pattern in ["altair/vegalite/*/schema/*.py", *whole]:
        for path in sorted(packages.glob(pattern)):
            write(path, short(path.read_text(), True))
