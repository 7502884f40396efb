"""Servers, contexts and runs for event loops: the methods of `cellblock.Server` and
`cellblock.Context` as coroutines. Cancelling a task cancels its call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from .errors import Disconnected, NotFound
from .executable import Path
from .files import PART, content_of, entries_of, write_params
from .link import Content, Json, Link, given
from .process import Process
from .programs import Command, ExecOptions, Outcome, begin
from .requests import ContextOptions, Duration, ExecutionOptions, RunOptions, request
from .results import Checkpoint, Entry, Execution, File, Run
from .server import connect, creation, execution, first_failure, number
from .streams import AsyncStream, AsyncWatch

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Context", "Files", "Server"]


class Server:
    """A server that runs code: a child of this process, which ends with it.

    Options are those of cellblock-serve(1). Use it by ``async with``, or `start` and `close`.
    """

    def __init__(self, *, executable: Optional[Path] = None, **options: Any) -> None:
        self._executable, self._options = executable, options
        self._socket: Optional[Path] = None
        self._process: Optional[Process] = None
        self._live: Optional[Link] = None

    @classmethod
    def connect(cls, path: Path) -> Server:
        """A server that listens at this Unix socket."""
        server = cls()
        server._socket = path
        return server

    async def start(self) -> Server:
        """Starts the server, or connects to it."""
        if self._socket is not None:
            self._live = await asyncio.to_thread(connect, self._socket)
        elif self._process is None:
            self._process = await asyncio.to_thread(Process, self._executable, self._options)
            self._live = self._process.link
        return self

    @property
    def _link(self) -> Link:
        if self._live is None:
            raise Disconnected("the server has not been started", hint="use `async with`")
        return self._live

    async def run(
        self, code: Content, language: str = "python", **options: Unpack[RunOptions]
    ) -> Run:
        """Runs code in a cell of its own."""
        asked = request(code=code, language=language, **options)
        return Run(await self._call("run", request=asked))

    async def exec(self, argv: Sequence[Content], **options: Unpack[RunOptions]) -> Run:
        """Runs a program in a cell of its own."""
        return Run(await self._call("run", request=request(argv=argv, **options)))

    def stream(
        self, code: Content, language: str = "python", **options: Unpack[RunOptions]
    ) -> AsyncStream[Run]:
        """Runs code in a cell of its own, with the events meanwhile."""
        asked = request(code=code, language=language, **options)
        params = {"request": asked, "events": True}
        return AsyncStream(lambda on_event: self._link.call("run", params, on_event), Run)

    async def context(
        self, language: str = "python", **options: Unpack[ContextOptions]
    ) -> Context:
        """Creates a context: see `cellblock.Context`."""
        answer = await self._call("context.create", **creation(language, **options))
        return Context(self, answer["context"], language, "kept")

    async def find(self, id: str) -> Context:
        """The context of this name, such as one with `keep` that another client made."""
        found = await self._call("context.describe", context=id)
        return Context(self, id, found["language"], found.get("state", "kept"))

    async def contexts(self, label: Optional[str] = None) -> list[Json]:
        """The contexts that this client may use."""
        return list((await self._call("context.list", label=label))["contexts"])

    async def status(self) -> Json:
        """The server's status."""
        return await self._call("status")

    async def metrics(self) -> str:
        """Its counters in Prometheus's format."""
        return str((await self._call("metrics"))["text"])

    async def close(self) -> None:
        """Ends the server, or the connection to it, and everything that belongs to it."""
        if self._process is not None:
            await asyncio.to_thread(self._process.close)
        elif self._live is not None:
            await asyncio.to_thread(self._live.close)

    async def _call(self, method: str, **params: Any) -> Json:
        return await asyncio.wrap_future(self._link.call(method, given(**params)))

    async def __aenter__(self) -> Server:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Context:
    """An interpreter that keeps its variables and files between executions: made by
    `Server.context`."""

    def __init__(self, server: Server, id: str, language: str, state: str) -> None:
        self._server = server
        #: Its name.
        self.id = id
        self.language = language
        #: What became of the variables, as of the last answer.
        self.state = state
        self.files = Files(self)

    async def run(self, code: Content, **options: Unpack[ExecutionOptions]) -> Execution:
        """Executes code after the earlier calls of the context. Cancelling it interrupts
        the code."""
        return self._noted(Execution(await self._call("context.run", **execution(code, **options))))

    def stream(
        self, code: Content, **options: Unpack[ExecutionOptions]
    ) -> AsyncStream[Execution]:
        """Executes code, with the events meanwhile."""
        params = {"context": self.id, "events": True, **execution(code, **options)}
        return AsyncStream(
            lambda on_event: self._server._link.call("context.run", params, on_event),
            lambda answer: self._noted(Execution(answer)),
        )

    async def exec(self, command: Command, **options: Unpack[ExecOptions]) -> Outcome:
        """Runs a program in the context's cell, beside its interpreter: see
        `cellblock.Context.exec`. Cancelling it kills the program."""
        return await asyncio.wrap_future(begin(self._server._link, self.id, command, **options))

    async def interrupt(self, *, grace: Optional[Duration] = None) -> bool:
        """Interrupts the running code, as Ctrl-C does. Returns whether any was running."""
        return bool((await self._call("context.interrupt", grace=grace))["interrupted"])

    async def restart(self) -> None:
        """Begins with a new interpreter in the same workspace."""
        self.state = (await self._call("context.restart"))["state"]

    async def describe(self) -> Json:
        """Its variables, and what it uses."""
        return await self._call("context.describe")

    async def checkpoint(self) -> Checkpoint:
        """Keeps its state and workspace, to go back to."""
        return Checkpoint(await self._call("context.checkpoint"))

    async def rewind(self, to: Union[Checkpoint, int, None] = None) -> None:
        """Goes back to a checkpoint, or to the last one."""
        self.state = (await self._call("context.rewind", checkpoint=number(to)))["state"]

    async def diff(self, since: Union[Checkpoint, int]) -> list[File]:
        """The files that changed since a checkpoint."""
        answer = await self._call("context.diff", **{"with": number(since)})
        return [File(item) for item in answer["files"]]

    async def forget(self, checkpoint: Union[Checkpoint, int]) -> None:
        """Removes a checkpoint."""
        await self._call("context.forget", checkpoint=number(checkpoint))

    async def fork(self, n: int = 1) -> list[Context]:
        """Makes contexts that go on from this one's state. Raises the error of the first
        branch that could not be made, and then the others do not exist."""
        branches = (await self._call("context.fork", n=n))["branches"]
        made = [
            Context(self._server, one["context"], self.language, one["state"])
            for one in branches
            if "context" in one
        ]
        failure = first_failure(branches)
        if failure is not None:
            for context in made:
                await context.delete()
            raise failure
        return made

    async def suspend(self) -> None:
        """Ends its processes until it is used again; its state is kept on the disk."""
        await self._call("context.suspend")

    async def resume(self) -> None:
        """Gives it a cell again, before it is used."""
        self.state = (await self._call("context.resume"))["state"]

    async def relabel(self, label: Optional[str] = None, *, keep: Optional[bool] = None) -> None:
        """Changes its label, and whether it outlives this client."""
        await self._call("context.label", label=label, keep=keep)

    async def delete(self) -> None:
        """Ends it at once."""
        await self._call("context.delete")

    async def _call(self, method: str, **params: Any) -> Json:
        return await self._server._call(method, context=self.id, **params)

    def _noted(self, execution: Execution) -> Execution:
        self.state = execution.state
        return execution

    async def __aenter__(self) -> Context:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.delete()
        except (NotFound, Disconnected):
            pass

    def __repr__(self) -> str:
        return f"<Context {self.id} {self.language}>"


