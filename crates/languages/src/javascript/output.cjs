// Standard output and error, where they are pipes. All that is written is in the pipe when the call
// returns, as with files and terminals. Node's own streams keep what a full pipe does not take,
// lose it when the process ends, and make the pipe non-blocking for child processes, too.
'use strict';
const { Buffer } = require('node:buffer');
const { fstatSync, writeSync } = require('node:fs');
const { quickly } = require('./builtins.cjs');

const TYPE = 0o170000;
const PIPE = 0o010000;
const NAMES = { 1: 'stdout', 2: 'stderr' };
// The console's own, which a program may replace.
const { log } = console;
const MOMENT = new Int32Array(new SharedArrayBuffer(4));

/** Writes all of it. The pipe may be non-blocking: a child that shares it has made it so. */
function writeAll(descriptor, bytes) {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(descriptor, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(MOMENT, 0, 0, 1);
    }
  }
}

function isPipe(descriptor) {
  try {
    return (fstatSync(descriptor).mode & TYPE) === PIPE;
  } catch {
    return false; // It is closed.
  }
}

/** The stream that a program sees, with what Node's own for a pipe has. */
function streamOf(descriptor) {
  const { Writable } = require('node:stream');
  const stream = new Writable({
    decodeStrings: true,
    write(chunk, _, callback) {
      try {
        writeAll(descriptor, chunk);
      } catch (error) {
        return callback(error);
      }
      callback();
    },
    // It stays open, as Node's does.
    destroy(error, callback) {
      callback(error);
      this._undestroy?.();
    },
  });
  Object.assign(stream, { fd: descriptor, _type: 'pipe', _isStdio: true, destroySoon: stream.destroy });
  return stream;
}

let isPrepared = false;
let isSilent = false;

/** Loads what the console loads for its first line. That looks whether standard error is a terminal,
 * for which Node would make its stream. Nothing may interrupt this. */
function prepareConsole() {
  const property = Object.getOwnPropertyDescriptor(process, 'stderr');
  if (isPrepared || !getters.has(property?.get)) return;
  isPrepared = true;
  Object.defineProperty(process, 'stderr', { configurable: true, enumerable: true, value: {} });
  isSilent = true;
  try {
    quickly(() => log());
  } finally {
    isSilent = false;
    Object.defineProperty(process, 'stderr', property);
  }
}

const getters = new Set(); // those of the streams in the place of Node's

/** Puts a stream of our own in the place of Node's, and makes it when it is first used. To make it takes
 * milliseconds: the console writes without, as long as the program does not use it. */
function replace(descriptor) {
  const name = NAMES[descriptor];
  let stream;
  const get = () => (stream ??= streamOf(descriptor));
  getters.add(get);
  Object.defineProperty(process, name, { configurable: true, enumerable: true, get });

  const direct = {
    write(text) {
      if (isSilent) return true;
      try {
        writeAll(descriptor, Buffer.from(text));
      } catch (error) {
        if (error?.code === undefined) throw error; // The stack is full, for example.
      }
      return true;
    },
    // The console watches for errors while it writes.
    listenerCount: () => 1,
    removeListener() {},
  };
  let chosen;
  Object.defineProperty(console, `_${name}`, {
    configurable: true,
    enumerable: false,
    get() {
      if (isSilent) return direct;
      const isOwn = Object.getOwnPropertyDescriptor(process, name)?.get === get;
      return isOwn && !stream ? chosen ?? direct : (chosen ??= process[name]);
    },
    set(value) {
      chosen = value;
    },
  });
}

function replaceStreams() {
  for (const descriptor of [1, 2]) if (isPipe(descriptor)) replace(descriptor);
}

module.exports = { replaceStreams, prepareConsole };
