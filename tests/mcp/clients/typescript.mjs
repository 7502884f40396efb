// cellblock with a TypeScript SDK of the protocol.
//
//     node typescript.mjs PACKAGE CELLBLOCK REVISION
//
// PACKAGE is sdk, the line of revisions before 2026-07-28, or client. CELLBLOCK is an
// executable, whose `mcp` is started, or the URL of a server's `/mcp`. REVISION is the one that
// client and server must agree on.

import assert from "node:assert/strict";

const [line, cellblock, revision] = process.argv.slice(2);
const isHttp = cellblock.startsWith("http://");
const load = (path) => import(`@modelcontextprotocol/${line}/${path}`);
const { Client } = line === "sdk" ? await load("client/index.js") : await import("@modelcontextprotocol/client");
const { StdioClientTransport } = await load(line === "sdk" ? "client/stdio.js" : "stdio");
const { StreamableHTTPClientTransport } =
  line === "sdk" ? await load("client/streamableHttp.js") : await import("@modelcontextprotocol/client");
const transport = isHttp
  ? new StreamableHTTPClientTransport(new URL(cellblock))
  : new StdioClientTransport({ command: cellblock, args: ["mcp", "--rootfs", "host"] });

const client = new Client({ name: "test", version: "1" }, line === "sdk" ? {} : { versionNegotiation: { mode: "auto" } });
await client.connect(transport);
// The older line accepts no other answer than the revision that it asks for.
const agreed = line === "sdk" ? (await load("types.js")).LATEST_PROTOCOL_VERSION : client.getNegotiatedProtocolVersion();
assert.equal(agreed, revision);
assert.match(client.getInstructions(), /run_code/);

const call = (name, args, options) =>
  line === "sdk"
    ? client.callTool({ name, arguments: args }, undefined, options)
    : client.callTool({ name, arguments: args }, options);
const data = async (name, args) => {
  const result = await call(name, args);
  assert.ok(!result.isError, JSON.stringify(result));
  return result.structuredContent;
};

// The SDK checks answers against the output schemas that it has listed.
const { tools } = await client.listTools();
assert.deepEqual(tools.slice(0, 2).map((tool) => tool.name), ["run_code", "run_command"]);
assert.equal((await data("run_code", { code: "6 * 7" })).value, "42");
const failed = await call("run_code", { code: "1 / 0" });
assert.ok(failed.isError && /ZeroDivisionError/.test(failed.content[0].text));

const { context_id } = await data("create_context", { language: "javascript" });
await data("run_code", { code: "let x = [1]", context_id });
const run = await data("run_code", { code: "x.push(2); x.length", context_id });
assert.deepEqual([run.value, run.state], ["2", "kept"]);
await data("write_file", { context_id, path: "in.txt", text: "hello" });
const read = await client.readResource({ uri: `cellblock://context/${context_id}/files/in.txt` });
assert.equal(read.contents[0].text, "hello");

const reports = [];
const code = "import time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.7)";
await call("run_code", { code }, { onprogress: (report) => reports.push(report) });
assert.ok(reports.length > 0);

const abort = new AbortController();
setTimeout(() => abort.abort("enough"), 500);
await assert.rejects(call("run_code", { code: "while True: pass" }, { signal: abort.signal }));
assert.equal((await data("close_context", { context_id })).closed, context_id);
await client.close();
console.log(`the TypeScript ${line} and ${isHttp ? "/mcp" : "cellblock mcp"} agree on ${revision}: all scenarios passed`);
