"""Calls about files, as parameters and answers."""

from __future__ import annotations

from .link import Content, Json, decoded, encoded
from .results import Entry

#: The most bytes that one answer has.
PART = 4 << 20


def content_of(answer: Json) -> tuple[bytes, int]:
    """A part of a file, and the size of all of it."""
    part = answer["content"]
    return decoded(part["content"]), part["size"]


def entries_of(answer: Json) -> list[Entry]:
    """The entries of a directory."""
    return [Entry(item) for item in answer["entries"]["entries"]]


def write_params(path: str, content: Content, executable: bool) -> Json:
    """The parameters of `file.write` besides the context."""
    params: Json = {"path": path, "content": encoded(content)}
    if executable:
        params["executable"] = True
    return params
