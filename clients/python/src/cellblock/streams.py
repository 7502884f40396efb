"""Events as iterators, for threads and for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, Optional, TypeVar

from .link import Answer, Json
from .results import Event

T = TypeVar("T")
#: Makes the call with this handler of events.
Begin = Callable[[Callable[[Json], None]], Answer]


class Stream(Generic[T]):
    """The events of a run, as they come; then `result()`."""

    def __init__(self, begin: Begin, finish: Callable[[Json], T]) -> None:
        self._events: SimpleQueue[Optional[Json]] = SimpleQueue()
        self._finish = finish
        self._answer = begin(self._events.put)
        self._answer.add_done_callback(lambda _: self._events.put(None))

    def __iter__(self) -> Iterator[Event]:
        for item in iter(self._events.get, None):
            yield Event(item)
        # For a caller that iterates again.
        self._events.put(None)

    def result(self) -> T:
        """The result of the call; waits for it, and raises its error."""
        return self._finish(wait(self._answer))

    def cancel(self) -> None:
        """Ends the code. A context keeps its variables where its interpreter can be
        interrupted."""
        self._answer.cancel()


class Watch:
    """The changes below a directory, until `close()` or the end of the cell."""

    def __init__(self, begin: Begin, end: Callable[[int], Any], forget: Callable[[Answer], None]):
        self._events: SimpleQueue[Json] = SimpleQueue()
        self._end, self._forget = end, forget
        self._answer = begin(self._events.put)
        self._number: int = wait(self._answer)["watch"]

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self._events.get()
            yield Event(event)
            if event["event"] == "watch_ended":
                self._events.put(event)
                return

    def close(self) -> None:
        """Ends the watch."""
        self._forget(self._answer)
        self._events.put({"event": "watch_ended", "why": "closed"})
        self._end(self._number)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncStream(Generic[T]):
    """The events of a run, as they come; then `await result()`."""

    def __init__(self, begin: Begin, finish: Callable[[Json], T]) -> None:
        self._finish = finish
        self._events: asyncio.Queue[Optional[Json]] = asyncio.Queue()
        put = _from_threads(self._events)
        self._answer = begin(put)
        self._answer.add_done_callback(lambda _: put(None))

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            item = await self._events.get()
            if item is None:
                self._events.put_nowait(None)
                return
            yield Event(item)

    async def result(self) -> T:
        """The result of the call; waits for it, and raises its error."""
        return self._finish(await asyncio.wrap_future(self._answer))

    def cancel(self) -> None:
        """Ends the code. A context keeps its variables where its interpreter can be
        interrupted."""
        self._answer.cancel()


class AsyncWatch:
    """The changes below a directory, until `close()` or the end of the cell."""

    def __init__(self, begin: Begin, end: Callable[[int], Any], forget: Callable[[Answer], None]):
        self._events: asyncio.Queue[Json] = asyncio.Queue()
        self._end, self._forget = end, forget
        self._answer = begin(_from_threads(self._events))
        self._number = 0

    async def start(self) -> AsyncWatch:
        """Waits until the watch has begun."""
        self._number = (await asyncio.wrap_future(self._answer))["watch"]
        return self

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            yield Event(event)
            if event["event"] == "watch_ended":
                self._events.put_nowait(event)
                return

    async def close(self) -> None:
        """Ends the watch."""
        self._forget(self._answer)
        self._events.put_nowait({"event": "watch_ended", "why": "closed"})
        await self._end(self._number)


def wait(answer: Future[T]) -> T:
    """The answer to a call. An exception in this thread meanwhile, such as KeyboardInterrupt,
    cancels the call."""
    try:
        return answer.result()
    except BaseException:
        answer.cancel()
        raise


def _from_threads(queue: asyncio.Queue[Any]) -> Callable[[Any], None]:
    loop = asyncio.get_running_loop()

    def put(item: Any) -> None:
        try:
            loop.call_soon_threadsafe(queue.put_nowait, item)
        except RuntimeError:
            # The event loop is closed, so no coroutine waits.
            pass

    return put