class Files:
    """The files of a context's workspace. Paths are relative to it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def read(self, path: str) -> bytes:
        """The content of a file."""
        parts: list[bytes] = []
        offset = 0
        while True:
            answer = await self._call("file.read", path=path, offset=offset, limit=PART)
            part, size = content_of(answer)
            parts.append(part)
            offset += len(part)
            if not part or offset >= size:
                return b"".join(parts)

    async def read_text(self, path: str) -> str:
        """The content of a file in UTF-8."""
        return (await self.read(path)).decode()

    async def write(self, path: str, content: Content, *, executable: bool = False) -> None:
        """Writes a file, and makes the directories above it. It has at most 12 MiB."""
        await self._call("file.write", **write_params(path, content, executable))

    async def list(self, path: str = "", *, recursive: bool = False) -> list[Entry]:
        """The entries of a directory."""
        return entries_of(await self._call("file.list", path=path, recursive=recursive or None))

    async def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it."""
        await self._call("file.remove", path=path)

    async def watch(self, path: str = "") -> AsyncWatch:
        """Reports what changes below a directory."""
        link = self._context._server._link
        params = {"context": self._context.id, "path": path}
        watch = AsyncWatch(
            lambda on_event: link.call("file.watch", params, on_event),
            lambda number: self._call("file.unwatch", watch=number),
            link.forget,
        )
        return await watch.start()

    async def _call(self, method: str, **params: Any) -> Json:
        return await self._context._call(method, **params)
