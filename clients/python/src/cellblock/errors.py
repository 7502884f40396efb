"""Errors, with the codes of docs/PROTOCOL.md."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, Optional


class CellblockError(Exception):
    """A call that has no result."""

    code = "failed"

    def __init__(
        self,
        message: str,
        *,
        code: Optional[str] = None,
        hint: Optional[str] = None,
        retry_after: Optional[float] = None,
        state: Optional[str] = None,
        why: Optional[str] = None,
        errno: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The protocol's code.
        self.code = code or type(self).code
        #: What to do about it, if that is known.
        self.hint = hint
        #: The number of seconds after which to try again.
        self.retry_after = retry_after
        #: What became of the context's variables, where that is known.
        self.state = state
        #: Why.
        self.why = why
        #: The error number of the system call that failed, where one did.
        self.errno = errno

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message

    def __reduce__(self) -> Any:
        return _remake, (type(self), self.__dict__)


class BadRequest(CellblockError):
    """The server could not read the call: a fault of this package."""

    code = "bad_request"


class UnknownMethod(CellblockError):
    """The server is older than this package."""

    code = "unknown_method"


class BadParams(CellblockError, ValueError):
    """A parameter is invalid for the method."""

    code = "bad_params"


class TooLong(CellblockError, ValueError):
    """The call is too long for the protocol."""

    code = "too_long"


class NotFound(CellblockError, LookupError):
    """The context, file, checkpoint or watch does not exist."""

    code = "not_found"


class NotAllowed(CellblockError):
    """This client may not do that."""

    code = "not_allowed"


class Busy(CellblockError):
    """The server has no room: see `retry_after`."""

    code = "busy"


class Cancelled(CellblockError):
    """The call was cancelled before it began."""

    code = "cancelled"


class Failed(CellblockError):
    """The server cannot do this."""

    code = "failed"


class Lost(CellblockError):
    """The cell ended before there was an answer. Whether the code ran to its end is unknown: repeat
    only code that may run twice."""

    code = "lost"


class ShuttingDown(CellblockError):
    """The server is ending."""

    code = "shutting_down"


class Disconnected(Lost, ConnectionError):
    """The server or its connection has ended, and all cells with it. To try again, use another
    server."""

    code = "disconnected"


class ExecutableNotFound(CellblockError, FileNotFoundError):
    """The executable is not on this host."""

    code = "no_executable"

    def __str__(self) -> str:
        return CellblockError.__str__(self)


class CodeError(Exception):
    """Code that did not end well: raised by `Run.check`."""

    def __init__(self, run: Any) -> None:
        super().__init__(run.context or f"the outcome is {run.outcome}")
        #: The run, with its output and its error.
        self.run = run


_KINDS: tuple[type[CellblockError], ...] = (
    BadRequest,
    UnknownMethod,
    BadParams,
    TooLong,
    NotFound,
    NotAllowed,
    Busy,
    Cancelled,
    Failed,
    Lost,
    ShuttingDown,
)
_BY_CODE: dict[str, type[CellblockError]] = {kind.code: kind for kind in _KINDS}


def from_failure(failure: Mapping[str, Any]) -> CellblockError:
    """The exception for `error` of an answer."""
    code = str(failure.get("code", "failed"))
    wait = failure.get("retry_after_ms")
    return _BY_CODE.get(code, CellblockError)(
        str(failure.get("message", "the server gave no reason")),
        code=code,
        hint=failure.get("hint"),
        retry_after=None if wait is None else wait / 1000,
        state=failure.get("state"),
        why=failure.get("why"),
        errno=getattr(errno, str(failure.get("errno")), None),
    )


def _remake(kind: type[CellblockError], fields: dict[str, Any]) -> CellblockError:
    error = kind(fields["message"])
    error.__dict__.update(fields)
    return error
