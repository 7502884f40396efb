// Results: a value in all the forms that it has.
'use strict';
const { Buffer } = require('node:buffer');
const { inspect } = require('node:util');
const { withoutDriver } = require('./stack.cjs');

// The supervisor's limits for one form and one frame (see frames/reader.rs).
const FORM = 8 << 20;
const FRAME = 15 << 20;
// Values in JSON: more are hardly read, and plain text tells them as well.
const NODES = 1 << 15;

/** Whether the value is nothing but data that JSON can tell. */
function isPlain(value) {
  let nodes = 0;
  const seen = new Set();
  function check(value) {
    if (++nodes > NODES) return false;
    if (value === null || typeof value === 'string' || typeof value === 'boolean') return true;
    if (typeof value === 'number') return Number.isFinite(value);
    if (typeof value !== 'object' || seen.has(value) || seen.size > 64) return false;
    const prototype = Object.getPrototypeOf(value);
    const isList = Array.isArray(value);
    if (!isList && prototype !== Object.prototype && prototype !== null) return false;
    if (typeof value.toJSON === 'function') return false;
    const properties = Object.getOwnPropertyDescriptors(value);
    if (isList) delete properties.length;
    if (isList && Object.keys(properties).length !== value.length) return false;
    seen.add(value);
    const plain = Reflect.ownKeys(properties).every(
      (key) => typeof key === 'string' && properties[key].enumerable && 'value' in properties[key] && check(properties[key].value),
    );
    seen.delete(value);
    return plain;
  }
  return typeof value === 'object' && value !== null && check(value);
}

function textOf(value) {
  const text = inspect(value, typeof value === 'string' ? { maxStringLength: null } : {});
  // Errors show where they were made.
  return text.includes('\n    at ') ? withoutDriver(text) : text;
}

/** The forms of a value, as Deno's and other kernels for Jupyter ask for them. */
function formsOf(value, failures) {
  const forms = { __proto__: null };
  const method = value?.[Symbol.for('Jupyter.display')];
  if (typeof method === 'function') {
    try {
      Object.assign(forms, method.call(value));
    } catch (error) {
      failures.push(`Jupyter.display: ${error}`);
    }
  }
  try {
    forms['text/plain'] ??= textOf(value);
  } catch (error) {
    failures.push(`text/plain: ${error}`);
    forms['text/plain'] = `<${typeof value} that cannot be shown>`;
  }
  try {
    if (isPlain(value)) forms['application/json'] ??= value;
  } catch {
    // A proxy that raises has no plain form.
  }
  return forms;
}

/** The field for a form: text as it is, bytes as bytes, the rest as JSON. */
function field(type, value) {
  if (typeof value === 'string' && !/^application\/(?:.*\+)?json\b/.test(type)) return ['t', type, value];
  if (ArrayBuffer.isView(value)) {
    return ['b', type, new Uint8Array(value.buffer, value.byteOffset, value.byteLength)];
  }
  if (value instanceof ArrayBuffer) return ['b', type, new Uint8Array(value)];
  return ['j', type, JSON.stringify(value)];
}

/** The fields of all forms that fit into one frame. */
function fieldsOf(forms, main, failures) {
  const fields = main ? [['t', 'main', '']] : [];
  let room = FRAME;
  for (const [type, value] of Object.entries(forms)) {
    if (value === undefined || value === null) continue;
    try {
      let [form, , data] = field(type, value);
      let bytes = Buffer.from(data);
      const most = Math.min(FORM, room);
      if (bytes.length > most && type === 'text/plain') {
        failures.push(`text/plain: cut to ${most} bytes`);
        bytes = Buffer.from(bytes.subarray(0, most).toString().replace(/\uFFFD$/, ''));
      }
      if (bytes.length > most) {
        failures.push(`${type}: ${bytes.length} bytes, and at most ${most} are allowed`);
        continue;
      }
      room -= bytes.length;
      fields.push([form, type.slice(0, 255), bytes]);
    } catch (error) {
      failures.push(`${type}: ${error}`);
    }
  }
  for (const failure of failures.slice(0, 32)) fields.push(['t', 'failed', failure.slice(0, 250)]);
  return fields;
}

class Results {
  constructor(channel) {
    this.channel = channel;
  }

  send(forms, main, failures) {
    this.channel.send('result', fieldsOf(forms, main, failures));
  }

  show(value, main) {
    const failures = [];
    this.send(formsOf(value, failures), main, failures);
  }

  /** display(value), display(value, 'text/html'), display(forms, {raw: true}) */
  display(value, type) {
    if (typeof type === 'string') this.send({ [type]: value }, false, []);
    else if (type?.raw) this.send({ ...value }, false, []);
    else this.show(value, false);
  }
}

module.exports = { Results, isPlain };
