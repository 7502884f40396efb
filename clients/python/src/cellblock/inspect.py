"""Sandboxes of Inspect AI: ``sandbox="cellblock"``, or ``sandbox=("cellblock", "cellblock.json")``
with the options of cellblock-serve(1), such as ``{"rootfs": "python-data", "memory": "4G"}``.

Each sample has a cell of its own. All samples of a task share a server, which ends with the task.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Literal, Optional, Union, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from .aio import Server
from .errors import CellblockError
from .sandbox import AsyncSandbox

#: What a sample gets unless the configuration says otherwise. Inspect has time limits of its own.
DEFAULTS: dict[str, Any] = {
    "cpu_time": "none",
    "idle": "24h",
    "memory": "2G",
    "queue_wait": "10m",
    "tmp_size": "1G",
    "workspace_size": "1G",
}
#: The user that programs in a cell are.
OWN_USERS = ("cell", "1000")


class Configuration(BaseModel):
    """Options of cellblock-serve(1), with `_` for `-`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def options(self) -> dict[str, Any]:
        """The options that are given."""
        return dict(self.model_extra or {})


#: The starts of servers, by the name of the running task and the configuration.
_servers: dict[tuple[str, str], asyncio.Task[Server]] = {}


@sandboxenv(name="cellblock")
class CellblockSandboxEnvironment(SandboxEnvironment):
    """A cell for one sample."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self._sandbox = sandbox

    @classmethod
    def config_files(cls) -> list[str]:
        return ["cellblock.json"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return Configuration(**config)

    @classmethod
    def default_concurrency(cls) -> Optional[int]:
        # The server has a queue of its own.
        return None

    def default_polling_interval(self) -> float:
        return 0.2

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Any, cleanup: bool) -> None:
        for key in [key for key in _servers if key[0] == task_name]:
            start = _servers.pop(key)
            await asyncio.wait([start])
            if start.exception() is None:
                await start.result().close()

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        try:
            server = await _server(task_name, _options(config))
            sandbox = await AsyncSandbox.open(server, label=task_name[:128])
        except CellblockError as error:
            raise SandboxUnavailableError(str(error)) from error
        return {"default": cls(sandbox)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(CellblockSandboxEnvironment)._sandbox.close()

    async def exec(
        self,
        cmd: list[str],
        input: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[dict[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[int] = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None and user not in OWN_USERS:
            raise SandboxUserUnsupportedError(f"a cell has one user, and it is not {user!r}")
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            outcome = await self._sandbox.exec(
                cmd,
                input=input.encode() if isinstance(input, str) else input,
                cwd=cwd,
                env=env,
                timeout=timeout,
                output=most,
            )
        except FileNotFoundError as error:
            return ExecResult(False, 127, "", f"{error.strerror}\n")
        except CellblockError as error:
            raise SandboxUnavailableError(str(error)) from error
        stdout = outcome.stdout.decode(errors="replace")
        stderr = outcome.stderr.decode(errors="replace")
        if outcome.is_cut:
            shown = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
            raise OutputLimitExceededError(shown, stdout or stderr)
        return ExecResult(outcome.status == 0, outcome.status, stdout, stderr)

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        content = contents.encode() if isinstance(contents, str) else contents
        await self._sandbox.write(file, content)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        try:
            content = await self._sandbox.read(file, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        except ValueError as error:
            limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
            raise OutputLimitExceededError(limit, None) from error
        return content.decode() if text else content


def _options(config: Any) -> dict[str, Any]:
    """The options of a task's or sample's configuration: a file, or values."""
    if config is None:
        given: dict[str, Any] = {}
    elif isinstance(config, Configuration):
        given = config.options()
    else:
        given = json.loads(Path(os.fspath(config)).read_text())
    return {**DEFAULTS, **given}


async def _server(task_name: str, options: dict[str, Any]) -> Server:
    """The server of a task, which is started once: samples begin at the same time."""
    key = (task_name, json.dumps(options, sort_keys=True))
    if key not in _servers:
        _servers[key] = asyncio.create_task(Server(**options).start())
    start = _servers[key]
    # If this sample is cancelled, the start goes on for the others.
    await asyncio.wait([start])
    if start.exception() is not None and _servers.get(key) is start:
        del _servers[key]
    return start.result()
