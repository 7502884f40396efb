"""What comes of code: the record of docs/record.schema.json, and events."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Optional, Union

from . import display
from .errors import CodeError
from .link import Json


class Result:
    """A value that the code produced or displayed, in several forms."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        #: As the record has it.
        self.raw = dict(item)
        #: The forms by their media type; pictures are in base64.
        self.formats: dict[str, Any] = dict(item.get("formats") or {})
        #: The value as text.
        self.text: Optional[str] = item.get("text")
        #: Whether it is the value of the last expression.
        self.is_main_result = bool(item.get("is_main_result"))
        #: The value as JSON, where it has that form.
        self.data: Any = item.get("data")
        #: A description of the chart, where it is one.
        self.chart: Any = item.get("chart")

    @property
    def png(self) -> Optional[bytes]:
        """The picture."""
        return self._picture("image/png")

    @property
    def jpeg(self) -> Optional[bytes]:
        """The picture."""
        return self._picture("image/jpeg")

    def _picture(self, media_type: str) -> Optional[bytes]:
        form = self.formats.get(media_type)
        return base64.b64decode(form) if isinstance(form, str) else None

    def __repr__(self) -> str:
        return self.text if self.text is not None else f"<Result {', '.join(self.formats)}>"

    def _repr_png_(self) -> Optional[bytes]:
        return self.png

    def _repr_jpeg_(self) -> Optional[bytes]:
        return self.jpeg

    def _repr_html_(self) -> str:
        return display.of_result(self.formats, self.text)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return display.bundle(self.formats, self.text)


class File:
    """A file that the code created, modified or deleted."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        #: As the record has it.
        self.raw = dict(item)
        #: Its path, relative to the workspace.
        self.path = _text(item["path"])
        #: ``created``, ``modified`` or ``deleted``.
        self.change: str = item["change"]
        #: In bytes.
        self.size: Optional[int] = item.get("size")
        self.media_type: Optional[str] = item.get("media_type")

    @property
    def content(self) -> Optional[bytes]:
        """Its content, where the server was started with `inline_files`."""
        coded = self.raw.get("content_base64")
        if coded is not None:
            return base64.b64decode(coded)
        text = self.raw.get("content")
        return None if text is None else str(text).encode()

    def __repr__(self) -> str:
        return f"<File {self.path} {self.change}>"


class Error:
    """The exception that ended the code."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self.name: str = item["name"]
        self.message: str = item["message"]
        self.traceback: list[str] = item["traceback"]
        self.line: Optional[int] = item["line"]

    def __repr__(self) -> str:
        return f"{self.name}: {self.message}"


class Run:
    """A run that has ended."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        #: The whole record.
        self.record: Json = answer["record"]
        #: ``cold``, ``blank``, ``ready`` or ``forked``.
        self.start: Optional[str] = answer.get("start") or self.record.get("start")

    @property
    def outcome(self) -> str:
        """``ok``, ``error``, ``exit``, ``signal``, ``timeout``, ``memory``, ``setup``, …"""
        return str(self.record["outcome"])

    @property
    def ok(self) -> bool:
        """Whether the code ended well."""
        return self.outcome == "ok"

    @property
    def exit_code(self) -> int:
        """The exit status; 128 and the signal's number after a signal."""
        return int(self.record["exit_code"])

    @property
    def context(self) -> Optional[str]:
        """What happened and what to do about it, in words for a model."""
        return self.record.get("context")

    @property
    def stdout(self) -> str:
        """Standard output; bytes that are not UTF-8 are replaced."""
        return self.record.get("stdout") or ""

    @property
    def stderr(self) -> str:
        """Standard error; bytes that are not UTF-8 are replaced."""
        return self.record.get("stderr") or ""

    @property
    def stdout_bytes(self) -> bytes:
        """Standard output as it is."""
        return self._stream("stdout")

    @property
    def stderr_bytes(self) -> bytes:
        """Standard error as it is."""
        return self._stream("stderr")

    @property
    def results(self) -> list[Result]:
        """The values that the code produced and displayed."""
        return [Result(item) for item in self.record.get("results") or ()]

    @property
    def value(self) -> Optional[str]:
        """The value of the last expression, as text."""
        return next((one.text for one in self.results if one.is_main_result), None)

    @property
    def error(self) -> Optional[Error]:
        """The exception that nothing caught."""
        item = self.record.get("error")
        return None if item is None else Error(item)

    @property
    def files(self) -> list[File]:
        """The files that changed."""
        return [File(item) for item in self.record.get("files") or ()]

    @property
    def denied(self) -> list[Json]:
        """What the policy denied."""
        return list(self.record.get("denied") or ())

    def check(self) -> Run:
        """This run. Raises CodeError if the code did not end well."""
        if not self.ok:
            raise CodeError(self)
        return self

    def _stream(self, name: str) -> bytes:
        coded = self.record.get(f"{name}_base64")
        if coded is not None:
            return base64.b64decode(coded)
        return str(self.record.get(name) or "").encode()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.outcome}>"

    def _repr_html_(self) -> str:
        return display.of_record(self.record)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": display.plain(self.record), "text/html": self._repr_html_()}


class Execution(Run):
    """An execution in a context."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(answer)
        #: Its number in the context, from 1.
        self.number: int = answer["execution"]
        #: What became of the variables: ``kept``, ``lost`` or ``restored``.
        self.state: str = answer["state"]
        #: Why, unless they were kept after a normal end.
        self.why: Optional[str] = answer.get("why")


class Event:
    """What happened while code ran: cellblock-events(5)."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        #: ``stdout``, ``result``, ``files_changed``, …
        self.kind: str = item["event"]
        #: As the server sent it.
        self.raw = dict(item)

    @property
    def text(self) -> str:
        """The output of ``stdout`` and ``stderr``."""
        return str(self.raw.get("text") or "")

    @property
    def result(self) -> Optional[Result]:
        """The value of ``result`` and ``display_update``."""
        item = self.raw.get("result")
        return None if item is None else Result(item)

    def __repr__(self) -> str:
        return f"<Event {self.kind}>"


class Entry:
    """An entry of a directory in the workspace."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self.raw = dict(item)
        #: Its path, relative to the workspace.
        self.path = _text(item["path"])
        #: ``file``, ``directory``, ``link``, …
        self.kind: str = item["kind"]
        #: In bytes.
        self.size: int = item.get("size") or 0

    def __repr__(self) -> str:
        return f"<Entry {self.path} {self.kind}>"


class Checkpoint:
    """A state of a context to go back to."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        #: Its number in the context.
        self.number: int = answer["checkpoint"]
        #: On the disk.
        self.bytes: int = answer["bytes"]
        #: What of the workspace it does not have, and why.
        self.left_out: Json = answer.get("left_out") or {}

    def __repr__(self) -> str:
        return f"<Checkpoint {self.number}>"


def _text(path: Union[str, Mapping[str, Any]]) -> str:
    """A path; bytes that are not UTF-8 are escaped as `os.fsdecode` does."""
    if isinstance(path, str):
        return path
    return base64.b64decode(path["base64"]).decode(errors="surrogateescape")
