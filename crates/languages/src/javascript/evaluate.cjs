// Evaluates code: declarations stay for later executions, and await works.
'use strict';
const { Script } = require('node:vm');

// What only V8's console can do: await, import, and declarations that later code repeats.
const CONSOLE = /\b(?:await|import|export|const|let|class)\b/;

/** Evaluates code as a script if that is enough, since it takes milliseconds to load
 * the inspector for V8's console. */
function evaluate(code, execution, { end, fail }) {
  const script = CONSOLE.test(code) || /\}\s*$/.test(code) ? undefined : parsed(code, execution.file);
  if (!script) {
    const { evaluateInConsole } = require('./console.cjs');
    return evaluateInConsole(code, execution, { end, fail });
  }
  let value;
  try {
    value = script.runInThisContext({ displayErrors: false });
  } catch (error) {
    return fail(error);
  }
  if (value === undefined) return end(undefined);
  const { hasValue } = require('./statements.cjs');
  end(hasValue(code, execution) ? value : undefined);
}

/** The code as a script; undefined if it does not parse: the console reports where. */
function parsed(code, filename) {
  try {
    return new Script(code, { filename });
  } catch {
    return undefined;
  }
}

module.exports = { evaluate };
