// Worker threads reserve less memory for their code. V8 asks for half a gigabyte in each,
// writable, which a limit on a process's data counts whether it is used or not.
'use strict';
const threads = require('node:worker_threads');

const CODE = { codeRangeSizeMb: 64 };

threads.Worker = new Proxy(threads.Worker, {
  construct(target, [file, options, ...rest], created) {
    const resourceLimits = { ...CODE, ...options?.resourceLimits };
    return Reflect.construct(target, [file, { ...options, resourceLimits }, ...rest], created);
  },
});
// `node:module` itself is not loaded at a start, and takes two milliseconds with what it loads.
module.constructor.syncBuiltinESMExports();
