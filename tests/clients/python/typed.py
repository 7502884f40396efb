"""The package as code with types uses it: checked, and not run.

    mypy --strict typed.py
"""

from typing import Optional

from typing_extensions import assert_type

import cellblock
from cellblock import aio


def blocking() -> None:
    run = cellblock.run("1", wall="1s", files={"a": b""})
    assert_type(run, cellblock.Run)
    assert_type(run.value, Optional[str])
    with cellblock.Server(memory="1G") as server, server.context("python", keep=True) as context:
        assert_type(context.run("1", wall=1), cellblock.Execution)
        assert_type(context.exec(["true"], timeout=1.5), cellblock.Outcome)
        assert_type([event.text for event in context.stream("1")], list[str])
        assert_type(context.fork(2), list[cellblock.Context])
        with cellblock.Sandbox(server=server, label="a") as sandbox:
            assert_type(sandbox.exec("true", input=b"", env={"A": "b"}), cellblock.Outcome)
            assert_type(sandbox.read("a"), bytes)


async def coroutines() -> None:
    async with aio.Server() as server, await server.context() as context:
        assert_type(await context.run("1"), cellblock.Execution)
        assert_type(await context.exec("true"), cellblock.Outcome)
        async for event in context.stream("1"):
            assert_type(event, cellblock.Event)
        async with await cellblock.AsyncSandbox.open(server) as sandbox:
            assert_type(await sandbox.read("a", 10), bytes)


def wrong() -> None:
    cellblock.run("1", wal=1)  # type: ignore[call-arg]
    cellblock.Sandbox().exec("true", input="text")  # type: ignore[arg-type]
