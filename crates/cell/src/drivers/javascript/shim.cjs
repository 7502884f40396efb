// Takes the request from the channel (see frames/mod.rs) and runs its code as a
// cell of a notebook. mod.rs says what is in the parts that come with it.
'use strict';
(() => {
  const { Buffer, process } = globalThis;
  const { readSync, writeSync } = require('node:fs');
  // What Node has loaded by now, require('node:module') would prepare anew.
  const Module = module.constructor;
  const path = require('node:path');
  const { inspect } = require('node:util');
  const vm = require('node:vm');
  const { Script } = vm;

  // Requests come from the one, frames go to the next.
  const channel = Number(process.argv[2]);

  function read(length) {
    const bytes = Buffer.allocUnsafe(length);
    for (let at = 0; at < length; ) {
      const count = readSync(channel, bytes, at, length - at, null);
      if (count === 0) throw new Error('cellblock: the request ends early');
      at += count;
    }
    return bytes;
  }

  // Node compiles functions of its own at their first use: for numbers, those of
  // DataView cost nothing, those of Buffer do.
  const view = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

  /** The next request: each key with its values. */
  function receive() {
    const body = read(view(read(4)).getUint32(0));
    const numbers = view(body);
    const request = { __proto__: null };
    for (let at = 0; at < body.length; ) {
      const middle = at + 6 + body[at + 1];
      const end = middle + numbers.getUint32(at + 2);
      (request[body.latin1Slice(at + 6, middle)] ??= []).push(body.subarray(middle, end));
      at = end;
    }
    return request;
  }

  /** Writes a frame; its fields are [type, key, value]. */
  function say(kind, fields = []) {
    const bytes = (value) => (typeof value === 'string' ? Buffer.from(value) : value);
    const parts = [['t', 'kind', kind], ...fields].map(([type, key, value]) => [type, bytes(key), bytes(value)]);
    const length = parts.reduce((sum, [, key, value]) => sum + 6 + key.length + value.length, 0);
    const frame = Buffer.allocUnsafe(4 + length);
    const numbers = view(frame);
    numbers.setUint32(0, length);
    let at = 4;
    for (const [type, key, value] of parts) {
      frame[at] = type.charCodeAt(0);
      frame[at + 1] = key.length;
      numbers.setUint32(at + 2, value.length);
      frame.set(key, at + 6);
      frame.set(value, at + 6 + key.length);
      at += 6 + key.length + value.length;
    }
    try {
      for (let at = 0; at < frame.length; ) at += writeSync(channel + 1, frame, at);
    } catch {
      // The program closed the channel: it goes on without.
    }
  }

  const request = receive();
  const text = (key) => request[key][0].utf8Slice();
  const directory = text('directory');
  const file = path.resolve(directory, text('name'));
  const source = text('code').replace(/^\uFEFF/, '');
  const loaded = { __proto__: null };

  /** Calls a function of another part of the shim. */
  function call(part, name, ...values) {
    if (!loaded[part]) {
      const code = `(function (shim, require, process, Buffer) {${text(part)}\n})`;
      const made = new Script(code, { filename: `/run/cellblock/${part}` }).runInThisContext();
      loaded[part] = made(shim, require, process, Buffer);
    }
    return loaded[part][name](...values);
  }

  const shim = { say, call, request, file, source, script, vm, inspect, withoutShim };
  /** Whether an await at the top level still waits. */
  let waits = false;

  /** Code with the user's file for its name, and for what it imports. */
  function script(code) {
    return new Script(code, {
      filename: file,
      importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    });
  }

  const HIDDEN = /^\s+at .*(?:\/run\/cellblock\/|node:(?:inspector|vm|internal\/(?:process|vm|modules|main|timers))\b)/;

  /** The text without frames of the shim, and of what of Node it runs on. */
  function withoutShim(text) {
    const lines = [];
    for (const line of text.split('\n')) {
      if (!HIDDEN.test(line) && !line.includes(__filename)) lines.push(line);
      // The properties of an error follow its last frame.
      else if (line.endsWith(' {')) lines.push(`${lines.pop() ?? ''} {`);
    }
    return lines.join('\n');
  }

  /** Says nothing of what the shim itself uses and Node calls experimental. */
  function quiet() {
    const { emitWarning } = process;
    process.emitWarning = function (warning, ...rest) {
      if (/^(?:vm\.USE_MAIN|stripTypeScriptTypes)/.test(warning)) return;
      Reflect.apply(emitWarning, this, [warning, ...rest]);
    };
  }

  /** Makes the process look as if Node had been started with the user's file. */
  function disguise() {
    delete require.cache[__filename];
    const module = new Module(file, null);
    module.filename = file;
    module.paths = Module._nodeModulePaths(directory);
    process.mainModule = module;
    process.argv.splice(1, Infinity, file, ...(request.argument ?? []).map(String));
    const own = Module.createRequire(file);
    own.main = module;
    const globals = {
      require: own,
      module,
      exports: module.exports,
      __filename: file,
      __dirname: directory,
      display: (value, type) => call('results.js', 'display', value, type),
    };
    for (const [name, value] of Object.entries(globals)) {
      Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
    }
  }

  /** Shows the value of a last expression. */
  function end(value, isShown) {
    waits = false;
    if (value !== undefined && isShown) call('results.js', 'show', value, true);
    say('done');
  }

  /** What Node does with an error that nothing caught. */
  function fail(error, syntax) {
    waits = false;
    if (syntax) leave(error, syntax);
    else process.emit('uncaughtException', error, 'uncaughtException');
    say('done');
  }

  function leave(error, syntax) {
    call('errors.js', 'report', error, syntax);
    process.exit(1);
  }

  process.on('uncaughtException', (error) => {
    // A handler of the program's own takes care of it, as without the shim.
    if (process.listenerCount('uncaughtException') === 1) leave(error);
  });
  // Only an end that nobody asked for comes by this.
  let isDrained = false;
  process.on('beforeExit', () => (isDrained = true));
  process.on('exit', () => {
    if (!waits || !isDrained) return;
    const error = new Error('an await at the top level waits for something that never happens');
    error.stack = `${error}`;
    call('errors.js', 'report', error);
    process.exitCode = 13;
  });

  function run() {
    let code = source.replace(/^#!/, '//');
    if (request['typescript.js']) {
      try {
        code = call('typescript.js', 'convert', code);
      } catch (error) {
        return leave(error, error.place ?? {});
      }
    }
    // Where the word occurs, plain parsing could take it for a variable's name.
    if (!/\bawait\b/.test(code)) {
      const whole = /\}\s*$/.test(code) ? call('statements.js', 'literal', code) : code;
      let compiled;
      try {
        compiled = script(whole);
      } catch {
        // An import, or an error, whose place only the other way tells.
      }
      if (compiled) {
        let value;
        try {
          value = compiled.runInThisContext({ displayErrors: false });
        } catch (error) {
          return fail(error);
        }
        return end(value, value !== undefined && call('statements.js', 'hasValue', whole));
      }
    }
    waits = true;
    call('cell.js', 'evaluate', code, end, fail);
  }

  disguise();
  quiet();
  say('started');
  run();
})();
