// Worker threads reserve less memory for their code. V8 asks for half a gigabyte in each,
// writable, which a limit on a process's data counts whether it is used or not.
'use strict';
const Module = require('node:module');

const CODE = { codeRangeSizeMb: 16 };

let isDone = false;

function reserveLess() {
  if (isDone) return;
  isDone = true;
  const threads = require('node:worker_threads');
  threads.Worker = new Proxy(threads.Worker, {
    construct(target, [file, options, ...rest], created) {
      const resourceLimits = { ...CODE, ...options?.resourceLimits };
      return Reflect.construct(target, [file, { ...options, resourceLimits }, ...rest], created);
    },
  });
  Module.syncBuiltinESMExports();
}

module.exports = { reserveLess };
