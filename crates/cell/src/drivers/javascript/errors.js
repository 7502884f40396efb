// Errors: what nothing caught, as Node itself would tell it, without the frames
// of the shim.
'use strict';
const { say, inspect, file, source } = shim;
const { types } = require('node:util');
const { readFileSync } = require('node:fs');

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

/** The text of an error with its causes, in lines. */
function linesOf(error) {
  const text = isError(error) ? inspect(error) : `Uncaught ${inspect(error)}`;
  const placed = shim.original ? text.replace(PLACE, (_, ...at) => placeOf(at)) : text;
  // Without frames, inspect() puts brackets around it.
  return shim.withoutShim(placed.replace(/^\[(.*)\]$/, '$1')).split('\n');
}

const escaped = file.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
const PLACE = new RegExp(`${escaped}:(\\d+):(\\d+)`, 'g');

function placeOf([line, column]) {
  const place = shim.original(Number(line), Number(column));
  return `${file}:${place.line}:${place.column}`;
}

/** File, line and column of the first frame that is nobody's but the user's. */
function origin(lines) {
  for (const line of lines) {
    if (line.includes('node:')) continue;
    const found = /^\s+at .*?((?:file:\/\/)?\/[^:()]*):(\d+):(\d+)\)?(?: \{)?$/.exec(line);
    if (found) return { file: found[1].replace(/^file:\/\//, ''), line: Number(found[2]), column: Number(found[3]) };
  }
  return undefined;
}

/** The line of the source with a mark, as Node shows it. */
function excerpt(place) {
  const text = place.file === file ? source : safely(() => readFileSync(place.file, 'utf8'), '');
  const line = text.split(/\r\n|[\n\r\u2028\u2029]/)[place.line - 1];
  const head = `${place.file}:${place.line}`;
  if (line === undefined || line.length > 500) return [head, ''];
  const indent = line.slice(0, place.column - 1).replace(/[^\t]/g, ' ');
  return [head, line, `${indent}^`, ''];
}

/** Reports an error; `syntax` is its place when the code does not parse. */
function report(error, syntax) {
  const message = isError(error) ? safely(() => String(error.message), '') : safely(() => inspect(error), '');
  const name = safely(() => nameOf(error), 'Error');
  let lines = safely(() => linesOf(error), [`${name}: ${message}`]);
  let place = origin(lines);
  if (syntax) {
    place = syntax.line ? { file, line: syntax.line, column: syntax.column ?? 1 } : undefined;
    lines = [`${name}: ${message}`];
  }
  const main = syntax ? place?.line : lines.map((line) => line.match(new RegExp(`${escaped}:(\\d+):\\d+`))?.[1]).find(Boolean);
  const traceback = [...(place ? excerpt(place) : []), ...lines].map((line) => line.slice(0, 2000));
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
  say('error', fields);
}

return { report };
