"""Code with `await` at its top level."""

import asyncio
import contextvars

from .source import is_coroutine

runner = None
context = contextvars.copy_context()  # what one execution sets, the next one sees


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
    loop = runner.get_loop()
    task = loop.create_task(evaluate(), context=context)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        # An interrupt may have come while others ran; the code does not go on later.
        if not task.done():
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
        if not task.cancelled():
            task.exception()  # which is reported already
        raise


def close():
    """Cancels the tasks that are left."""
    if runner:
        runner.close()
