"""`cellblock.sandbox` for threads: one event loop in a thread of its own serves all of them."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from .aio import Server
from .sandbox import Sandbox

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="cellblock-loop", daemon=True
        )
        self._thread.start()

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. An exception in this thread meanwhile cancels it."""
        future = asyncio.run_coroutine_threadsafe(task, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingServer:
    """A server whose sandboxes serve threads. Options are those of cellblock-serve(1)."""

    def __init__(self, **options: Any) -> None:
        self.loop = Loop()
        self.server = Server(**options)
        try:
            self.loop.run(self.server.start())
        except BaseException:
            self.loop.close()
            raise

    def open(self, **options: Any) -> BlockingSandbox:
        """Opens a sandbox: see `Sandbox.open`."""
        return BlockingSandbox(self.loop, self.loop.run(Sandbox.open(self.server, **options)))

    def close(self) -> None:
        """Ends the server and its sandboxes."""
        self.loop.run(self.server.close())
        self.loop.close()


def _blocking(
    method: Callable[Concatenate[Sandbox, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingSandbox, P], T]:
    """A method of a sandbox, for threads."""

    @functools.wraps(method)
    def call(self: BlockingSandbox, /, *args: P.args, **options: P.kwargs) -> T:
        return self._loop.run(method(self._sandbox, *args, **options))

    return call


class BlockingSandbox:
    """A sandbox for threads: see `Sandbox`."""

    def __init__(self, loop: Loop, sandbox: Sandbox) -> None:
        self._loop, self._sandbox = loop, sandbox

    @property
    def id(self) -> str:
        """Its name at the server."""
        return self._sandbox.id

    exec = _blocking(Sandbox.exec)
    write = _blocking(Sandbox.write)
    read = _blocking(Sandbox.read)
    close = _blocking(Sandbox.close)
