"""What a run or a context can ask for: cellblock-request(5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional, TypedDict, Union

from .link import Content, Json, encoded

#: A number of seconds, or a text such as "500ms" or "1m 30s".
Duration = Union[float, str]


class RequestOptions(TypedDict, total=False):
    """What runs and contexts take. It can only be lower than what the server was started with."""

    #: Environment variables.
    env: Mapping[str, Content]
    #: Files to put into the workspace, by their path relative to it.
    files: Mapping[str, Content]
    #: Limits by their name in cellblock-policy(5): ``{"memory": "128M", "cpu_time": 5}``.
    limits: Mapping[str, Any]
    #: ``"none"``, or ``{"allow": ["pypi.org"]}`` for some of the hosts that the server allows.
    network: Union[str, Mapping[str, Any]]
    #: The most wall time of an execution.
    wall: Duration
    #: The time between the interrupt at the end of ``wall`` and the kill.
    grace: Duration


class RunOptions(RequestOptions, total=False):
    """What single runs take besides."""

    #: Arguments that the code sees.
    args: Sequence[Content]
    #: Standard input.
    stdin: Content
    #: The file name of the code in tracebacks.
    name: str


class ContextOptions(RequestOptions, total=False):
    """The further options of contexts; see docs/PROTOCOL.md."""

    id: Optional[str]
    label: Optional[str]
    idle: Optional[Duration]
    keep: bool
    #: Whether it can be forked and rewound.
    forkable: bool
    suspend_after: Optional[Duration]


class ExecutionOptions(TypedDict, total=False):
    """The options of executions in a context."""

    #: Arguments that the code sees.
    args: Sequence[Content]
    #: The file name of the code in tracebacks.
    name: Optional[str]
    #: The most wall time.
    wall: Optional[Duration]
    #: The time between the interrupt at the end of ``wall`` and the kill.
    grace: Optional[Duration]


def request(**options: Any) -> Json:
    """A request of these options."""
    asked: Json = {name: value for name, value in options.items() if value is not None}
    limits = dict(asked.pop("limits", {}))
    limits.update({name: asked.pop(name) for name in ("wall", "grace") if name in asked})
    if limits:
        asked["limits"] = limits
    for name in ("code", "stdin"):
        if name in asked:
            asked[name] = encoded(asked[name])
    for name in ("args", "argv"):
        if name in asked:
            asked[name] = [encoded(word) for word in asked[name]]
    if "env" in asked:
        asked["env"] = {name: encoded(value) for name, value in asked["env"].items()}
    if "files" in asked:
        asked["files"] = [_file(path, content) for path, content in asked["files"].items()]
    return asked


def _file(path: str, content: Content) -> Json:
    form = encoded(content)
    return {"path": path, "text": form} if isinstance(form, str) else {"path": path, **form}
