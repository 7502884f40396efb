"""The file that the code lies in, for code that looks for it: a program that reads
itself, starts itself anew, or has its tests found. It is in the workspace, beside the
files of the program's own, and has the code of the execution that looked for it last."""

import os

written = None  # what this process has written


def write(path, code):
    """Writes it, unless there is a file that somebody else has written."""
    global written
    try:
        if written is not None and written == content(path):
            os.remove(path)
        with open(path, "xb") as file:
            file.write(code)
        written = code
    except OSError:
        pass  # it is the program's own, or there is no room


def content(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
