"""Code with `await` at its top level."""

import asyncio

from .source import is_coroutine

runner = None


def run(codes, scope):
    """Evaluates the code objects in one event loop; the value of the last one."""
    global runner

    async def evaluate():
        for code in codes:
            value = eval(code, scope)
            if is_coroutine(code):
                value = await value
        return value

    if not hasattr(asyncio, "Runner"):  # before Python 3.11: no task outlives its execution
        return asyncio.run(evaluate())
    runner = runner or asyncio.Runner()
    return runner.run(evaluate())


def close():
    """Cancels the tasks that are left."""
    if runner:
        runner.close()
