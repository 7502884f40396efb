// The channel to the supervisor: requests come from one pipe, frames go to another.
// The messages are described in crates/languages/src/frames/mod.rs.
'use strict';
const { Buffer } = require('node:buffer');
const { fstatSync, readSync, writeSync } = require('node:fs');
const process = require('node:process');

const identity = (descriptor) => {
  const { dev, ino } = fstatSync(descriptor);
  return `${dev}:${ino}`;
};

/** Writes bytes; returns how many. An interrupt ends code at its next call or turn of a
 * loop, and writeSync() of Node makes further calls: nobody would know how much of a
 * frame is written. What it calls itself makes none. */
function writer() {
  try {
    const { writeBuffer } = process.binding('fs');
    // Up to Node 20, errors are not thrown.
    const takesContext = String(writeSync).includes('ctx');
    return (descriptor, bytes, at) => {
      if (!takesContext) return writeBuffer(descriptor, bytes, at, bytes.length - at, null);
      return writeBuffer(descriptor, bytes, at, bytes.length - at, null, undefined, {});
    };
  } catch {
    return writeSync;
  }
}

class Channel {
  constructor(descriptor) {
    this.requests = descriptor;
    this.frames = descriptor + 1;
    // A program may close these descriptors, and open something else in their place.
    this.identities = new Map([this.requests, this.frames].map((each) => [each, identity(each)]));
    this.execution = '1';
    this.write = writer();
    this.left = undefined; // of a frame that an interrupt has cut
    this.at = 0;
  }

  /** The next request, each key with its values; undefined at the end. */
  receive() {
    const length = this.read(4);
    if (!length) return undefined;
    const body = this.read(length.readUInt32BE());
    if (!body) throw new Error('cellblock: the request ends early');
    const request = { __proto__: null };
    for (let at = 0; at < body.length; ) {
      const middle = at + 6 + body[at + 1];
      const end = middle + body.readUInt32BE(at + 2);
      (request[body.latin1Slice(at + 6, middle)] ??= []).push(body.subarray(middle, end));
      at = end;
    }
    this.execution = request.execution[0].latin1Slice();
    return request;
  }

  read(length) {
    const bytes = Buffer.allocUnsafe(length);
    try {
      if (identity(this.requests) !== this.identities.get(this.requests)) return undefined;
      for (let at = 0; at < length; ) {
        const count = this.readSome(bytes, at);
        if (count === 0) return undefined;
        at += count;
      }
    } catch {
      return undefined; // The program closed the channel: there are no more requests.
    }
    return bytes;
  }

  /** Reads once, whatever signals come meanwhile. */
  readSome(bytes, at) {
    for (;;) {
      try {
        return readSync(this.requests, bytes, at, bytes.length - at, null);
      } catch (error) {
        if (error.code !== 'EINTR') throw error;
      }
    }
  }

  /** Writes a frame; its fields are [type, key, value]. */
  send(kind, fields = []) {
    const head = [['t', 'kind', kind], ['t', 'execution', this.execution]];
    const parts = [...head, ...fields].map(([type, key, value]) => [type, Buffer.from(key), Buffer.from(value)]);
    const length = parts.reduce((sum, [, key, value]) => sum + 6 + key.length + value.length, 0);
    const frame = Buffer.allocUnsafe(4 + length);
    let at = frame.writeUInt32BE(length);
    for (const [type, key, value] of parts) {
      frame[at] = type.charCodeAt(0);
      frame[at + 1] = key.length;
      frame.writeUInt32BE(value.length, at + 2);
      frame.set(key, at + 6);
      frame.set(value, at + 6 + key.length);
      at += 6 + key.length + value.length;
    }
    this.finish();
    this.at = 0;
    this.left = frame;
    this.finish();
  }

  /** Writes what is left of a frame. */
  finish() {
    try {
      if (!this.left || identity(this.frames) !== this.identities.get(this.frames)) return;
      const { write, frames, left } = this;
      while (this.at < left.length) {
        const count = write(frames, left, this.at);
        if (!(count > 0)) break;
        this.at += count;
      }
    } catch {
      // The program closed the channel: it goes on without.
    }
    this.left = undefined;
  }
}

module.exports = { Channel };
