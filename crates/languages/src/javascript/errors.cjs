// Uncaught errors as Node itself reports them, without the frames of the driver.
'use strict';
const { inspect, types } = require('node:util');
const { readFileSync } = require('node:fs');
const { withoutDriver } = require('./stack.cjs');

const isError = (value) => types.isNativeError(value) || value instanceof Error;

function safely(action, otherwise) {
  try {
    return action();
  } catch {
    return otherwise;
  }
}

function nameOf(error) {
  if (!isError(error)) return 'Uncaught';
  const { name } = error;
  const own = name === 'Error' ? error.constructor?.name : name;
  return String(own || 'Error');
}

/** File, line and column of the first frame that is the user's own. */
function origin(lines) {
  for (const line of lines) {
    if (line.includes('node:')) continue;
    const found = /^\s+at .*?((?:file:\/\/)?\/[^:()]*):(\d+):(\d+)\)?(?: \{)?$/.exec(line);
    if (found) return { file: found[1].replace(/^file:\/\//, ''), line: Number(found[2]), column: Number(found[3]) };
  }
  return undefined;
}

class ErrorReport {
  /** `syntax` is the error's place when the code does not parse. */
  constructor({ file, source, original }, error, syntax) {
    Object.assign(this, { file, source, original, error, syntax });
    const escaped = file.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
    this.places = new RegExp(`${escaped}:(\\d+):(\\d+)`, 'g');
  }

  send(channel) {
    const { error, syntax } = this;
    const message = isError(error) ? safely(() => String(error.message), '') : safely(() => inspect(error), '');
    const name = safely(() => nameOf(error), 'Error');
    let lines = safely(() => this.lines(), [`${name}: ${message}`]);
    let place = origin(lines);
    if (syntax) {
      place = syntax.line ? { file: this.file, line: syntax.line, column: syntax.column ?? 1 } : undefined;
      lines = [`${name}: ${message}`];
    }
    const [, inStack] = [...lines.join('\n').matchAll(this.places)][0] ?? [];
    const main = syntax ? place?.line : inStack;
    const traceback = [...(place ? this.excerpt(place) : []), ...lines].map((line) => line.slice(0, 2000));
    if (traceback.length > 400) traceback.splice(200, traceback.length - 400, `… ${traceback.length - 400} lines left out …`);
    const fields = [
      ['t', 'name', name],
      ['t', 'message', message.slice(0, 60000)],
      ...traceback.map((line) => ['t', 'traceback', line]),
    ];
    if (main) fields.push(['t', 'line', String(main)]);
    const errno = safely(() => error?.errno, undefined);
    if (Number.isInteger(errno)) fields.push(['t', 'errno', String(errno)]);
    if (syntax && !syntax.isMissing) fields.push(['t', 'syntax', '']);
    channel.send('error', fields);
  }

  /** The text of the error with its causes, in lines. */
  lines() {
    const text = isError(this.error) ? inspect(this.error) : `Uncaught ${inspect(this.error)}`;
    const placed = this.original ? text.replace(this.places, (_, ...at) => this.placeOf(at)) : text;
    // Without frames, inspect() puts brackets around it.
    return withoutDriver(placed.replace(/^\[(.*)\]$/, '$1')).split('\n');
  }

  placeOf([line, column]) {
    const place = this.original(Number(line), Number(column));
    return `${this.file}:${place.line}:${place.column}`;
  }

  /** The line of the source with a mark, as Node shows it. */
  excerpt(place) {
    const text = place.file === this.file ? this.source : safely(() => readFileSync(place.file, 'utf8'), '');
    const line = text.split(/\r\n|[\n\r\u2028\u2029]/)[place.line - 1];
    const head = `${place.file}:${place.line}`;
    if (line === undefined || line.length > 500) return [head, ''];
    const indent = line.slice(0, place.column - 1).replace(/[^\t]/g, ' ');
    return [head, line, `${indent}^`, ''];
  }
}

module.exports = { ErrorReport };
