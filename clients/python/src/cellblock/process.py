"""A server of this process's own, as a child of it."""

from __future__ import annotations

import collections
import subprocess
import threading
from typing import IO, Any, Optional

from .executable import Path, find
from .link import Link, log

#: How long a server may take to end its cells.
PATIENCE = 20


class Process:
    """`cellblock serve` on its standard input and output."""

    def __init__(self, executable: Optional[Path], options: dict[str, Any]) -> None:
        command = [find(executable), "serve", *flags(options)]
        self._words: collections.deque[str] = collections.deque(maxlen=20)
        # In a session of its own, so that Ctrl-C at the terminal interrupts code and not the
        # server. It ends when its standard input does, also if this process is killed.
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._child.stdin and self._child.stdout and self._child.stderr
        self._listening = threading.Thread(
            target=self._listen, args=(self._child.stderr,), name="cellblock-stderr", daemon=True
        )
        self._listening.start()
        self.link = Link(self._child.stdout, self._child.stdin, self._last_words)

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._child.pid

    def close(self) -> None:
        """Ends the server and all its cells."""
        self.link.close()
        try:
            self._child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        has_ended = self.link.join(1)
        self._listening.join(1)
        for stream in (self._child.stdout, self._child.stderr):
            # A thread that still reads needs its descriptor.
            if stream is not None and has_ended and not self._listening.is_alive():
                stream.close()

    def _listen(self, stderr: IO[bytes]) -> None:
        for line in stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self._words.append(text)
            log.info("server: %s", text)

    def _last_words(self) -> str:
        self._listening.join(1)
        return "\n".join(self._words)


def flags(options: dict[str, Any]) -> list[str]:
    """The options of cellblock-serve(1): ``memory="2G"`` is ``--memory 2G``, ``warm=["python:2"]``
    is repeated, and ``net_unchecked=True`` has no value.
    """
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        values = value if isinstance(value, (list, tuple)) else [value]
        for one in values:
            if one is True:
                words.append(flag)
            elif one is not None and one is not False:
                words.append(f"{flag}={one}")
    return words
