"""Runs programs and keeps files for `cellblock.sandbox`, inside a cell.

This file is executed in the interpreter of a context, by itself: it uses nothing of the package
and prints one line of JSON for each request. What it prints comes from the cell and is checked
outside.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import threading
import time
from typing import IO, Any


class Stream:
    """The first bytes of a pipe; the rest is read and dropped, so that no writer waits for room."""

    def __init__(self, pipe: IO[bytes], most: int) -> None:
        self.pipe, self.most = pipe, most
        self.kept, self.is_cut = bytearray(), False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        while True:
            part = os.read(self.pipe.fileno(), 65536)
            room = self.most - len(self.kept)
            self.kept += part[:room]
            self.is_cut = self.is_cut or len(part) > room
            if not part:
                break
        self.pipe.close()


class Program:
    """A program that was started."""

    def __init__(
        self,
        argv: list[str],
        cwd: str,
        env: dict[str, str],
        source: IO[bytes],
        most: int,
        timeout: float | None,
        together: bool,
    ) -> None:
        self.is_timeout = False
        self.child = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, **env},
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if together else subprocess.PIPE,
            start_new_session=True,
        )
        pipes = (self.child.stdout, self.child.stderr)
        self.streams = [Stream(pipe, most) for pipe in pipes if pipe]
        self.timer: threading.Timer | None = None
        if timeout is not None:
            self.timer = threading.Timer(timeout, self.expire)
            self.timer.daemon = True
            self.timer.start()

    def expire(self) -> None:
        if self.child.poll() is None:
            self.is_timeout = True
            self.kill()

    def kill(self) -> None:
        """Ends its descendants, and the processes of its session."""
        for _ in range(3):
            doomed = family(self.child.pid)
            if not doomed:
                break
            for pid in doomed:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.01)

    def has_ended(self, patience: float) -> bool:
        try:
            self.child.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        if self.timer is not None:
            self.timer.cancel()
        # A process that was left behind keeps the pipes open: its later output is not waited for.
        until = time.monotonic() + 0.2
        for stream in self.streams:
            stream.thread.join(max(0, until - time.monotonic()))
        return True

    def result(self) -> dict[str, Any]:
        status = self.child.returncode
        return {
            "status": 128 - status if status < 0 else status,
            "timeout": self.is_timeout,
            "streams": [coded(bytes(stream.kept)) for stream in self.streams],
            "cut": [stream.is_cut for stream in self.streams],
        }


def family(root: int) -> set[int]:
    """The processes that descend from `root` or belong to its session."""
    parents: dict[int, int] = {}
    members: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name) as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z":
            continue
        parents[int(name)] = int(fields[1])
        if int(fields[3]) == root:
            members.add(int(name))
    members.update({root} & parents.keys())
    while True:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        if not more:
            return members
        members |= more


def coded(content: bytes) -> str:
    return base64.b64encode(content).decode()


PROGRAMS: dict[int, Program] = {}


def start(number: int, source: str | None, **options: Any) -> dict[str, Any]:
    with open(source or os.devnull, "rb") as file:
        if source:
            os.unlink(source)
        PROGRAMS[number] = Program(source=file, **options)
    return {}


def wait(number: int, patience: float) -> dict[str, Any]:
    program = PROGRAMS[number]
    if not program.has_ended(patience):
        return {}
    return PROGRAMS.pop(number).result()


def kill(number: int) -> dict[str, Any]:
    program = PROGRAMS.pop(number, None)
    if program is not None:
        program.kill()
        program.has_ended(1)
    return {}


def write(path: str, content: str, append: bool) -> dict[str, Any]:
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "ab" if append else "wb") as file:
        file.write(base64.b64decode(content))
    return {}


def read(path: str, offset: int, most: int) -> dict[str, Any]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        return {"size": size, "content": coded(file.read(most))}


OPERATIONS: dict[str, Any] = {"start": start, "wait": wait, "kill": kill, "write": write, "read": read}


def answer(text: str, room: int, elsewhere: str) -> None:
    """Prints the answer to a request, or the path of a long one."""
    if text.startswith("@"):
        with open(text[1:]) as file:
            request = json.load(file)
        os.unlink(text[1:])
    else:
        request = json.loads(base64.b64decode(text))
    name, parameters = request
    try:
        result = OPERATIONS[name](**parameters)
    except OSError as error:
        shown = error.filename if isinstance(error.filename, str) else None
        result = {"errno": error.errno or 5, "path": shown}
    line = json.dumps(result)
    if len(line) > room:
        with open(elsewhere, "w") as file:
            file.write(line)
        line = json.dumps({"elsewhere": True})
    print(line)
