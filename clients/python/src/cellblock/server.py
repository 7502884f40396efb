"""Servers, contexts and runs for threads. `cellblock.aio` has the same for event loops."""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

from .errors import Disconnected, NotFound, from_failure
from .executable import Path
from .files import PART, content_of, entries_of, write_params
from .link import Content, Json, Link, encoded, given
from .process import Process
from .programs import Command, ExecOptions, Outcome, begin
from .requests import (
    ContextOptions,
    Duration,
    ExecutionOptions,
    RequestOptions,
    RunOptions,
    request,
)
from .results import Checkpoint, Entry, Execution, File, Run
from .streams import Stream, Watch, wait

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Server:
    """A server that runs code: a child of this process, which ends with it.

    Options are those of cellblock-serve(1): ``Server(rootfs="python", memory="2G",
    warm=["python:2"])``.
    """

    def __init__(self, *, executable: Optional[Path] = None, **options: Any) -> None:
        self._process: Optional[Process] = Process(executable, options)
        self._link = self._process.link

    @classmethod
    def connect(cls, path: Path) -> Server:
        """A server that listens at this Unix socket."""
        server = cls.__new__(cls)
        server._process = None
        server._link = connect(path)
        return server

    def run(
        self, code: Content, language: str = "python", **options: Unpack[RunOptions]
    ) -> Run:
        """Runs code in a cell of its own."""
        asked = request(code=code, language=language, **options)
        return Run(self._call("run", request=asked))

    def exec(self, argv: Sequence[Content], **options: Unpack[RunOptions]) -> Run:
        """Runs a program in a cell of its own."""
        return Run(self._call("run", request=request(argv=argv, **options)))

    def stream(
        self, code: Content, language: str = "python", **options: Unpack[RunOptions]
    ) -> Stream[Run]:
        """Runs code in a cell of its own, with the events meanwhile."""
        asked = request(code=code, language=language, **options)
        params = {"request": asked, "events": True}
        return Stream(lambda on_event: self._link.call("run", params, on_event), Run)

    def context(self, language: str = "python", **options: Unpack[ContextOptions]) -> Context:
        """Creates a context: see `Context`."""
        return Context(language, server=self, **options)

    def find(self, id: str) -> Context:
        """The context of this name, such as one with `keep` that another client made."""
        found = self._call("context.describe", context=id)
        return Context._existing(self, id, found["language"], found.get("state", "kept"))

    def contexts(self, label: Optional[str] = None) -> list[Json]:
        """The contexts that this client may use."""
        return list(self._call("context.list", label=label)["contexts"])

    def status(self) -> Json:
        """The server's status."""
        return self._call("status")

    def metrics(self) -> str:
        """Its counters in Prometheus's format."""
        return str(self._call("metrics")["text"])

    def close(self) -> None:
        """Ends the server, or the connection to it, and everything that belongs to it."""
        if self._process is not None:
            self._process.close()
        else:
            self._link.close()
            self._link.join(20)

    def _call(self, method: str, **params: Any) -> Json:
        return wait(self._link.call(method, given(**params)))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Context:
    """An interpreter that keeps its variables and files between executions.

    ``server`` is the process's default one when it is left out. ``forkable`` contexts can be
    forked and rewound. All options are in `cellblock.requests.ContextOptions`.
    """

    def __init__(
        self,
        language: str = "python",
        *,
        server: Optional[Server] = None,
        **options: Unpack[ContextOptions],
    ) -> None:
        self._server = server or default_server()
        answer = self._server._call("context.create", **creation(language, **options))
        #: Its name.
        self.id: str = answer["context"]
        self.language = language
        #: What became of the variables, as of the last answer.
        self.state = "kept"
        self.files = Files(self)

    @classmethod
    def _existing(cls, server: Server, id: str, language: str, state: str) -> Context:
        context = cls.__new__(cls)
        context._server, context.id, context.language = server, id, language
        context.state = state
        context.files = Files(context)
        return context

    def run(self, code: Content, **options: Unpack[ExecutionOptions]) -> Execution:
        """Executes code after the earlier calls of the context.

        KeyboardInterrupt meanwhile interrupts the code.
        """
        return self._noted(Execution(self._call("context.run", **execution(code, **options))))

    def stream(
        self, code: Content, **options: Unpack[ExecutionOptions]
    ) -> Stream[Execution]:
        """Executes code, with the events meanwhile."""
        params = {"context": self.id, "events": True, **execution(code, **options)}
        return Stream(
            lambda on_event: self._server._link.call("context.run", params, on_event),
            lambda answer: self._noted(Execution(answer)),
        )

    def exec(self, command: Command, **options: Unpack[ExecOptions]) -> Outcome:
        """Runs a program, or a text by `sh -c`, in the context's cell and beside its interpreter, and
        waits for it.

        Raises TimedOut, a TimeoutError with the output until then, after ``timeout`` seconds, when
        its process group was killed, and OSError where it cannot be started. KeyboardInterrupt
        meanwhile kills it.
        """
        return wait(begin(self._server._link, self.id, command, **options))

    def interrupt(self, *, grace: Optional[Duration] = None) -> bool:
        """Interrupts the running code, as Ctrl-C does. Returns whether any was running."""
        return bool(self._call("context.interrupt", grace=grace)["interrupted"])

    def restart(self) -> None:
        """Begins with a new interpreter in the same workspace."""
        self.state = self._call("context.restart")["state"]

    def describe(self) -> Json:
        """Its variables, and what it uses."""
        return self._call("context.describe")

    def checkpoint(self) -> Checkpoint:
        """Keeps its state and workspace, to go back to."""
        return Checkpoint(self._call("context.checkpoint"))

    def rewind(self, to: Union[Checkpoint, int, None] = None) -> None:
        """Goes back to a checkpoint, or to the last one."""
        self.state = self._call("context.rewind", checkpoint=number(to))["state"]

    def diff(self, since: Union[Checkpoint, int]) -> list[File]:
        """The files that changed since a checkpoint."""
        answer = self._call("context.diff", **{"with": number(since)})
        return [File(item) for item in answer["files"]]

    def forget(self, checkpoint: Union[Checkpoint, int]) -> None:
        """Removes a checkpoint."""
        self._call("context.forget", checkpoint=number(checkpoint))

    def fork(self, n: int = 1) -> list[Context]:
        """Makes contexts that go on from this one's state. Raises the error of the first
        branch that could not be made, and then the others do not exist."""
        branches = self._call("context.fork", n=n)["branches"]
        made = [
            Context._existing(self._server, one["context"], self.language, one["state"])
            for one in branches
            if "context" in one
        ]
        failure = first_failure(branches)
        if failure is not None:
            for context in made:
                context.delete()
            raise failure
        return made

    def suspend(self) -> None:
        """Ends its processes until it is used again; its state is kept on the disk."""
        self._call("context.suspend")

    def resume(self) -> None:
        """Gives it a cell again, before it is used."""
        self.state = self._call("context.resume")["state"]

    def relabel(self, label: Optional[str] = None, *, keep: Optional[bool] = None) -> None:
        """Changes its label, and whether it outlives this client."""
        self._call("context.label", label=label, keep=keep)

    def delete(self) -> None:
        """Ends it at once."""
        self._call("context.delete")

    def _call(self, method: str, **params: Any) -> Json:
        return self._server._call(method, context=self.id, **params)

    def _noted(self, execution: Execution) -> Execution:
        self.state = execution.state
        return execution

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.delete()
        except (NotFound, Disconnected):
            pass

    def __repr__(self) -> str:
        return f"<Context {self.id} {self.language}>"


