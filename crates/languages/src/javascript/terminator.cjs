// Ends code that runs in a callback, or after an await that waited: no script is around it
// that Node's own watchdog could end. A thread does so from outside, by the inspector.
'use strict';
const { Worker } = require('node:worker_threads');

// The driver runs; code may run; the thread is about to end it; V8 has the order.
const DRIVER = 0;
const CODE = 1;
const CLAIMED = 2;
const ORDERED = 3;
// Milliseconds between two looks of the thread, and the looks that find the signal before it
// acts: code that only waits has been interrupted without it by then.
const PERIOD = 10;
const LOOKS = 3;
// Turns of a loop after which V8 has followed an order, which it does in one of the first.
const TURNS = 1e5;

const THREAD = `
const { Session } = require('node:inspector');
const { workerData: state } = require('node:worker_threads');
const { watchdogHasPendingSigint } = process.binding('contextify');
let looks = 0;
(function look() {
  Atomics.wait(state, 0, ${DRIVER});
  looks = Atomics.load(state, 0) === ${CODE} && watchdogHasPendingSigint() ? looks + 1 : 0;
  if (looks >= ${LOOKS} && Atomics.compareExchange(state, 0, ${CODE}, ${CLAIMED}) === ${CODE}) {
    const session = new Session();
    session.connectToMainThread();
    session.post('Runtime.terminateExecution');
    Atomics.store(state, 0, ${ORDERED});
    setTimeout(() => session.disconnect(), 1000);
  }
  setTimeout(look, ${PERIOD});
})();
`;

class Terminator {
  constructor() {
    this.state = new Int32Array(new SharedArrayBuffer(4));
    const options = { eval: true, workerData: this.state, stdin: false, env: {}, execArgv: [], resourceLimits: { codeRangeSizeMb: 16, maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 1, stackSizeMb: 1 } };
    const worker = new Worker(THREAD, options);
    worker.on('error', () => {}); // Such code has to be killed, then.
    worker.unref();
  }

  /** From now on, until `withdraw`, the signal ends what runs. */
  permit() {
    Atomics.store(this.state, 0, CODE);
    Atomics.notify(this.state, 0);
  }

  /** The driver goes on, and nothing ends it. An order that was on its way takes effect in
   * here, or has done so before. Nothing is allocated meanwhile: Node 22 aborts when the
   * promise of code that was ended is collected before its session is closed. */
  withdraw() {
    if (Atomics.compareExchange(this.state, 0, CODE, DRIVER) < CLAIMED) return;
    while (Atomics.load(this.state, 0) === CLAIMED);
    for (let turn = 0; turn < TURNS; turn++) Atomics.load(this.state, 0);
    Atomics.store(this.state, 0, DRIVER);
  }
}

/** A terminator; undefined where no thread can be started. */
function terminator() {
  try {
    return new Terminator();
  } catch {
    return undefined;
  }
}

module.exports = { terminator };
