// Loads modules of Node's own as fast as a Node without flags does. Its executable holds their
// compiled form, which V8 rejects while a flag differs from its default: each is compiled again.
// One such flag is the limit of the heap, up to Node 23. V8 reads it when a heap is made. So this
// process keeps its limit while the flag is taken back, but a thread that starts meanwhile would
// have none.
'use strict';
const LIMIT = /^--max-old-space-size=[1-9]\d*$/;
const DEFAULT = '--max-old-space-size=0';

const limit = parseInt(process.versions.node) < 24 && process.execArgv.findLast((flag) => LIMIT.test(flag));
const setFlags = limit && setter();

/** What v8.setFlagsFromString() calls; undefined in a Node without. `node:v8` itself loads too much. */
function setter() {
  const { noDeprecation } = process;
  process.noDeprecation = true;
  try {
    return process.binding('v8').setFlagsFromString;
  } catch {
    return undefined;
  } finally {
    if (noDeprecation === undefined) delete process.noDeprecation;
    else process.noDeprecation = noDeprecation;
  }
}

const mayHaveThreads = () => process.moduleLoadList.includes('NativeModule internal/worker');

/** Calls a function that loads such modules. */
function quickly(action) {
  if (!setFlags || mayHaveThreads()) return action();
  setFlags(DEFAULT);
  try {
    return action();
  } finally {
    setFlags(limit);
  }
}

module.exports = { quickly };
