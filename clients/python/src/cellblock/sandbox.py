"""A cell for programs and files anywhere in it: a sandbox, in the words of agents.

The programs of one sandbox run beside each other in the same cell, and see each other's files
and processes. Nothing else runs in it: no interpreter of a language is needed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Optional

from . import aio
from .errors import Lost, NotFound
from .programs import Command, ExecOptions, Outcome, begin
from .requests import ContextOptions
from .scripts import check, content_of, reading, writing
from .server import creation

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncSandbox:
    """`cellblock.Sandbox` for event loops, made by `open`. Cancelling a task kills its program."""

    def __init__(self, server: aio.Server, id: str) -> None:
        self._server = server
        #: Its name at the server.
        self.id = id

    @classmethod
    async def open(cls, server: aio.Server, **options: Unpack[ContextOptions]) -> AsyncSandbox:
        """Opens a sandbox of this server."""
        answer = await server._call("context.create", **creation(None, **options))
        return cls(server, answer["context"])

    async def exec(self, command: Command, **options: Unpack[ExecOptions]) -> Outcome:
        """Runs a program, or a text by `sh -c`: see `cellblock.Sandbox.exec`."""
        return await asyncio.wrap_future(begin(self._server._link, self.id, command, **options))

    async def read(self, path: str, most: Optional[int] = None) -> bytes:
        """The content of a file: see `cellblock.Sandbox.read`."""
        command, options = reading(path, most)
        return content_of(path, most, await self.exec(command, **options))

    async def write(self, path: str, content: bytes, *, append: bool = False) -> None:
        """Writes a file: see `cellblock.Sandbox.write`."""
        command, options = writing(path, content, append)
        check(path, await self.exec(command, **options))

    async def close(self) -> None:
        """Ends the cell and all that runs in it, if it has not ended before."""
        try:
            await self._server._call("context.delete", context=self.id)
        except (NotFound, Lost):
            pass

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