class Files:
    """The files of a context's workspace. Paths are relative to it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def read(self, path: str) -> bytes:
        """The content of a file."""
        parts: list[bytes] = []
        offset = 0
        while True:
            answer = self._call("file.read", path=path, offset=offset, limit=PART)
            part, size = content_of(answer)
            parts.append(part)
            offset += len(part)
            if not part or offset >= size:
                return b"".join(parts)

    def read_text(self, path: str) -> str:
        """The content of a file in UTF-8."""
        return self.read(path).decode()

    def write(self, path: str, content: Content, *, executable: bool = False) -> None:
        """Writes a file, and makes the directories above it. It has at most 12 MiB."""
        self._call("file.write", **write_params(path, content, executable))

    def list(self, path: str = "", *, recursive: bool = False) -> list[Entry]:
        """The entries of a directory."""
        return entries_of(self._call("file.list", path=path, recursive=recursive or None))

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it."""
        self._call("file.remove", path=path)

    def watch(self, path: str = "") -> Watch:
        """Reports what changes below a directory."""
        link = self._context._server._link
        params = {"context": self._context.id, "path": path}
        return Watch(
            lambda on_event: link.call("file.watch", params, on_event),
            lambda watch: self._call("file.unwatch", watch=watch),
            link.forget,
        )

    def _call(self, method: str, **params: Any) -> Json:
        return self._context._call(method, **params)


