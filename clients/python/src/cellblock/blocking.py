"""`cellblock.sandbox` for threads: one event loop in a thread of its own serves all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Optional, TypeVar, Union

from .aio import Server
from .sandbox import OUTPUT, Outcome, Sandbox

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


class BlockingSandbox:
    """A sandbox for threads: see `Sandbox`."""

    def __init__(self, loop: Loop, sandbox: Sandbox) -> None:
        self._loop, self._sandbox = loop, sandbox

    @property
    def id(self) -> str:
        """Its name at the server."""
        return self._sandbox.id

    def exec(
        self,
        command: Union[str, Sequence[str]],
        *,
        input: Optional[bytes] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        output: int = OUTPUT,
        together: bool = False,
    ) -> Outcome:
        """See `Sandbox.exec`."""
        options: dict[str, Any] = {"input": input, "cwd": cwd, "env": env, "timeout": timeout}
        task = self._sandbox.exec(command, output=output, together=together, **options)
        return self._loop.run(task)

    def write(self, path: str, content: bytes) -> None:
        """See `Sandbox.write`."""
        self._loop.run(self._sandbox.write(path, content))

    def read(self, path: str, most: Optional[int] = None) -> bytes:
        """See `Sandbox.read`."""
        return self._loop.run(self._sandbox.read(path, most))

    def close(self) -> None:
        """Ends the cell and all that runs in it."""
        self._loop.run(self._sandbox.close())
