"""Where the executable is."""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Optional, Union

from .errors import ExecutableNotFound

Path = Union[str, "os.PathLike[str]"]


def find(executable: Optional[Path] = None) -> str:
    """The path of cellblock: what is given, $CELLBLOCK, the one in this package, or the first
    one in $PATH.

    Raises ExecutableNotFound where none of them is a program.
    """
    for source, given in (("executable", executable), ("$CELLBLOCK", os.environ.get("CELLBLOCK"))):
        if given:
            path = os.fspath(given)
            if not _is_program(path):
                raise ExecutableNotFound(f"{source}: {path} is not a program")
            return path
    own = str(pathlib.Path(__file__).with_name("bin") / "cellblock")
    if _is_program(own):
        return own
    found = shutil.which("cellblock")
    if found is None:
        raise ExecutableNotFound(
            "cellblock is not in this package and not in $PATH",
            hint="install a wheel for this platform, or set CELLBLOCK to its path",
        )
    return found


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
