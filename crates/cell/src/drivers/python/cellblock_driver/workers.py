"""A file for the processes of `multiprocessing` that start anew (`spawn`, `forkserver`):
they import what the parent runs by its name."""

import os
import sys

from . import session


def preparation_data(original):
    """`get_preparation_data` of multiprocessing and of joblib's loky."""

    def get_preparation_data(*arguments, **options):
        data = original(*arguments, **options)
        main = data.get("init_main_from_path")
        if main and not os.path.exists(main):
            data["init_main_from_path"] = main_file()
        return data

    return get_preparation_data


def main_file():
    """The file with all that was executed so far, under the name of the code."""
    directory = "%s/.cellblock-%d" % (os.environ.get("TMPDIR", "/tmp"), os.getpid())
    os.makedirs(directory, 0o700, True)
    path = directory + "/" + os.path.basename(sys.modules["__main__"].__file__)
    # Workers that start meanwhile find the one or the other.
    with open(path + ".new", "wb") as file:
        file.write(b"\n".join(session.executed))
    os.replace(path + ".new", path)
    return path
