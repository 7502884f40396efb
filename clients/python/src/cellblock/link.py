"""A connection to a server: calls, answers and events as in docs/PROTOCOL.md.

Two threads read and write, so that one connection serves threads and event loops alike, and
calls reach the server in the order in which they were made.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import IO, Any, Optional, Union

from .errors import Disconnected, TooLong, from_failure

#: Methods whose events go on after the answer, and the last of these events.
LAST_EVENTS = {
    "file.watch": "watch_ended",
    "process.start": "process_ended",
}
#: A longer line ends the connection.
LONGEST_LINE = 17 << 20

Json = dict[str, Any]
Answer = Future[Json]
EventHandler = Callable[[Json], None]
Content = Union[str, bytes]

log = logging.getLogger("cellblock")


class _Call:
    """A call that has no answer yet, or whose events go on."""

    def __init__(self, method: str, params: Mapping[str, Any], on_event: Optional[EventHandler]):
        self.method = method
        self.context: Optional[str] = params.get("context")
        self.on_event = on_event
        self.answer: Answer = Future()


class Link:
    """A connection. `reason` gives a text for errors once it has ended."""

    def __init__(
        self, reader: IO[bytes], writer: IO[bytes], reason: Callable[[], str] = lambda: ""
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._reason = reason
        self._lock = threading.Lock()
        self._last = 0
        self._calls: dict[int, _Call] = {}
        self._followed: dict[int, _Call] = {}
        self._ended: Optional[Disconnected] = None
        self._lines: SimpleQueue[Optional[bytes]] = SimpleQueue()
        self._reading = threading.Thread(target=self._read, name="cellblock-read", daemon=True)
        self._writing = threading.Thread(target=self._write, name="cellblock-write", daemon=True)
        self._reading.start()
        self._writing.start()

    def call(
        self, method: str, params: Mapping[str, Any], on_event: Optional[EventHandler] = None
    ) -> Answer:
        """Makes a call. Cancelling the future cancels the call: an execution in a context is
        interrupted, so that the context keeps its variables where that can be done.

        `on_event` is called in a thread of the connection, in order, before the answer.
        """
        call = _Call(method, params, on_event)
        with self._lock:
            number = self._number()
            line = _line(number, method, params)
            if len(line) > LONGEST_LINE:
                raise TooLong(f"the call has more than {LONGEST_LINE} bytes as JSON")
            if self._ended is not None:
                raise self._ended
            self._calls[number] = call
            self._lines.put(line)
        call.answer.add_done_callback(lambda answer: self._settled(number, call))
        return call.answer

    def forget(self, answer: Answer) -> None:
        """Sends no more events of an answered call to its handler."""
        with self._lock:
            kept = ((n, one) for n, one in self._followed.items() if one.answer is not answer)
            self._followed = dict(kept)

    @property
    def has_ended(self) -> bool:
        """Whether the server has closed the connection."""
        return self._ended is not None

    def close(self) -> None:
        """Closes the writing side, once what was called has been sent."""
        self._lines.put(None)
        self._writing.join(5)

    def join(self, seconds: Optional[float] = None) -> bool:
        """Waits for the server's last line. Returns whether it has come."""
        self._reading.join(seconds)
        return not self._reading.is_alive()

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _settled(self, number: int, call: _Call) -> None:
        """A future is done: cancels the call if the caller has cancelled the future."""
        if not call.answer.cancelled():
            return
        with self._lock:
            if number not in self._calls or self._ended is not None:
                return
            runs = (n for n, one in self._calls.items() if _is_run_in(one, call.context))
            is_going_on = _is_run_in(call, call.context) and next(runs, None) == number
            if is_going_on:
                line = _line(self._number(), "context.interrupt", {"context": call.context})
            else:
                line = _line(self._number(), "cancel", {"call": number})
            self._lines.put(line)

    def _write(self) -> None:
        for line in iter(self._lines.get, None):
            try:
                self._writer.write(line)
                self._writer.flush()
            except (OSError, ValueError):
                return
        try:
            self._writer.close()
        except OSError:
            pass

    def _read(self) -> None:
        try:
            for line in iter(self._reader.readline, b""):
                self._take(json.loads(line))
        except (OSError, ValueError) as error:
            log.debug("the connection to the server ended: %s", error)
        reason = self._reason()
        with self._lock:
            self._ended = Disconnected(f"the server has ended{': ' if reason else ''}{reason}")
            calls, followed = list(self._calls.values()), list(self._followed.values())
            self._calls.clear()
            self._followed.clear()
        for call in calls:
            if call.answer.set_running_or_notify_cancel():
                call.answer.set_exception(self._ended)
        try:
            self._reader.close()
        except OSError:
            pass
        for call in followed:
            _notify(call, {"event": LAST_EVENTS[call.method], "why": self._ended.message})

    def _take(self, line: Json) -> None:
        number = line.get("id")
        event = line.get("event")
        if number is None:
            log.info("the server reports: %s", event or line.get("error"))
        elif event is not None:
            with self._lock:
                call = self._calls.get(number) or self._followed.get(number)
                if call is not None and event.get("event") == LAST_EVENTS.get(call.method):
                    self._followed.pop(number, None)
            if call is not None:
                _notify(call, event)
        else:
            with self._lock:
                call = self._calls.pop(number, None)
                if call is not None and call.method in LAST_EVENTS and "result" in line:
                    self._followed[number] = call
            if call is not None and call.answer.set_running_or_notify_cancel():
                _settle(call.answer, line)


def _is_run_in(call: _Call, context: Optional[str]) -> bool:
    return context is not None and call.method == "context.run" and call.context == context


def _notify(call: _Call, event: Json) -> None:
    if call.on_event is None:
        return
    try:
        call.on_event(event)
    except Exception:
        # The handler is the caller's; the connection serves others as well.
        log.exception("a handler of events failed")


def _settle(answer: Answer, line: Json) -> None:
    if "result" in line:
        answer.set_result(line["result"])
    else:
        answer.set_exception(from_failure(line.get("error") or {}))


def _line(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    call = {"id": number, "method": method, "params": params}
    return json.dumps(call, separators=(",", ":")).encode() + b"\n"


def given(**params: Any) -> Json:
    """The parameters that are given."""
    return {name: value for name, value in params.items() if value is not None}


def encoded(content: Content) -> Union[str, Json]:
    """Text or bytes as the protocol has them."""
    if isinstance(content, str):
        try:
            content.encode()
            return content
        except UnicodeEncodeError:
            content = content.encode(errors="surrogateescape")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def decoded(content: Union[str, Json]) -> bytes:
    """The bytes of what the protocol has."""
    if isinstance(content, str):
        return content.encode()
    return base64.b64decode(content["base64"])
