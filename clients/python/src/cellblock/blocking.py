"""`cellblock.sandbox` for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .errors import Lost, NotFound
from .programs import Command, ExecOptions, Outcome, begin
from .requests import ContextOptions
from .scripts import check, content_of, reading, writing
from .server import Server, creation, default_server
from .streams import wait

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Sandbox:
    """A cell for programs and files. It ends with `close`, or with its ``with`` block.

    Without ``server``, it is in the default server of the process. Options are
    `cellblock.requests.ContextOptions`.
    """

    def __init__(
        self, *, server: Optional[Server] = None, **options: Unpack[ContextOptions]
    ) -> None:
        self._server = server or default_server()
        #: Its name at the server.
        self.id: str = self._server._call("context.create", **creation(None, **options))["context"]

    def exec(self, command: Command, **options: Unpack[ExecOptions]) -> Outcome:
        """Runs a program, or a text by `sh -c`, and waits for it.

        Raises TimedOut, a TimeoutError with the output until then, after ``timeout`` seconds, when
        its process group was killed, and OSError where it cannot be started. KeyboardInterrupt
        meanwhile kills it.
        """
        return wait(begin(self._server._link, self.id, command, **options))

    def read(self, path: str, most: Optional[int] = None) -> bytes:
        """The content of a file. A relative path starts at /workspace. Raises OSError, and
        ValueError where it has more than ``most`` bytes."""
        command, options = reading(path, most)
        return content_of(path, most, self.exec(command, **options))

    def write(self, path: str, content: bytes, *, append: bool = False) -> None:
        """Writes a file, and makes the directories above it. A relative path starts at
        /workspace. Raises OSError."""
        command, options = writing(path, content, append)
        check(path, self.exec(command, **options))

    def close(self) -> None:
        """Ends the cell and all that runs in it, if it has not ended before."""
        try:
            self._server._call("context.delete", context=self.id)
        except (NotFound, Lost):
            pass

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
