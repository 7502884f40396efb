// The statements of the code: where the last one begins, and whether it has a value.
// V8 itself is the parser: it decides which pieces parse.
'use strict';
const { Script } = require('node:vm');

function parses(code) {
  const limit = Error.stackTraceLimit;
  try {
    Error.stackTraceLimit = 0;
    return Boolean(new Script(code));
  } catch {
    return false;
  } finally {
    Error.stackTraceLimit = limit;
  }
}

const isStatements = (code) => parses(`(async () => {${code}\n})`);
const isExpression = (code) => parses(`(async () => {(${code}\n)})`);
/** Whether what follows `code` is neither comment, string nor regular expression. */
const isAtEnd = (code) => isStatements(code) && !isStatements(`${code}\x01`);

// Pieces tried. A last statement with more lines counts as one without a value.
const TRIES = 1000;
const TRIVIA = /^(?:[;\s]|\/\/.*|\/\*[^]*?\*\/)*$/;
const DECLARATION = /^(?:(?:async\s+)?function|class)\b/;

/** Where the last statement begins. */
function lastStatement(code) {
  let tries = TRIES;
  for (let start = code.length - 1; start >= 0 && tries > 0; start--) {
    if (/[\s;})\]]/.test(code[start])) continue;
    const gap = /\s*$/.exec(code.slice(Math.max(0, start - 200), start))[0];
    const before = code[start - gap.length - 1] ?? ';';
    const isApart = before === ';' || before === '}';
    // On a new line, these go on with the statement before it.
    if (!isApart && (!/[\n\r\u2028\u2029]/.test(gap) || /^(?:[([`/]|\+(?!\+)|-(?!-))/.test(code.slice(start, start + 2)))) continue;
    const piece = code.slice(start);
    if (TRIVIA.test(piece)) continue;
    tries--;
    if (!isStatements(piece) && !isExpression(piece)) continue;
    // A piece that does not parse costs more than all others.
    if (start === 0 || isAtEnd(code.slice(0, start))) return start;
  }
  return undefined;
}

/** Whether the last statement that the caller wrote is an expression. */
function hasValue(code, { declaresAtEnd }) {
  if (declaresAtEnd) code = code.replace(/(?:\s*var [\w$]+;)+\s*$/, '');
  const start = lastStatement(code);
  if (start === undefined || DECLARATION.test(code.slice(start)) || code[start] === '{') return false;
  if (isExpression(code.slice(start))) return true;
  // Before a semicolon, behind which there may be comments with semicolons.
  let at = code.length;
  for (let seen = 0; seen < 8; seen++) {
    at = code.lastIndexOf(';', at - 1);
    if (at <= start) return false;
    if (TRIVIA.test(code.slice(at)) && isExpression(code.slice(start, at))) return true;
  }
  return false;
}

/** The code with parentheses around an object literal that ends it, which
 * would be a block otherwise. */
function withLiteral(code) {
  const start = lastStatement(code);
  if (start === undefined || code[start] !== '{' || !isExpression(code.slice(start))) return code;
  return `${code.slice(0, start)}${start === 0 ? '' : ';'}(${code.slice(start)})`;
}

module.exports = { withLiteral, hasValue };
