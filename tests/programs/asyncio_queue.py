import asyncio


async def producer(queue):
    for n in range(5):
        await queue.put(n)
    await queue.put(None)


async def consumer(queue, out):
    while (n := await queue.get()) is not None:
        await asyncio.sleep(0)
        out.append(n * 10)


async def main():
    queue, out = asyncio.Queue(maxsize=2), []
    async with asyncio.timeout(100):
        await asyncio.gather(producer(queue), consumer(queue, out))
    process = await asyncio.create_subprocess_exec(
        "echo", "from a child", stdout=asyncio.subprocess.PIPE)
    text, _ = await process.communicate()
    return out, text.decode().strip()


print(asyncio.run(main()))
