// Describes variables as V8's inspector previews them: that calls no getter, proxy or
// method of theirs.
'use strict';
const { Session } = require('node:inspector');
const { Script } = require('node:vm');
const { types } = require('node:util');

const LIMIT = 1000; // variables
const WIDTH = 100; // characters of a preview
const NAME = 200;

const getter = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name).get;
const lengthOfView = getter(Object.getPrototypeOf(Uint8Array.prototype), 'byteLength');
const lengthOfBuffer = getter(ArrayBuffer.prototype, 'byteLength');

// By this global, values get into the inspector.
const HOLDER = '\0cellblock variables';

/** The name with its value as a property, whatever has become of it. */
function property(name, isLexical) {
  if (!isLexical) return Object.getOwnPropertyDescriptor(globalThis, name);
  try {
    return { value: new Script(name).runInThisContext() };
  } catch {
    return {}; // It has no value yet.
  }
}

function sizeOf(value) {
  if (typeof value === 'string') return value.length * 2;
  if (types.isProxy(value)) return undefined;
  if (types.isTypedArray(value)) return Reflect.apply(lengthOfView, value, []);
  return types.isArrayBuffer(value) ? Reflect.apply(lengthOfBuffer, value, []) : undefined;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const inLine = (text) => cut(text.slice(0, 4 * WIDTH).replace(/\s+/g, ' ').replace(/\p{C}/gu, '\uFFFD'), WIDTH);
const quoted = (text) => JSON.stringify(text.slice(0, WIDTH));

function shownPart({ type, value, subtype, valuePreview }) {
  if (valuePreview) return shown(valuePreview);
  return type === 'string' && subtype === undefined ? quoted(value) : value || type;
}

/** The text of a preview of V8's. */
function shown({ description = '', subtype, properties, entries, overflow }) {
  const parts = entries
    ? entries.map(({ key, value }) => (key ? `${shown(key)} => ${shown(value)}` : shown(value)))
    : properties.map((part) => (subtype === 'array' || subtype === 'typedarray' ? shownPart(part) : `${part.name}: ${shownPart(part)}`));
  if (overflow) parts.push('…');
  if (parts.length === 0) return description;
  const [open, close] = subtype === 'array' || subtype === 'typedarray' ? '[]' : '{}';
  return `${description === 'Object' ? '' : `${description} `}${open}${parts.join(', ')}${close}`;
}

function previewOf({ type, subtype, value, description, preview, unserializableValue }) {
  if (type === 'string') return value.length > WIDTH ? `${quoted(value)}…` : quoted(value);
  if (preview && !['error', 'date', 'regexp', 'proxy'].includes(subtype)) return shown(preview);
  return description ?? unserializableValue ?? String(value ?? subtype ?? type);
}

/** Adds the fields of a frame to the list; it is whole after each variable. */
function describe(atStart, fields) {
  const session = new Session();
  session.connect();
  try {
    const post = (method, options) => {
      let answer;
      session.post(method, options, (_, result) => (answer = result));
      return answer;
    };
    const lexical = [...new Set(post('Runtime.globalLexicalScopeNames', {}).names)];
    const globals = Object.getOwnPropertyNames(globalThis).filter((name) => !atStart.has(name) && name[0] !== '\0');
    const total = lexical.length + globals.length;
    fields.push(['t', 'total', String(total)]);
    const holder = { __proto__: null };
    const listed = [];
    for (const [names, isLexical] of [[lexical, true], [globals, false]]) {
      for (const name of names.slice(0, LIMIT - listed.length)) {
        const found = property(name, isLexical) ?? {};
        // Names of numbers would change their order.
        Object.defineProperty(holder, `_${listed.length}`, { ...found, enumerable: true });
        listed.push({ name, size: sizeOf(found.value) });
      }
    }
    Object.defineProperty(globalThis, HOLDER, { value: holder, configurable: true });
    const { result } = post('Runtime.evaluate', { expression: `globalThis[${JSON.stringify(HOLDER)}]` });
    const options = { objectId: result.objectId, ownProperties: true, generatePreview: true };
    const described = new Map(post('Runtime.getProperties', options).result.map((each) => [each.name, each]));
    delete globalThis[HOLDER];
    listed.forEach(({ name, size }, index) => {
      const { value } = described.get(`_${index}`) ?? {};
      const type = !value ? 'accessor' : value.subtype === 'null' ? 'null' : (value.className ?? value.type);
      fields.push(['t', 'name', name.slice(0, NAME)], ['t', 'type', type.slice(0, NAME)]);
      if (size !== undefined) fields.push(['t', 'size', String(size)]);
      fields.push(['t', 'preview', value ? inLine(previewOf(value)) : '']);
    });
  } finally {
    session.disconnect();
  }
}

module.exports = { describe };
