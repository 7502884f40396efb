"""Code with `await` at its top level."""

import asyncio
import contextvars
import functools

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

    runs = asyncio.run
    asyncio.run = beside(runs)
    try:
        if not hasattr(asyncio, "Runner"):  # before Python 3.11: no task outlives its execution
            return runs(evaluate())
        runner = runner or asyncio.Runner()
        return complete(runner.get_loop(), evaluate())
    finally:
        if getattr(asyncio.run, "beside", None) is runs:
            asyncio.run = runs  # unless the code has put its own there


def complete(loop, coroutine):
    task = loop.create_task(coroutine, context=context)
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


def beside(original):
    """`asyncio.run` for code that itself runs in an event loop, as code with a top-level `await`
    does: the other loop is run to its end, while this one waits."""

    @functools.wraps(original)
    def run(main, **options):
        outer = asyncio._get_running_loop()
        task = outer and asyncio.current_task(outer)
        if task is None:
            return original(main, **options)
        asyncio.tasks._leave_task(outer, task)
        asyncio._set_running_loop(None)
        try:
            return original(main, **options)
        finally:
            asyncio.set_event_loop(outer)
            asyncio._set_running_loop(outer)
            asyncio.tasks._enter_task(outer, task)

    run.beside = original
    return run


def close():
    """Cancels the tasks that are left."""
    if runner:
        runner.close()
