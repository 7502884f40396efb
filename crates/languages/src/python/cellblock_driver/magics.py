"""Notebook lines (`!cmd`, `%magic`, `%%magic`, `x = !cmd`) as Python that calls
`get_ipython()`. Only code that does not parse as Python gets here."""

import re

from .source import decoded

# What begins or ends a string, a bracket or a comment.
MARK = re.compile(r"""#.*|'{3}|"{3}|['"]|[()\[\]{}]""")
NAMES = r"[^\W\d][\w.]*(?:\s*,\s*[^\W\d][\w.]*)*"
ASSIGNED = re.compile(r"(\s*)(" + NAMES + r")\s*=\s*([!%])(.*)", re.S)
COMMAND = re.compile(r"(\s*)(!!|!|%)(.*)", re.S)


def transform(code):
    """The code with its notebook lines replaced, each by as many lines."""
    lines = decoded(code).splitlines(True)
    for index, line in enumerate(lines):
        if line.startswith("%%"):
            name, _, rest = line[2:].strip().partition(" ")
            cell = "".join(lines[index + 1 :])
            cell += "\n" * (not cell.endswith("\n"))
            call = "run_cell_magic(%r, %r, %r)" % (name, rest.strip(), cell)
            return "".join(lines[:index]) + "get_ipython()." + call + "\n"
        if line.strip() and not line.lstrip().startswith("#"):
            break
    return "".join(statements(lines))


def transform_by(code, cleanup, post):
    """The code as Python, with functions of the code's own before and after that; each takes and
    gives lines."""
    lines = decoded(code).splitlines(True)
    for function in cleanup:
        lines = function(lines)
    lines = transform("".join(lines).encode("utf-8", "surrogatepass")).splitlines(True)
    for function in post:
        lines = function(lines)
    return "".join(lines).encode("utf-8", "surrogatepass")


def statements(lines):
    """The lines, with those replaced that begin a statement as Python cannot."""
    lines = iter(lines)
    scanner = Scanner()
    for line in lines:
        found = scanner.at_start and (COMMAND.match(line) or ASSIGNED.match(line))
        if not found:
            scanner.feed(line)
            yield line
            continue
        *before, kind, text = found.groups()
        count = 1
        while text.endswith(("\\\n", "\\\r\n")):
            text = text.rstrip("\\\r\n") + next(lines, "")
            count += 1
        names = before[1:]
        prefix = before[0] + (names[0] + " = " if names else "")
        yield prefix + call(kind, text.strip(), bool(names)) + "\n" * count


def call(kind, text, is_assigned):
    if kind == "%":
        name, _, rest = text.partition(" ")
        return "get_ipython().run_line_magic(%r, %r)" % (name, rest.strip())
    function = "getoutput" if is_assigned or kind == "!!" else "system"
    return "get_ipython().%s(%r)" % (function, text)


class Scanner:
    """Follows strings, brackets and continued lines, as far as it takes to know where
    statements begin."""

    def __init__(self):
        self.depth = 0
        self.quote = ""  # of the string that is open
        self.is_continued = False

    @property
    def at_start(self):
        return not (self.depth or self.quote or self.is_continued)

    def feed(self, line):
        at = 0
        while at < len(line):
            if self.quote:
                at = self.end_of_string(line, at)
                continue
            mark = MARK.search(line, at)
            if not mark:
                break
            text, at = mark.group(), mark.end()
            if text in "([{":
                self.depth += 1
            elif text in ")]}":
                self.depth = max(0, self.depth - 1)
            elif text[0] != "#":
                self.quote = text
        if len(self.quote) == 1 and not line.endswith("\\\n"):
            self.quote = ""  # it does not parse
        self.is_continued = not self.quote and line.rstrip("\r\n").endswith("\\")

    def end_of_string(self, line, at):
        while at < len(line):
            if line[at] == "\\":
                at += 2
            elif line.startswith(self.quote, at):
                at += len(self.quote)
                self.quote = ""
                return at
            else:
                at += 1
        return at