def connect(path: Path) -> Link:
    """A connection to a server's Unix socket."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.fspath(path))
        reader, writer = connection.makefile("rb"), connection.makefile("wb")
    except BaseException:
        connection.close()
        raise
    # Closing the file does not end the writing side, since the reader shares the socket.
    writer.close = _shutting(connection, writer.close)  # type: ignore[method-assign]
    return Link(reader, writer)


def _shutting(connection: socket.socket, close: Callable[[], None]) -> Callable[[], None]:
    def shut() -> None:
        close()
        connection.shutdown(socket.SHUT_WR)
        connection.close()

    return shut


def creation(
    language: Optional[str],
    *,
    id: Optional[str] = None,
    label: Optional[str] = None,
    idle: Optional[Duration] = None,
    keep: bool = False,
    forkable: bool = False,
    suspend_after: Optional[Duration] = None,
    **options: Unpack[RequestOptions],
) -> Json:
    """The parameters of `context.create`."""
    return given(
        request=request(language=language, **options),
        context=id,
        label=label,
        idle=idle,
        keep=keep or None,
        branches=forkable or None,
        suspend_after=suspend_after,
    )


def execution(
    code: Content,
    *,
    args: Sequence[Content] = (),
    name: Optional[str] = None,
    wall: Optional[Duration] = None,
    grace: Optional[Duration] = None,
) -> Json:
    """The parameters of `context.run` besides the context."""
    return given(
        code=encoded(code),
        args=[encoded(word) for word in args] or None,
        name=name,
        wall=wall,
        grace=grace,
    )


def number(checkpoint: Union[Checkpoint, int, None]) -> Optional[int]:
    """The number of a checkpoint."""
    return checkpoint.number if isinstance(checkpoint, Checkpoint) else checkpoint


def first_failure(branches: Sequence[Json]) -> Optional[Exception]:
    """The error of the first branch that has one."""
    failures = (from_failure(one["error"]) for one in branches if "error" in one)
    return next(failures, None)


_default: Optional[tuple[int, Server]] = None
_default_lock = threading.Lock()


def default_server() -> Server:
    """The server of this process, with the options of cellblock-serve(1) left as they are. It is
    started when it is needed first, and ends with the process."""
    global _default
    with _default_lock:
        # A child that was forked must not write into its parent's connection.
        if _default is not None and _default[0] == os.getpid():
            if not _default[1]._link.has_ended:
                return _default[1]
            # It was killed. Calls that it had are lost, but calls from now on get a new server.
            _default[1].close()
        else:
            atexit.register(_close_default, os.getpid())
        _default = (os.getpid(), Server())
        return _default[1]


def _close_default(pid: int) -> None:
    if pid == os.getpid() and _default is not None:
        _default[1].close()


def run(code: Content, language: str = "python", **options: Unpack[RunOptions]) -> Run:
    """Runs code in a cell of its own, by the process's default server."""
    return default_server().run(code, language, **options)
