// Results: a value in all the forms that it has.
'use strict';
const { say, inspect } = shim;

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
  return text.includes('\n    at ') ? shim.withoutShim(text) : text;
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

function send(forms, main, failures) {
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
  say('result', fields);
}

function show(value, main) {
  const failures = [];
  send(formsOf(value, failures), main, failures);
}

/** display(value), display(value, 'text/html'), display(forms, {raw: true}) */
function display(value, type) {
  if (typeof type === 'string') send({ [type]: value }, false, []);
  else if (type?.raw) send({ ...value }, false, []);
  else show(value, false);
}

return { show, display };
