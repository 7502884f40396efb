#!/usr/bin/env bash
# Node.js 20.19.5 and 22.21.1: with `--max-old-space-size`, every module of Node's own is compiled anew.
#
# The executable of Node holds the compiled form of its modules (the code cache). V8 rejects it when a
# flag of V8 differs from its default, and up to Node 23 the limit of the heap is such a flag.
# `require('net')` then took 9 ms instead of 2, without a warning. From Node 24 on, this flag does not
# count; others, such as `--stack-size`, still do. V8 reads the limit when it makes a heap. So a program
# may take the flag back with v8.setFlagsFromString('--max-old-space-size=0'): its own heap keeps
# its limit, and the modules that it loads from then on come from the cache. Heaps of threads (Worker)
# that start then have no such limit, until the program sets the flag again.
#
# Each line shows whether modules came from the cache, whether some were compiled, and what became of the limit.
#
# Needs: the npm registry, npm (any Node). Some 300 MB in a temporary folder.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >count.cjs <<'JS'
const { internalBinding } = require('internal/test/binding');
const v8 = require('node:v8');
const limit = () => v8.getHeapStatistics().heap_size_limit;
const before = limit();
const usage = () => {
  const { compiledWithCache, compiledWithoutCache } = internalBinding('builtins').getCacheUsage();
  return [compiledWithCache, compiledWithoutCache].map((list) => list.size ?? list.length);
};
const start = usage();
if (process.argv[2] === 'taken-back') v8.setFlagsFromString('--max-old-space-size=0');
require('node:http');
const words = usage().map((count, index) => (count > start[index] ? 'some' : 'none'));
console.log(...words, limit() === before ? 'same limit' : 'another limit');
JS
seen=$(
    for version in 20.19.5 22.21.1 24.12.0; do
        npm install --silent --no-audit --no-fund --prefix "$version" "node@$version" >&2
        node=$version/node_modules/node/bin/node
        count() { echo "$version $1: $("$node" --no-warnings --expose-internals "${@:2}")"; }
        count 'no flag' count.cjs
        count 'heap flag' --max-old-space-size=512 count.cjs
        count 'heap flag, taken back' --max-old-space-size=512 count.cjs taken-back
        count 'stack flag' --stack-size=900 count.cjs
    done
)
echo "$seen"
diff - <(echo "$seen") <<'SEEN' || { echo "the behaviour has changed"; exit 1; }
20.19.5 no flag: some none same limit
20.19.5 heap flag: none some same limit
20.19.5 heap flag, taken back: some none same limit
20.19.5 stack flag: none some same limit
22.21.1 no flag: some none same limit
22.21.1 heap flag: none some same limit
22.21.1 heap flag, taken back: some none same limit
22.21.1 stack flag: none some same limit
24.12.0 no flag: some none same limit
24.12.0 heap flag: some none same limit
24.12.0 heap flag, taken back: some none same limit
24.12.0 stack flag: none some same limit
SEEN
