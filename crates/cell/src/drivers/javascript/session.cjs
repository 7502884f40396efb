// Executes one request after the other as cells of a notebook.
'use strict';
const Module = require('node:module');
const path = require('node:path');
const process = require('node:process');
const { Channel } = require('./protocol.cjs');
const { evaluate } = require('./evaluate.cjs');

class Session {
  constructor(convert) {
    this.convert = convert;
    this.channel = new Channel(Number(process.argv[2]));
    this.execution = undefined; // the one whose code runs
    this.last = undefined; // that one, or the one before
    this.status = 0; // of the process, as far as its executions decide
  }

  serve() {
    const request = this.channel.receive();
    if (!request) throw new Error('cellblock: there is no request');
    this.disguise(request);
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
    process.on('exit', () => this.execution && this.channel.send('done'));
    this.execute(request);
  }

  execute(request) {
    const text = (key) => request[key][0].utf8Slice();
    const name = this.channel.execution === '1' ? text('name') : `${text('name')}[${this.channel.execution}]`;
    const execution = {
      file: path.resolve(text('directory'), name),
      source: text('code').replace(/^\uFEFF/, ''),
    };
    this.execution = execution;
    this.last = execution;
    this.status = 0;
    process.argv.splice(2, Infinity, ...(request.argument ?? []).map(String));
    this.channel.send('started');
    let code;
    try {
      code = this.convert(execution.source.replace(/^#!/, '//'), execution);
    } catch (error) {
      return this.fail(error, error.place ?? {});
    }
    evaluate(code, execution, {
      end: (value) => {
        if (value !== undefined) this.results().show(value, true);
        this.conclude(execution);
      },
      fail: (error, place) => {
        if (place) this.fail(error, place);
        // What Node does with an error that nothing caught.
        else process.emit('uncaughtException', error, 'uncaughtException');
        this.conclude(execution);
      },
    });
  }

  results() {
    const { Results } = require('./results.cjs');
    return new Results(this.channel);
  }

  fail(error, place, status = 1) {
    const { ErrorReport } = require('./errors.cjs');
    new ErrorReport(this.last, error, place).send(this.channel);
    this.status = status;
    if (this.execution) this.conclude(this.execution);
    else process.exit(1); // Nothing but the event loop was left.
  }

  /** Ends an execution, and waits for the next one. Meanwhile, the event loop rests. */
  conclude(execution) {
    if (this.execution !== execution) return;
    this.execution = undefined;
    this.channel.send('done');
    const request = this.channel.receive();
    if (request) setImmediate(() => this.execute(request));
    else if (this.status !== 0) process.exit(this.status);
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
