"""Processes of `multiprocessing` and of joblib: those that start anew (`spawn`,
`forkserver`) import what the parent runs by its file's name, and a pool whose workers
cannot start ends with the reason."""

import ast
import os
import sys
import threading
import time

from . import codefile, protocol, session

UNGUARDED = (
    "processes that start by `spawn` or `forkserver` import this code, and would start processes"
    " themselves: put what starts them below `if __name__ == \"__main__\":`, or start them by"
    " `fork` (multiprocessing.get_context(\"fork\"))"
)
WINDOW = 10  # seconds within which the workers of a pool end one after the other


def preparation_data(original):
    """`get_preparation_data` of multiprocessing and of joblib's loky."""

    def get_preparation_data(*arguments, **options):
        data = original(*arguments, **options)
        main = data.get("init_main_from_path")
        if main and main == getattr(sys.modules["__main__"], "__file__", None):
            if is_unguarded():
                raise RuntimeError(UNGUARDED)
            data["init_main_from_path"] = main_file(main)
        return data

    return get_preparation_data


def main_file(path):
    """The file with all that was executed so far, under the name of the code."""
    code = b"\n".join(session.executed)
    if codefile.content(path) == code:
        return path
    directory = "%s/.cellblock-%d" % (os.environ.get("TMPDIR", "/tmp"), os.getpid())
    os.makedirs(directory, 0o700, True)
    path = directory + "/" + os.path.basename(path)
    # Workers that start meanwhile find the one or the other.
    with open(path + ".new", "wb") as file:
        file.write(code)
    os.replace(path + ".new", path)
    return path


def is_unguarded():
    """Whether the statement at the code's top level that is being executed is executed by
    every process that imports the code."""
    frame, source = sys._getframe(), session.current
    while frame and (frame.f_code.co_name, frame.f_code.co_filename) != ("<module>", source.name):
        frame = frame.f_back
    if frame is None:
        return False  # in a thread, or an earlier execution's
    for statement in ast.parse(source.python).body:
        if statement.lineno <= frame.f_lineno <= statement.end_lineno:
            return not isinstance(statement, (ast.If, ast.Try))
    return False


def join_exited_workers(original):
    """`Pool._join_exited_workers`: without an end, a pool starts a worker for each that
    has ended, also where all of them end at once."""

    def join(pool):
        codes = [worker.exitcode for worker in pool if worker.exitcode]
        size = len(pool)
        has_ended = original(pool)
        thread = threading.current_thread()
        now = time.monotonic()
        since, count = getattr(thread, "failures", (now, 0))
        if not codes or now - since > WINDOW:
            since, count = now, 0
        if codes:
            count += len(codes)
            thread.failures = since, count
        if count > 2 * size and not getattr(thread, "has_given_up", False):
            thread.has_given_up = True
            protocol.interrupts.raise_in_main(RuntimeError(reason(codes[-1])))
        return has_ended and not getattr(thread, "has_given_up", False)

    return join


def reason(code):
    how = "with status %d" % code if code > 0 else "by signal %d" % -code
    return (
        "the workers of a pool end as soon as they start, %s: standard error shows why, if they"
        " had a chance to say it" % how
    )
