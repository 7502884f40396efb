"""Executes the same cells (`cases.py`) in IPython's kernel and in two contexts of cellblock, with IPython
installed and without, and compares what comes out: media types, texts, what is printed, exceptions.

    compare.py --cellblock PATH --python PYTHON [--write FILE] [--verbose] [PACKAGE...]

PYTHON is of an environment with the packages and ipykernel. The contexts are shown its packages, and
find them by PYTHONPATH. Prints a row of a table for each package, or puts the rows into FILE, between
its marks."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

from cases import CASES

# What varies from one process to the next, and how Python itself writes what has no text of its own.
VARYING = [
    (r"\x1b\[[0-9;?]*[A-Za-z]", ""),
    (r"0x[0-9a-f]{6,}", "0x…"),
    (r" object at 0x…", " at 0x…"),
    (r"<class '([\w.]+)'>", r"\1"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "uuid"),
    (r"\b[0-9a-f]{32}\b", "id"),
    (r"[\d.]+it/s|\?it/s|\d\d:\d\d(<\d\d:\d\d)?|0:00:\d\d", "speed"),
    (r"/\S*/site-packages/|/packages/", "packages/"),
    (r"/tmp/tmp\w+/|/workspace/", "./"),
]
OWN = "IPython", "ipykernel", "matplotlib_inline"
MARKS = "<!-- notebooks: rows -->", "<!-- notebooks: end -->"
HEAD = "| package | cells | with IPython installed | without |\n|---|---|---|---|\n"
OPTIONS = "--env PYTHONPATH=/packages --rootfs host --memory 2G --processes 500 --wall 300s".split()
OPTIONS += "--cpu-time none --cpus none".split()


def plain(text):
    """A text without what varies, and without its line breaks: IPython wraps what is long."""
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    return " ".join(text.split())


class Cell:
    """What came out of a cell."""

    def __init__(self):
        self.shown = []  # media types and text of each result that is there at the end
        self.names = []  # of what may be updated
        self.waiting = False  # for the next result, which clears the others
        self.stdout = self.stderr = ""
        self.error = None

    def show(self, bundle, name=None):
        if not bundle:
            return  # nobody sees it
        if self.waiting:
            self.shown, self.names, self.waiting = [], [], False
        self.shown.append(shown(bundle))
        self.names.append(name)

    def update(self, bundle, name):
        self.shown = [shown(bundle) if own == name else old for old, own in zip(self.shown, self.names)]

    def clear(self, wait):
        if wait:
            self.waiting = True
        else:
            self.shown, self.names = [], []


def shown(bundle):
    return sorted(bundle), plain("".join(bundle.get("text/plain", "")))


def in_kernel(python, cases, directory):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernel.py")
    command = [python, script]
    done = subprocess.run(command, input=json.dumps(cases), text=True, stdout=subprocess.PIPE, cwd=directory, check=True)
    for messages in json.loads(done.stdout):
        cell = Cell()
        for kind, content in messages:
            if kind == "stream":
                name = content["name"]
                setattr(cell, name, getattr(cell, name) + content["text"])
            elif kind == "error":
                cell.error = content["ename"]
            elif kind == "clear_output":
                cell.clear(content["wait"])
            else:
                name = content.get("transient", {}).get("display_id")
                (cell.update if kind == "update_display_data" else cell.show)(content["data"], name)
        yield cell


def in_context(cellblock, options, cases):
    def call(*arguments):
        return subprocess.run([cellblock, "context", *arguments], text=True, stdout=subprocess.PIPE).stdout

    context = call("create", "--lang", "python", *options).strip()
    try:
        for code in cases:
            record = json.loads(call("run", context, "--json", "-c", code))["record"]
            cell = Cell()
            cell.stdout, cell.stderr = record["stdout"], record["stderr"]
            cell.error = (record.get("error") or {}).get("name")
            for item in record.get("results", []):
                cell.show(item["formats"])
            yield cell
    finally:
        call("delete", context)


def differences(theirs, ours):
    """In words, what the context shows otherwise than the kernel."""
    if theirs.error != ours.error:
        yield "%s and not %s" % (ours.error or "no exception", theirs.error or "none")
    for name in "stdout", "stderr":
        if plain(getattr(theirs, name)) != plain(getattr(ours, name)):
            yield "another " + name
    for (forms, text), (own, own_text) in zip(theirs.shown, ours.shown):
        missing, more = sorted(set(forms) - set(own)), sorted(set(own) - set(forms))
        if missing:
            yield "without `%s`" % "`, `".join(missing)
        if more:
            yield "also `%s`" % "`, `".join(more)
        if text != own_text:
            yield "another text"
    if len(theirs.shown) != len(ours.shown):
        yield "%d results and not %d" % (len(ours.shown), len(theirs.shown))


def packages_of(python):
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def without_ipython(site, place):
    """A copy of the packages, by hard links, without IPython's."""
    subprocess.run(["cp", "-al", site, place + "/site"], check=True)
    for name in os.listdir(place + "/site"):
        if re.match("(%s)(-|$|\\.)" % "|".join(OWN), name, re.IGNORECASE):
            subprocess.run(["rm", "-r", "%s/site/%s" % (place, name)], check=True)
    return place + "/site"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cellblock", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--write")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("packages", nargs="*")
    asked = parser.parse_args()
    site = packages_of(asked.python)
    # Beside it, as hard links cannot lead anywhere else.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(site)) as place:
        sites = site, without_ipython(site, place)
        rows = [row(package, asked, sites) for package in asked.packages or CASES]
    if asked.write:
        with open(asked.write) as file:
            before, rest = file.read().split(MARKS[0])
        with open(asked.write, "w") as file:
            table = "".join([HEAD, *rows])
            file.write(before + MARKS[0] + "\n" + table + MARKS[1] + rest.split(MARKS[1])[1])


def row(package, asked, sites):
    cells = CASES[package]
    with tempfile.TemporaryDirectory() as directory:
        theirs = list(in_kernel(asked.python, cells, directory))
    columns = []
    for site in sites:
        ours = list(in_context(asked.cellblock, ["--ro", site + ":/packages", *OPTIONS], cells))
        columns.append(compared(cells, theirs, ours, asked.verbose))
    columns[1:] = ["likewise"] * (columns[0] == columns[1]) or columns[1:]
    line = "| %s | %d | %s | %s |\n" % (package, len(cells), *columns)
    print(line, end="", flush=True)
    return line


def compared(cells, theirs, ours, is_verbose):
    found = []
    for number, (code, one, other) in enumerate(zip(cells, theirs, ours), 1):
        differs = list(differences(one, other))
        found += ["%d: %s" % (number, each) for each in differs]
        if is_verbose and differs:
            print("-----", code, vars(one), vars(other), sep="\n")
    return "; ".join(found) or "the same"


if __name__ == "__main__":
    main()
