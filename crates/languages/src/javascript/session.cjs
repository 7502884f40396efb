// Executes one request after the other as cells of a notebook.
'use strict';
const path = require('node:path');
const process = require('node:process');
const { Channel } = require('./protocol.cjs');
const { evaluate } = require('./evaluate.cjs');
const { Interrupts, interruption } = require('./interrupts.cjs');
const { prepareConsole, replaceStreams } = require('./output.cjs');
// The class of `node:module`, which Node has already. That module itself is not loaded at a start,
// and takes two milliseconds with what it loads.
const Module = process.mainModule.constructor;

class Session {
  constructor(convert) {
    this.convert = convert;
    this.channel = new Channel(Number(process.argv[2]));
    this.execution = undefined; // the one whose code runs
    this.last = undefined; // that one, or the one before
    this.status = 0; // of the process, as far as its executions decide
    this.interrupts = new Interrupts();
    this.isInRegion = false;
    this.atStart = undefined; // the names of globals before the first execution
  }

  serve() {
    const request = this.next();
    if (!request) return;
    this.disguise(request);
    replaceStreams();
    ignoreOwnWarnings();
    process.on('uncaughtException', (error) => {
      // A handler of the program's own takes care of it, as without the driver.
      if (process.listenerCount('uncaughtException') === 1) this.fail(error);
    });
    process.on('beforeExit', () => {
      if (!this.execution) return;
      const error = new Error('an await at the top level waits for something that never happens');
      error.stack = `${error}`;
      this.fail(error, undefined, 13);
    });
    // The program called process.exit().
    process.on('exit', () => {
      if (!this.execution) return;
      this.channel.send('ending');
      this.channel.send('done');
    });
    this.atStart = new Set(Object.getOwnPropertyNames(globalThis));
    this.execute(request);
  }

  /** The next request to execute something; undefined at the end. */
  next() {
    for (;;) {
      const request = this.channel.receive();
      if (request?.work?.[0].latin1Slice() !== 'describe') return request;
      this.describe();
    }
  }

  execute(request) {
    const text = (key) => request[key][0].utf8Slice();
    const name = this.last ? `${text('name')}[${this.channel.execution}]` : text('name');
    const execution = {
      file: path.resolve(text('directory'), name),
      source: text('code').replace(/^\uFEFF/, ''),
      isOver: false,
      isLast: 'last' in request,
    };
    this.execution = execution;
    this.last = execution;
    this.status = 0;
    process.argv.splice(2, Infinity, ...(request.argument ?? []).map(String));
    if (execution.source.includes('console')) prepareConsole();
    this.attempt(() => {
      this.channel.send('started');
      this.begin(execution);
    });
  }

  begin(execution) {
    let code;
    try {
      code = this.convert(execution.source.replace(/^#!/, '//'), execution);
    } catch (error) {
      return this.fail(error, error.place ?? {});
    }
    const isCurrent = () => this.execution === execution && !execution.isOver;
    evaluate(code, execution, {
      end: (value) => {
        if (!isCurrent()) return;
        this.attempt(() => {
          if (value !== undefined) this.results().show(value, true);
          execution.isOver = true;
        });
      },
      fail: (error, place) => {
        if (!isCurrent()) return;
        this.attempt(() => {
          if (place) this.fail(error, place);
          // What Node does with an error that nothing caught.
          else process.emit('uncaughtException', error, 'uncaughtException');
          execution.isOver = true;
        });
      },
    });
  }

  /** Calls a part of the execution that SIGINT can end, and then waits for the next one
   * if it is over. */
  attempt(action) {
    if (this.isInRegion) return action();
    const { execution } = this;
    this.isInRegion = true;
    let isInterrupted;
    try {
      isInterrupted = this.interrupts.region(action);
    } finally {
      this.isInRegion = false;
      this.channel.finish();
    }
    if (execution.isOver) this.conclude();
    else if (isInterrupted) this.interrupt();
    else this.interrupts.wait(() => this.interrupt(), execution.isLast);
  }

  /** Ends an execution that SIGINT has stopped. What it waits for may go on. */
  interrupt() {
    const { execution } = this;
    try {
      execution.session?.disconnect();
    } catch {
      // It is closed already.
    }
    const { ErrorReport } = require('./errors.cjs');
    new ErrorReport(execution, interruption()).send(this.channel);
    this.status = 130;
    this.conclude();
  }

  /** Lists the variables; if that is interrupted, those that it has come to. */
  describe() {
    this.channel.send('started');
    const fields = [];
    try {
      if (this.atStart) this.interrupts.region(() => require('./describe.cjs').describe(this.atStart, fields));
    } catch {
      // The list is shorter.
    }
    this.channel.send('variables', fields);
    this.interrupts.stop();
    this.channel.send('done');
  }

  results() {
    const { Results } = require('./results.cjs');
    return new Results(this.channel);
  }

  fail(error, place, status = 1) {
    const { execution } = this;
    const report = () => {
      const { ErrorReport } = require('./errors.cjs');
      new ErrorReport(this.last, error, place).send(this.channel);
      this.status = status;
      if (execution) execution.isOver = true;
    };
    if (execution) return this.attempt(report);
    report();
    process.exit(1); // Nothing but the event loop was left.
  }

  /** Ends the execution, and waits for the next one. Meanwhile, the event loop rests. */
  conclude() {
    this.execution = undefined;
    this.interrupts.stop();
    this.channel.send('done');
    const request = this.next();
    if (request) setImmediate(() => this.execute(request));
    else if (this.status !== 0) process.exit(this.status);
    else this.interrupts.end();
  }

  /** Makes the process look as if Node had been started with the user's file. */
  disguise(request) {
    const directory = request.directory[0].utf8Slice();
    const file = path.resolve(directory, request.name[0].utf8Slice());
    delete Module._cache[process.argv[1]];
    const module = new Module(file, null);
    module.filename = file;
    module.paths = Module._nodeModulePaths(directory);
    process.mainModule = module;
    process.argv.splice(1, Infinity, file);
    const own = Module.createRequire(file);
    own.main = module;
    const globals = {
      require: own,
      module,
      exports: module.exports,
      __filename: file,
      __dirname: directory,
      display: (value, type) => this.results().display(value, type),
    };
    for (const [name, value] of Object.entries(globals)) {
      Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
    }
  }
}

/** Hides warnings about what the driver itself uses and Node calls experimental. */
function ignoreOwnWarnings() {
  const { emitWarning } = process;
  process.emitWarning = function (warning, ...rest) {
    if (/^(?:vm\.USE_MAIN|stripTypeScriptTypes)/.test(warning)) return;
    Reflect.apply(emitWarning, this, [warning, ...rest]);
  };
}

module.exports = { serve: (convert) => new Session(convert).serve() };
