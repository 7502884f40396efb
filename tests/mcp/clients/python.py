"""cellblock with the Python SDK of the protocol, whichever line is installed.

    python3 python.py CELLBLOCK REVISION

CELLBLOCK is an executable, whose `mcp` is started, or the URL of a server's `/mcp`. REVISION is
the one that client and server must agree on.
"""

import asyncio
import sys

import mcp
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

CELLBLOCK, REVISION = sys.argv[1:]
IS_HTTP = CELLBLOCK.startswith("http://")


def field(value, name):
    """A field under its Python name, which the older line does not have."""
    if hasattr(value, name):
        return getattr(value, name)
    head, *tail = name.split("_")
    return getattr(value, head + "".join(part.title() for part in tail))


async def data(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not field(result, "is_error"), result
    return field(result, "structured_content")


async def scenario(client):
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert names[:2] == ["run_code", "run_command"], names
    assert (await data(client, "run_code", code="6 * 7"))["value"] == "42"
    failed = await client.call_tool("run_code", {"code": "1 / 0"})
    assert field(failed, "is_error"), failed
    assert "ZeroDivisionError" in failed.content[0].text, failed

    context = (await data(client, "create_context", label="sdk"))["context_id"]
    await data(client, "run_code", code="x = [1]", context_id=context)
    run = await data(client, "run_code", code="x.append(2); x", context_id=context)
    assert (run["value"], run["state"]) == ("[1, 2]", "kept"), run
    listed = await data(client, "list_contexts")
    assert [entry["label"] for entry in listed["contexts"]] == ["sdk"], listed

    await data(client, "write_file", context_id=context, path="in.txt", text="hello\n")
    run = await data(client, "run_command", context_id=context, command="wc -c in.txt")
    assert run["stdout"] == "6 in.txt\n", run
    listed = await data(client, "list_files", context_id=context)
    assert [entry["path"] for entry in listed["entries"]] == ["in.txt"], listed
    read = await client.read_resource(f"cellblock://context/{context}/files/in.txt")
    assert read.contents[0].text == "hello\n", read
    templates = await client.list_resource_templates()
    assert len(field(templates, "resource_templates")) == 3, templates

    reports = []

    async def report(progress, total, message):
        reports.append((progress, message))

    code = "import time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.7)"
    await client.call_tool("run_code", {"code": code}, progress_callback=report)
    assert reports, "no progress"

    call = client.call_tool("run_code", {"code": "while True: pass", "context_id": context})
    try:
        await asyncio.wait_for(call, 1)
    except asyncio.TimeoutError:
        pass
    run = await data(client, "run_code", code="x", context_id=context)
    assert run["value"] == "[1, 2]" and run["state"] in ("kept", "lost"), run

    restarted = await data(client, "restart_context", context_id=context)
    assert restarted["state"] == "lost", restarted
    assert (await data(client, "close_context", context_id=context))["closed"] == context


async def main():
    server = StdioServerParameters(command=CELLBLOCK, args=["mcp", "--rootfs", "host"])
    if hasattr(mcp, "Client"):
        async with mcp.Client(CELLBLOCK if IS_HTTP else stdio_client(server)) as client:
            assert client.protocol_version == REVISION, client.protocol_version
            await scenario(client)
    else:
        transport = streamable_http_client(CELLBLOCK) if IS_HTTP else stdio_client(server)
        async with transport as (read, write, *_):
            async with mcp.ClientSession(read, write) as session:
                greeting = await session.initialize()
                assert greeting.protocolVersion == REVISION, greeting
                assert "run_code" in greeting.instructions, greeting
                await scenario(session)
    print(f"the Python SDK and {'/mcp' if IS_HTTP else 'cellblock mcp'} agree on {REVISION}: all scenarios passed")


asyncio.run(main())
