// Evaluates code as V8's console does, and with what even that lacks: import
// statements. V8 itself is the parser: it reports the place that is at fault.
'use strict';
const path = require('node:path');
const { Session } = require('node:inspector');
const { pathToFileURL } = require('node:url');
const { Script, constants } = require('node:vm');
const { hasValue, withLiteral } = require('./statements.cjs');

// Names that code is rewritten to; as long as what they stand for, so that
// columns stay.
const IMPORT = '\u0131mport';
const META = 'import_meta';

/** Where V8 finds the code at fault: offset and message. */
function fault(session, code) {
  const head = '(async () => {';
  let found;
  const options = { expression: `${head}${code}\n})`, sourceURL: '', persistScript: false };
  session.post('Runtime.compileScript', options, (_, { exceptionDetails: details } = {}) => {
    if (!details) return;
    const { lineNumber: line, columnNumber: column, exception } = details;
    const breaks = [...code.matchAll(/\r\n|[\n\r\u2028\u2029]/g)];
    const begin = line === 0 ? -head.length : breaks[line - 1].index + breaks[line - 1][0].length;
    found = { at: begin + column, message: exception?.description?.split('\n')[0] ?? '' };
  });
  return found;
}

const NAME = String.raw`[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*`;
const STRING = String.raw`'(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*"`;
const GAP = String.raw`(?:\s|\/\/.*|\/\*[^]*?\*\/)`;
const STATEMENT = new RegExp(
  String.raw`import${GAP}*(?:(?:(${NAME})${GAP}*)?(?:,${GAP}*)?(?:\*${GAP}*as${GAP}+(${NAME})${GAP}*|(\{[^}]*\})${GAP}*)?from${GAP}*)?(${STRING})(?:${GAP}*(?:with|assert)${GAP}*(\{[^}]*\}))?`,
  'uy',
);
const IN_LIST = new RegExp(String.raw`\/\/.*|\/\*[^]*?\*\/|(${STRING}|${NAME})(?:(${GAP}+)as(${GAP}+)(${NAME}))?`, 'gu');

