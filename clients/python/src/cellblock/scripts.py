"""Shell scripts with which a sandbox reads and writes files in its cell. They have the rights of
any program there. Paths may be anywhere; a relative one starts at /workspace."""

from __future__ import annotations

import errno
import os
from typing import Optional

from .programs import Command, ExecOptions, Outcome

#: An error that these scripts find themselves ends them with this status plus an errno. Other
#: errors of a shell and its commands have small statuses, and those of signals begin at 129.
ERRORS = 90
READ = f"""
[ -d "$1" ] && exit {ERRORS + errno.EISDIR}
[ -e "$1" ] || exit {ERRORS + errno.ENOENT}
[ -r "$1" ] || exit {ERRORS + errno.EACCES}
[ "$2" ] && exec head -c "$2" "$1"
exec cat "$1"
"""
WRITE = f"""
above=${{1%/*}}/
[ -d "$1" ] && exit {ERRORS + errno.EISDIR}
mkdir -p "$above" 2>/dev/null || [ ! -e "${{1%/*}}" ] || exit {ERRORS + errno.ENOTDIR}
[ -w "$1" ] || {{ [ ! -e "$1" ] && [ -w "$above" ]; }} || exit {ERRORS + errno.EACCES}
[ "$2" ] && exec cat >>"$1"
exec cat >"$1"
"""
FOUND = (errno.EISDIR, errno.ENOENT, errno.EACCES, errno.ENOTDIR)
#: More bytes than any file has.
ALL = 1 << 62


def reading(path: str, most: Optional[int]) -> tuple[Command, ExecOptions]:
    """The command that prints a file, up to one byte more than ``most``."""
    # The additional byte shows that the file is too long.
    limit = "" if most is None else str(most + 1)
    output = ALL if most is None else most + 1
    return ["sh", "-c", READ, "sh", _absolute(path), limit], {"output": output}


def writing(path: str, content: bytes, append: bool) -> tuple[Command, ExecOptions]:
    """The command that writes its input to a file."""
    words = ["sh", "-c", WRITE, "sh", _absolute(path), "append" if append else ""]
    return words, {"input": content}


def content_of(path: str, most: Optional[int], outcome: Outcome) -> bytes:
    """The content that was read. Raises OSError and ValueError."""
    check(path, outcome)
    if most is not None and len(outcome.stdout) > most:
        raise ValueError(f"{path} has more than {most} bytes")
    return outcome.stdout


def check(path: str, outcome: Outcome) -> None:
    """Raises OSError where a file was not read or written."""
    found = outcome.status - ERRORS
    if found in FOUND:
        raise OSError(found, os.strerror(found), path)
    if outcome.status != 0:
        reason = outcome.stderr.decode(errors="replace").strip()
        raise OSError(errno.EIO, reason or f"a program ended with status {outcome.status}", path)


def _absolute(path: str) -> str:
    return os.path.join("/workspace", path)
