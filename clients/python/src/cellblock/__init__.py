"""Runs untrusted code in cells, by the cellblock executable.

    >>> import cellblock
    >>> cellblock.run("6 * 7").value
    '42'
    >>> with cellblock.Context() as context:
    ...     _ = context.run("x = 20")
    ...     context.run("x + 1").value
    '21'

`cellblock.aio` has the same for event loops.
"""

from . import aio
from .blocking import Sandbox
from .errors import (
    BadParams,
    BadRequest,
    Busy,
    Cancelled,
    CellblockError,
    CodeError,
    Disconnected,
    ExecutableNotFound,
    Failed,
    Lost,
    NotAllowed,
    NotFound,
    ShuttingDown,
    TooLong,
    UnknownMethod,
)
from .executable import find as find_executable
from .programs import Outcome, TimedOut
from .results import Checkpoint, Entry, Error, Event, Execution, File, Result, Run
from .sandbox import AsyncSandbox
from .server import Context, Files, Server, default_server, run
from .streams import AsyncStream, AsyncWatch, Stream, Watch

__version__ = "0.1.0"

__all__ = [
    "AsyncSandbox",
    "AsyncStream",
    "AsyncWatch",
    "BadParams",
    "BadRequest",
    "Busy",
    "Cancelled",
    "CellblockError",
    "Checkpoint",
    "CodeError",
    "Context",
    "Disconnected",
    "Entry",
    "Error",
    "Event",
    "ExecutableNotFound",
    "Execution",
    "Failed",
    "File",
    "Files",
    "Lost",
    "NotAllowed",
    "NotFound",
    "Outcome",
    "Result",
    "Run",
    "Sandbox",
    "Server",
    "ShuttingDown",
    "Stream",
    "TimedOut",
    "TooLong",
    "UnknownMethod",
    "Watch",
    "aio",
    "default_server",
    "find_executable",
    "run",
]
