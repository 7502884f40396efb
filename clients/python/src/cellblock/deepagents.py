"""A backend for the agents of deepagents: ``create_deep_agent(backend=CellblockBackend())``."""

from __future__ import annotations

import errno
import posixpath
from typing import Any, Optional

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from .blocking import Sandbox
from .programs import TimedOut
from .server import Server

#: The most bytes of output that a model gets.
OUTPUT = 100_000
#: The most bytes of a file that is downloaded.
LARGEST = 100 << 20
#: The names of errors that models know.
WORDS = {
    errno.ENOENT: "file_not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.EROFS: "permission_denied",
    errno.EISDIR: "is_directory",
    errno.ENOTDIR: "invalid_path",
    errno.ENAMETOOLONG: "invalid_path",
}


class CellblockBackend(BaseSandbox):
    """A cell for an agent's commands and files. Its working directory is /workspace.

    Without ``server``, it has one of its own with these options of cellblock-serve(1), which
    ends with `close`. A command has ``timeout`` seconds unless it asks for another time.
    """

    def __init__(
        self, *, server: Optional[Server] = None, timeout: float = 120, **options: Any
    ) -> None:
        self._own: Optional[Server] = None
        if server is None:
            server = self._own = Server(**{"cpu_time": "none", "idle": "24h", **options})
        self._timeout = timeout
        self._sandbox = Sandbox(server=server)

    @property
    def id(self) -> str:
        return self._sandbox.id

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        # 0 stands for no limit.
        allowed = self._timeout if timeout is None else timeout or None
        try:
            outcome = self._sandbox.exec(command, timeout=allowed, output=OUTPUT, together=True)
        except TimedOut as error:
            text = error.stdout.decode(errors="replace")
            gap = "\n" if text and not text.endswith("\n") else ""
            return ExecuteResponse(output=f"{text}{gap}{error}", exit_code=124, truncated=error.is_cut)
        text = outcome.stdout.decode(errors="replace")
        return ExecuteResponse(output=text, exit_code=outcome.status, truncated=outcome.is_cut)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path, self._upload(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def close(self) -> None:
        """Ends the cell, and the server if it is this backend's own."""
        self._sandbox.close()
        if self._own is not None:
            self._own.close()

    def _upload(self, path: str, content: bytes) -> Any:
        if not _is_plain(path):
            return "invalid_path"
        try:
            self._sandbox.write(path, content)
        except OSError as error:
            return _word(error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not _is_plain(path):
            return FileDownloadResponse(path, error="invalid_path")
        try:
            return FileDownloadResponse(path, content=self._sandbox.read(path, LARGEST))
        except (OSError, ValueError) as error:
            return FileDownloadResponse(path, error=_word(error))


def _is_plain(path: str) -> bool:
    return posixpath.isabs(path) and "\0" not in path


def _word(error: Exception) -> Any:
    return WORDS.get(getattr(error, "errno", None) or 0, str(error))
