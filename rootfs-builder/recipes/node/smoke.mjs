import assert from "node:assert";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";
import { gzipSync, gunzipSync } from "node:zlib";

assert.equal(createHash("sha256").update("").digest("hex").length, 64);
assert.equal(gunzipSync(gzipSync("x")).toString(), "x");
writeFileSync("note.txt", "kept");
assert.equal(readFileSync("note.txt", "utf8"), "kept");
assert.equal(createRequire(import.meta.url)("node:path").basename("/a/b"), "b");
assert.equal(execFileSync("sh", ["-c", "echo ok"]).toString(), "ok\n");
assert.equal(new Intl.NumberFormat("de-DE").format(1234.5), "1.234,5");
assert.ok(process.versions.openssl);
const answer = await new Promise((resolve, reject) => {
  const worker = new Worker(
    "require('node:worker_threads').parentPort.postMessage(6 * 7)",
    { eval: true },
  );
  worker.on("message", resolve);
  worker.on("error", reject);
});
assert.equal(answer, 42);
