// SIGINT: Node's own watchdog ends code that runs, a flag tells those who wait, and a thread
// ends what runs after waiting (terminator.cjs).
'use strict';
const { readdirSync, readFileSync } = require('node:fs');
const process = require('node:process');
const { Script } = require('node:vm');

// By this global, the driver is called from within a script.
const REGION = '\0cellblock region';
let work;
Object.defineProperty(globalThis, REGION, { value: () => work() });

/** What Node has for its REPL, but offers to nobody else; undefined in a Node without. */
function watchdog() {
  try {
    const { startSigintWatchdog, stopSigintWatchdog, watchdogHasPendingSigint } = process.binding('contextify');
    return startSigintWatchdog && stopSigintWatchdog && { startSigintWatchdog, stopSigintWatchdog, watchdogHasPendingSigint };
  } catch {
    return undefined;
  }
}

const THREADS = '/proc/self/task';

/** Starts the watchdog: the file that tells the state of its thread; undefined if it is
 * not known. */
function start(watchdog) {
  try {
    const before = new Set(readdirSync(THREADS));
    watchdog.startSigintWatchdog();
    const [thread, ...others] = readdirSync(THREADS).filter((each) => !before.has(each));
    return thread && others.length === 0 ? `${THREADS}/${thread}/stat` : undefined;
  } catch {
    return undefined;
  }
}

// Milliseconds between two looks at the flag, while code waits for something.
const PERIOD = 20;
const MOMENT = new Int32Array(new SharedArrayBuffer(4));

class Interrupts {
  constructor() {
    this.watchdog = watchdog();
    // Of a name that is not shown among the callers.
    this.script = new Script(`globalThis[${JSON.stringify(REGION)}]()`, { filename: `${__dirname}/interrupts.cjs` });
    this.timer = undefined;
    this.terminator = undefined;
    // From now on the signal sets the flag, unless the program has listeners of its own.
    this.thread = this.watchdog && start(this.watchdog);
  }

  /** Calls a function that the signal can end; returns whether it did. */
  region(action) {
    this.stop();
    // Listeners of the program's own hear the signal once its code lets them.
    if (!this.watchdog || process.listenerCount('SIGINT') > 0) {
      action();
      return false;
    }
    let isInterrupted = true;
    work = action;
    try {
      this.script.runInThisContext({ breakOnSigint: true, displayErrors: false });
      isInterrupted = false;
    } catch (error) {
      if (error?.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw error;
    }
    return isInterrupted;
  }

  /** Calls a function once, when the signal comes. Where other executions follow, the signal
   * also ends what the code runs meanwhile. */
  wait(action, isLast) {
    if (!this.watchdog) return;
    if (!isLast && process.listenerCount('SIGINT') === 0) {
      this.terminator ??= require('./terminator.cjs').terminator();
      this.terminator?.permit();
    }
    this.timer = setInterval(() => {
      if (!this.watchdog.watchdogHasPendingSigint()) return;
      // Before the timer is cleared: it comes again if this is ended in its midst.
      this.terminator?.withdraw();
      clearInterval(this.timer);
      action();
    }, PERIOD);
    this.timer.unref();
  }

  /** Forgets the signals that have come, and waits no longer. */
  stop() {
    clearInterval(this.timer);
    this.terminator?.withdraw();
    if (!this.watchdog) return;
    this.settle();
    // Starting it once more clears nothing; stopping it does.
    this.watchdog.startSigintWatchdog();
    this.watchdog.stopSigintWatchdog();
  }

  /** Waits until the watchdog's thread has noticed the signals that have come: it sleeps. */
  settle() {
    const sleeps = () => {
      try {
        const state = readFileSync(this.thread, 'latin1');
        return state[state.lastIndexOf(')') + 2] === 'S';
      } catch {
        return true; // There are no descriptors left, for example.
      }
    };
    for (let tries = 0; this.thread && !sleeps() && tries < 10_000; tries++) Atomics.wait(MOMENT, 0, 0, 0.1);
  }

  /** The program ends: the signal has its usual effect. */
  end() {
    this.stop();
    this.watchdog?.stopSigintWatchdog();
    this.watchdog = undefined;
  }
}

/** What an execution ends with that the signal has ended. */
function interruption() {
  const error = new Error('the execution was interrupted');
  error.name = 'Interrupted';
  error.stack = `${error}`;
  return error;
}

module.exports = { Interrupts, interruption };
