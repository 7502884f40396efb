"""The asynchronous half of E2B's own Python SDKs against a server"""

import asyncio

from e2b import NotFoundException
from e2b_code_interpreter import AsyncSandbox


async def lives():
    sandbox = await AsyncSandbox.create(timeout=60, metadata={"kind": "async"})
    assert await sandbox.is_running()
    info = await sandbox.get_info()
    assert info.metadata == {"kind": "async"}, info
    await sandbox.set_timeout(90)
    again = await AsyncSandbox.connect(sandbox.sandbox_id)
    assert (await again.run_code("1 + 1")).text == "2"
    listed = await AsyncSandbox.list().next_items()
    assert sandbox.sandbox_id in [each.sandbox_id for each in listed]
    assert await sandbox.kill() and not await sandbox.is_running()


async def code(sandbox):
    seen = []
    ran = await sandbox.run_code("print('a'); 7", on_stdout=lambda message: seen.append(message.line))
    assert (ran.text, seen) == ("7", ["a\n"]), ran
    context = await sandbox.create_code_context()
    await sandbox.run_code("z = 1", context=context)
    assert (await sandbox.run_code("z")).error.name == "NameError"
    await sandbox.restart_code_context(context)
    assert (await sandbox.run_code("z", context=context)).error.name == "NameError"
    assert context.id in [each.id for each in await sandbox.list_code_contexts()]
    await sandbox.remove_code_context(context)
    # Executions of one context wait for each other, those of two do not.
    texts = await asyncio.gather(*(sandbox.run_code(f"{n} * 2") for n in range(8)))
    assert [ran.text for ran in texts] == [str(n * 2) for n in range(8)], texts
    await sandbox.run_code("import time\nv = 1")
    try:
        await asyncio.wait_for(sandbox.run_code("time.sleep(100)"), 2)
    except asyncio.TimeoutError:
        pass
    assert (await sandbox.run_code("v")).text == "1"


async def files(sandbox):
    files = sandbox.files
    await files.write("a", "text")
    assert await files.read("a") == "text" and await files.exists("a")
    assert await files.make_dir("d") and not await files.make_dir("d")
    await files.rename("a", "d/b")
    assert [entry.name for entry in await files.list("d")] == ["b"]
    await files.remove("d/b")
    try:
        await files.read("d/b")
    except NotFoundException:
        pass
    else:
        raise AssertionError("a file that was removed was read")
    changed = asyncio.Event()
    watch = await files.watch_dir("d", on_event=lambda event: changed.set())
    await files.write("d/new", "1")
    await asyncio.wait_for(changed.wait(), 100)
    await watch.stop()


async def commands(sandbox):
    seen = []
    ran = await sandbox.commands.run("echo a; echo b >&2", on_stdout=seen.append)
    assert (ran.stdout, ran.stderr, seen) == ("a\n", "b\n", ["a\n"]), ran
    reader = await sandbox.commands.run("cat", background=True, stdin=True)
    await sandbox.commands.send_stdin(reader.pid, "in")
    await sandbox.commands.close_stdin(reader.pid)
    assert (await reader.wait()).stdout == "in"
    sleeper = await sandbox.commands.run("sleep 1000", background=True)
    assert sleeper.pid in [each.pid for each in await sandbox.commands.list()]
    assert await sleeper.kill()


async def many():
    boxes = await asyncio.gather(*(AsyncSandbox.create(timeout=60) for _ in range(8)))
    ran = await asyncio.gather(*(box.run_code(f"{n}") for n, box in enumerate(boxes)))
    assert [each.text for each in ran] == [str(n) for n in range(8)]
    await asyncio.gather(*(box.kill() for box in boxes))


async def main():
    await lives()
    print("e2b async: lives: ok")
    sandbox = await AsyncSandbox.create(timeout=300)
    for scenario in [code, files, commands]:
        await scenario(sandbox)
        print(f"e2b async: {scenario.__name__}: ok")
    await sandbox.kill()
    await many()
    print("e2b async: many: ok")


asyncio.run(main())