/** An import statement as a declaration that awaits the module. */
function declaration(statement) {
  STATEMENT.lastIndex = 0;
  const [all, standard, namespace, list, module, attributes] = STATEMENT.exec(statement) ?? [];
  if (all === undefined) return undefined;
  const names = [];
  const pattern = list?.replace(IN_LIST, (item, name, left, right, local) => {
    if (!name) return item;
    names.push(/^['"]/.test(name) ? name : `'${name}'`);
    return local ? `${name}${left}:${right}${local}` : item;
  });
  const options = attributes ? `{with: ${attributes}}` : 'undefined';
  if (standard) names.push("'default'");
  const loaded = `await ${IMPORT}(${module}, ${options}, [${names}])`;
  let code = loaded;
  if (namespace) {
    code = `const ${namespace} = ${loaded}`;
    if (standard) code += `, {default: ${standard}} = ${namespace}`;
  } else if (standard || pattern) {
    const first = standard ? `default: ${standard}, ` : '';
    code = `const {${first}${pattern?.slice(1) ?? '}'} = ${loaded}`;
  }
  const breaks = (text) => text.split('\n').length;
  return { all, code: `${code}${'\n'.repeat(Math.max(0, breaks(all) - breaks(code)))};` };
}

/** Takes what only modules may say at `at` out of the code. */
function rewritten(code, { at, message }) {
  const head = code.slice(0, at);
  const tail = code.slice(at);
  if (message.includes('import statement')) {
    const made = declaration(tail);
    return made && head + made.code + tail.slice(made.all.length);
  }
  if (message.includes("'import.meta'")) {
    const begin = code.lastIndexOf('import', at);
    const meta = /import\s*\.\s*meta/y;
    meta.lastIndex = begin;
    const found = meta.exec(code)?.[0];
    return found && code.slice(0, begin) + META.padEnd(found.length) + code.slice(begin + found.length);
  }
  if (message.includes("'export'")) {
    const word = /^export(?:\s+default\b|(?=\s+(?:async|function|class|const|let|var)\b)|\s*(?:\{[^}]*\}|\*)(?:\s*from\s*(?:'.*?'|".*?"))?)/;
    const found = word.exec(tail)?.[0];
    return found && head + found.replace(/\S/g, ' ') + tail.slice(found.length);
  }
  return undefined;
}

/** The code with import() of our own, which V8 cannot resolve in such code. */
function withImports(session, code) {
  const words = [...code.matchAll(/\bimport(?=\s*(?:\/\*[^]*?\*\/\s*)?\()/g)];
  for (const { index } of words) {
    if (/(?:^|[^.])\.\s*$/.test(code.slice(0, index))) continue;
    // What V8 does not stumble over is text: a string's or a comment's.
    const probe = `${code.slice(0, index)}\x01mport${code.slice(index + 6)}`;
    if (fault(session, probe)?.at === index) {
      code = code.slice(0, index) + IMPORT + code.slice(index + 6);
    }
  }
  return code;
}

/** The code without what only modules may say. */
function withoutModule(session, code) {
  session.post('Runtime.enable');
  for (let wrong; (wrong = fault(session, code)); ) {
    const next = rewritten(code, wrong);
    if (next === undefined) break;
    code = next;
  }
  code = withImports(session, code);
  session.post('Runtime.disable');
  return code;
}

/** Puts import() and import.meta where rewritten code finds them. */
function provide(file) {
  const load = new Script('(specifier, options) => import(specifier, options)', {
    filename: file,
    importModuleDynamically: constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  }).runInThisContext();
  const url = pathToFileURL(file).href;
  async function importing(specifier, options, names = []) {
    const module = await load(specifier, options);
    const missing = names.find((name) => !(name in module));
    if (missing === undefined) return module;
    throw new SyntaxError(`The requested module '${specifier}' does not provide an export named '${missing}'`);
  }
  const meta = { __proto__: null, url, filename: file, dirname: path.dirname(file) };
  for (const [name, value] of [[IMPORT, importing], [META, meta]]) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  }
}

// By this global, values come out of the inspector.
const TAKE = '\0cellblock';
let taken;
Object.defineProperty(globalThis, TAKE, { value: (value) => (taken = value) });

/** The value that V8 describes, itself. */
function valueOf(session, description) {
  const { objectId, type, value, unserializableValue: odd } = description;
  if (!objectId) return odd === undefined ? value : type === 'bigint' ? BigInt(odd.slice(0, -1)) : Number(odd);
  const functionDeclaration = `function () { 'use strict'; globalThis[${JSON.stringify(TAKE)}](this) }`;
  session.post('Runtime.callFunctionOn', { objectId, functionDeclaration, silent: true });
  const result = taken;
  taken = undefined;
  return result;
}

/** Evaluates the code as V8's console does: declarations stay for later executions,
 * which may repeat them, and await works. */
function evaluateInConsole(code, execution, { end, fail }) {
  const { file } = execution;
  const session = new Session();
  execution.session = session;
  session.connect();
  if (/\b(?:import|export)\b/.test(code)) code = withoutModule(session, code);
  if (/\}\s*$/.test(code)) code = withLiteral(code);
  if (code.includes(IMPORT) || code.includes(META)) provide(file);
  const expression = `${code}\n//# sourceURL=${file}`;
  let isParsing = true;
  session.post('Runtime.evaluate', { expression, replMode: true }, (failure, answer) => {
    if (failure) return; // The process is on its way out.
    const { result, exceptionDetails: details } = answer;
    const value = valueOf(session, details?.exception ?? result);
    // Nothing else is known before the code has run.
    const place = isParsing && { line: details?.lineNumber + 1, column: details?.columnNumber + 1 };
    session.disconnect();
    if (!details) end(value !== undefined && hasValue(code, execution) ? value : undefined);
    else if (isParsing) fail(value, place);
    else fail(value);
  });
  isParsing = false;
}

module.exports = { evaluateInConsole };
