"""A cell to run commands in, and to keep files anywhere in it: what agents call a sandbox.

The commands of one sandbox run beside each other in the same cell, and see each other's files and
processes. For event loops; `cellblock.blocking` makes the same calls from threads.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from .aio import Context, Server
from .errors import Lost
from .requests import ContextOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The most bytes of a file in one request.
PART = 4 << 20
#: The most characters of a request or an answer that go through the interpreter's source or
#: output; longer ones are files.
INLINE = 64 << 10
#: How long one request waits for a program, in seconds; the requests of others come in between.
TURN = 0.25
#: The most bytes that are kept of each stream.
OUTPUT = 10 << 20

AGENT = pathlib.Path(__file__).with_name("agent.py")


class Outcome:
    """How a command ended."""

    def __init__(self, status: int, stdout: bytes, stderr: bytes, cut: Sequence[bool]) -> None:
        #: The exit status; 128 and the signal's number after a signal.
        self.status = status
        self.stdout = stdout
        #: Empty where both were asked for together.
        self.stderr = stderr
        #: Whether output was more than what is kept.
        self.is_cut = any(cut)


class Sandbox:
    """A cell for commands. Made by `open`; it ends with `close`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._numbers = itertools.count(1)
        self._going_on = 0
        self._is_ready = False
        self._preparing = asyncio.Lock()

    @classmethod
    async def open(cls, server: Server, **options: Unpack[ContextOptions]) -> Sandbox:
        """Opens a sandbox of this server."""
        return cls(await server.context("python", **options))

    @property
    def id(self) -> str:
        """Its name at the server."""
        return self._context.id

    async def close(self) -> None:
        """Ends the cell and all that runs in it."""
        await self._context.delete()

    async def exec(
        self,
        command: Union[str, Sequence[str]],
        *,
        input: Optional[bytes] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        output: int = OUTPUT,
        together: bool = False,
    ) -> Outcome:
        """Runs a program, or a text by `sh -c`, and waits for it. With `together`, standard
        error is part of standard output.

        Raises TimeoutError after `timeout` seconds, when all that it has started is killed, and
        OSError where it cannot be started. To cancel it kills all that it has started.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        number = next(self._numbers)
        source = None
        if input is not None:
            source = f"/tmp/.cellblock-input-{number}"
            await self.write(source, input)
        self._going_on += 1
        try:
            await self._ask(
                "start",
                number=number,
                argv=argv,
                cwd=os.path.join("/workspace", cwd or ""),
                env=dict(env or {}),
                source=source,
                most=output,
                timeout=timeout,
                together=together,
            )
            return await self._result(number, timeout)
        except asyncio.CancelledError:
            await self._ask("kill", number=number)
            raise
        finally:
            self._going_on -= 1

    async def _result(self, number: int, timeout: Optional[float]) -> Outcome:
        while True:
            # All that wait take turns in one interpreter.
            answer = await self._ask("wait", number=number, patience=TURN / self._going_on)
            if "status" in answer:
                break
            if self._going_on > 1:
                await asyncio.sleep(0.01)
        if answer["timeout"]:
            raise TimeoutError(f"the command took longer than {timeout} s")
        streams = [base64.b64decode(stream) for stream in answer["streams"]] + [b""]
        return Outcome(int(answer["status"]), streams[0], streams[1], answer["cut"])

    async def write(self, path: str, content: bytes) -> None:
        """Writes a file, and makes the directories above it. A relative path starts at
        /workspace. Raises OSError."""
        for start in range(0, len(content) or 1, PART):
            part = base64.b64encode(content[start : start + PART]).decode()
            await self._ask("write", path=_absolute(path), content=part, append=start > 0)

    async def read(self, path: str, most: Optional[int] = None) -> bytes:
        """The content of a file. A relative path starts at /workspace. Raises OSError, and
        ValueError where it has more than `most` bytes."""
        parts: list[bytes] = []
        found = 0
        while True:
            answer = await self._ask("read", path=_absolute(path), offset=found, most=PART)
            part = base64.b64decode(answer["content"])
            found += len(part)
            if most is not None and max(found, int(answer["size"])) > most:
                raise ValueError(f"{path} has more than {most} bytes")
            parts.append(part)
            if len(part) < PART:
                return b"".join(parts)

    async def _ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Makes a request of the agent. None takes long, and one that was cancelled would
        interrupt the agent, and by chance another caller's request."""
        return await asyncio.shield(self._asked(operation, parameters))

    async def _asked(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        await self._prepare()
        request = json.dumps([operation, parameters])
        number = next(self._numbers)
        if len(request) > INLINE:
            name = f".cellblock-request-{number}"
            await self._context.files.write(name, request)
            request = f"@/workspace/{name}"
        else:
            # In the source the interpreter would see the words of the request, such as __file__,
            # which makes it provide a file.
            request = base64.b64encode(request.encode()).decode()
        elsewhere = f".cellblock-answer-{number}"
        code = f"_cellblock.answer({request!r}, {INLINE}, {'/workspace/' + elsewhere!r})"
        answer = await self._run(code)
        if answer.get("elsewhere"):
            answer = _parsed(await self._context.files.read(elsewhere))
            await self._context.files.remove(elsewhere)
        if "errno" in answer:
            errno, shown = int(answer["errno"]), answer.get("path") or parameters.get("path")
            raise OSError(errno, os.strerror(errno), shown)
        return answer

    async def _prepare(self) -> None:
        async with self._preparing:
            if self._is_ready:
                return
            source = AGENT.read_text()
            code = (
                "import types\n_cellblock = types.ModuleType('cellblock_agent')\n"
                f"exec({source!r}, _cellblock.__dict__)\nprint('{{}}')"
            )
            await self._run(code)
            self._is_ready = True

    async def _run(self, code: str) -> dict[str, Any]:
        run = await self._context.run(code)
        if run.state == "lost":
            self._is_ready = False
        if not run.ok:
            raise Lost(f"the sandbox cannot run commands: {run.context}", state=run.state)
        return _parsed(run.stdout_bytes)


def _absolute(path: str) -> str:
    return os.path.join("/workspace", path)


def _parsed(line: bytes) -> dict[str, Any]:
    """The answer of the agent, which code in the cell can have changed."""
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Lost("the sandbox gave an answer that cannot be read")
    return answer
