"""Programs that run in the cell of a context, as futures: for threads and event loops alike."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Optional, TypedDict, Union

from .errors import CellblockError, Disconnected, Lost
from .link import Content, Json, Link, encoded, given

#: The most bytes that are kept of each stream, unless a call says otherwise.
OUTPUT = 10 << 20
#: The most bytes of input in one call.
PART = 1 << 20

#: A program and its arguments, or a text for `sh -c`.
Command = Union[str, Sequence[Content]]


class ExecOptions(TypedDict, total=False):
    """The options of a program in a cell."""

    #: Its standard input.
    input: Optional[bytes]
    #: Its working directory; a relative one starts at /workspace.
    cwd: Optional[str]
    #: Variables besides those of the context.
    env: Optional[Mapping[str, Content]]
    #: The most seconds; then its process group is killed, and TimedOut is raised, a TimeoutError.
    timeout: Optional[float]
    #: The most bytes that are kept of each stream.
    output: int
    #: Whether standard error is part of standard output.
    together: bool


class Outcome:
    """The end and the output of a program."""

    def __init__(self, status: int, stdout: bytes, stderr: bytes, is_cut: bool) -> None:
        #: The exit status; 128 and the signal's number after a signal.
        self.status = status
        self.stdout = stdout
        #: Empty where both were asked for together.
        self.stderr = stderr
        #: Whether output was more than what is kept.
        self.is_cut = is_cut

    def __repr__(self) -> str:
        return f"<Outcome {self.status}>"


class TimedOut(TimeoutError):
    """A program took too long, and was killed. It has the output until then, in the same form as
    `Outcome`."""

    def __init__(self, message: str, stdout: bytes, stderr: bytes, is_cut: bool) -> None:
        super().__init__(message)
        self.stdout = stdout
        self.stderr = stderr
        self.is_cut = is_cut


def begin(link: Link, context: str, command: Command, **options: Any) -> Future[Outcome]:
    """Runs a program in the cell of this context. Cancelling the future kills the program's process
    group. Options are `ExecOptions`."""
    return _Program(link, context, command, **options).outcome


class _Program:
    """A running program. Its methods are called in a thread of the connection."""

    def __init__(
        self,
        link: Link,
        context: str,
        command: Command,
        *,
        input: Optional[bytes] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, Content]] = None,
        timeout: Optional[float] = None,
        output: int = OUTPUT,
        together: bool = False,
    ) -> None:
        self._link, self._context, self._input = link, context, input
        self._timeout, self._began = timeout, time.monotonic()
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._most, self._is_cut = output, False
        self._number: Optional[int] = None
        self.outcome: Future[Outcome] = Future()
        self.outcome.add_done_callback(self._on_done)
        params = given(
            context=context,
            argv=[encoded(word) for word in _argv(command, together)],
            cwd=None if cwd is None else os.path.join("/workspace", cwd),
            env={name: encoded(value) for name, value in (env or {}).items()},
            input=input is not None,
            wall=timeout,
            events=True,
            attached=True,
        )
        self._link.call("process.start", params, self._on_event).add_done_callback(self._on_start)

    def _on_start(self, answer: Future[Json]) -> None:
        error = answer.exception()
        if error is not None:
            self._fail(_as_os_error(error))
            return
        self._number = int(answer.result()["process"])
        if self.outcome.cancelled():
            self._kill()
        elif self._input is not None:
            self._send(0)

    def _send(self, start: int) -> None:
        """Sends it the input from here on, each part after the previous one was taken."""
        content = self._input or b""
        if start >= len(content):
            self._call("process.close_input")
            return
        taken = self._call("process.input", data=encoded(content[start : start + PART]))
        if taken is not None:
            # A program that has ended takes no more.
            taken.add_done_callback(
                lambda answer: None if answer.exception() else self._send(start + PART)
            )

    def _on_event(self, event: Json) -> None:
        if event["event"] == "process_output":
            coded = event.get("base64")
            part = str(event["text"]).encode() if coded is None else base64.b64decode(coded)
            kept = self._kept[event["stream"]]
            room = self._most - len(kept)
            kept += part[:room]
            self._is_cut = self._is_cut or len(part) > room
        elif event["event"] == "process_ended":
            self._end(event)

    def _end(self, event: Json) -> None:
        if "exit_code" not in event:
            self._fail(Disconnected(str(event["why"])))
            return
        stdout, stderr = (bytes(kept) for kept in self._kept.values())
        if event["why"] is None:
            outcome = Outcome(_status(event), stdout, stderr, self._is_cut)
            if self.outcome.set_running_or_notify_cancel():
                self.outcome.set_result(outcome)
        elif self._timeout is not None and time.monotonic() - self._began >= self._timeout:
            message = f"the command took longer than {self._timeout} s"
            self._fail(TimedOut(message, stdout, stderr, self._is_cut))
        else:
            self._fail(Lost(f"the program did not end by itself: {event['why']}"))

    def _fail(self, error: BaseException) -> None:
        if self.outcome.set_running_or_notify_cancel():
            self.outcome.set_exception(error)

    def _on_done(self, outcome: Future[Outcome]) -> None:
        if outcome.cancelled():
            self._kill()

    def _kill(self) -> None:
        # It has no number until its start is answered; that answer calls this again.
        if self._number is not None:
            self._call("process.signal", signal="SIGKILL")

    def _call(self, method: str, **params: Any) -> Optional[Future[Json]]:
        params.update(context=self._context, process=self._number)
        try:
            return self._link.call(method, params)
        except CellblockError:
            # The connection has ended, and the outcome has that error.
            return None


def _argv(command: Command, together: bool) -> Sequence[Content]:
    if isinstance(command, str):
        return ["sh", "-c", f"exec 2>&1\n{command}" if together else command]
    return ["sh", "-c", 'exec "$@" 2>&1', "sh", *command] if together else command


def _status(event: Json) -> int:
    if event["exit_code"] is not None:
        return int(event["exit_code"])
    return 128 + getattr(signal, event["signal"] or "SIGKILL", 0)


def _as_os_error(error: BaseException) -> BaseException:
    """The error of a program that cannot be started as an OSError: FileNotFoundError, …"""
    if isinstance(error, CellblockError) and error.errno is not None:
        return OSError(error.errno, error.message)
    return error
