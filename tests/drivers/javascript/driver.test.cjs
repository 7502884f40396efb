// Tests of the JavaScript driver's modules: `node --test` with DRIVERS at
// crates/languages/src.
'use strict';
const assert = require('node:assert');
const path = require('node:path');
const test = require('node:test');

const own = (name) => require(path.join(process.env.DRIVERS, 'javascript', name));
const { hasValue, withLiteral } = own('statements.cjs');
const { isPlain, Results } = own('results.cjs');
const { withoutDriver } = own('stack.cjs');

test('the last statement is found by the parser', () => {
  for (const [code, expected] of [
    ['5', true],
    ['let x = 5', false],
    ['let x = 5; x; // x;', true],
    ['if (1) { 5 }', false],
    ['function f() {}', false],
    ['[1]\n  .map(String)', true],
  ]) {
    assert.strictEqual(hasValue(code, {}), expected, code);
  }
});

test('a value is the one before what generated code declares at its end', () => {
  const code = 'f();\nvar N;\n\n';
  assert.strictEqual(hasValue(code, {}), false);
  assert.strictEqual(hasValue(code, { declaresAtEnd: true }), true);
});

test('an object literal at the end is not a block', () => {
  assert.strictEqual(withLiteral('1; {a: 1}'), '1; ;({a: 1})');
  assert.strictEqual(withLiteral('if (1) { a }'), 'if (1) { a }');
});

test('plain data is what JSON has', () => {
  const circle = {};
  circle.self = circle;
  for (const [value, expected] of [
    [[1, { a: null }], true],
    [[NaN], false],
    [circle, false],
    [new Map(), false],
    ['text', false],
  ]) {
    assert.strictEqual(isPlain(value), expected);
  }
});

test('results have their forms', () => {
  const sent = [];
  const results = new Results({ send: (kind, fields) => sent.push([kind, fields.map(([, key]) => key)]) });
  results.show([1], true);
  results.display('<b>', 'text/html');
  assert.deepStrictEqual(sent, [
    ['result', ['main', 'text/plain', 'application/json']],
    ['result', ['text/html']],
  ]);
});

test('stacks are without what runs the code', () => {
  const stack = 'Error: x\n    at f (/w/main.js:1:1)\n    at node:internal/process/task_queues:1:1 {\n  code: 5\n}';
  assert.strictEqual(withoutDriver(stack), 'Error: x\n    at f (/w/main.js:1:1) {\n  code: 5\n}');
});
