"""Processes of `multiprocessing` and of joblib: those that start anew (`spawn`,
`forkserver`) import what the parent runs by its file's name, and a pool whose workers
cannot start ends with the reason."""

import os
import sys
import threading
import time

from . import codefile, definitions, protocol, session

WINDOW = 10  # seconds within which the workers of a pool end one after the other


unguarded = set()  # places in `session.executed` of code that starts processes without a guard


def preparation_data(original):
    """`get_preparation_data` of multiprocessing and of joblib's loky."""

    def get_preparation_data(*arguments, **options):
        data = original(*arguments, **options)
        main = data.get("init_main_from_path")
        if main and main == getattr(sys.modules["__main__"], "__file__", None):
            note()
            data["init_main_from_path"] = main_file(main)
        return data

    return get_preparation_data


def note():
    """Notes that the code starts a process, and whether it does so below its guard."""
    source = session.current
    if source.is_parsed and not definitions.is_guarded(source.python, line()):
        unguarded.add(len(session.executed) - 1)


def line():
    """The line of the code's top level that the main thread executes, if it executes any."""
    frame = sys._current_frames().get(protocol.interrupts.thread)
    while frame and (frame.f_code.co_name, frame.f_code.co_filename) != ("<module>", session.current.name):
        frame = frame.f_back
    return frame and frame.f_lineno


def main_file(path):
    """A file with what was executed so far, under the name of the code. Of code that starts
    processes without `if __name__ == "__main__":` it has the definitions, as each process would
    start others otherwise."""
    code = definitions.joined(session.executed, unguarded)
    if codefile.content(path) == code:
        return path
    directory = "%s/.cellblock-%d" % (os.environ.get("TMPDIR", "/tmp"), os.getpid())
    path = directory + "/" + os.path.basename(path)
    if codefile.content(path) == code:
        return path
    os.makedirs(directory, 0o700, True)
    # Workers that start meanwhile find the one or the other.
    with open(path + ".new", "wb") as file:
        file.write(code)
    os.replace(path + ".new", path)
    return path


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
