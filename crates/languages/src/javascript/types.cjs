// TypeScript: the code as JavaScript, by what the rootfs has for that. Types are
// blanked out where that is enough, so that every place stays; where code is
// generated (enums, namespaces, parameter properties), a source map leads back.
'use strict';
const { Buffer } = require('node:buffer');
const Module = require('node:module');
const process = require('node:process');

/** The place in the source from which a place in the generated code comes. */
function originalPlaces(map) {
  const places = new Module.SourceMap(map);
  return (line, column) => {
    const entry = places.findEntry(line - 1, column - 1);
    if (entry.originalLine === undefined) return { line, column };
    return { line: entry.originalLine + 1, column: entry.originalColumn + 1 };
  };
}

const MAP = /\n\/\/# sourceMappingURL=data:application\/json;(?:charset=utf-8;)?base64,(.*)\s*$/;

/** Takes the source map off the end of generated code. */
function withMap(code, execution) {
  // What the transformation made is declared at the end.
  execution.declaresAtEnd = true;
  const map = MAP.exec(code);
  if (!map) return code;
  execution.original = originalPlaces(JSON.parse(Buffer.from(map[1], 'base64').toString()));
  return code.slice(0, map.index);
}

/** The error, with the place that stands before it in the stack. */
function placed(error) {
  // The line's number, some lines of code up to that one, and a mark.
  const found = /^[^\n]*?:(\d+)\n(?:[^\n]*\n){1,3}?([ \t]*)\^/.exec(error.stack ?? '');
  error.place = found ? { line: Number(found[1]), column: found[2].length + 1 } : {};
  return error;
}

/** The code as Node itself converts it; undefined for syntax that needs generated code, which
 * Node 26 does not support any more. */
function byNode(source, execution) {
  const attempt = (options, unsupported) => {
    try {
      return Module.stripTypeScriptTypes(source, options);
    } catch (error) {
      if (error.code !== unsupported) throw placed(error);
      return undefined;
    }
  };
  const stripped = attempt({ mode: 'strip' }, 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX');
  if (stripped !== undefined) return stripped;
  const options = { mode: 'transform', sourceMap: true, sourceUrl: execution.file };
  const generated = attempt(options, 'ERR_INVALID_ARG_VALUE');
  return generated === undefined ? undefined : withMap(generated, execution);
}

function byCompiler(ts, source, execution) {
  const { outputText, diagnostics = [] } = ts.transpileModule(source, {
    fileName: execution.file,
    reportDiagnostics: true,
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      inlineSourceMap: true,
      experimentalDecorators: true,
    },
  });
  const [first] = diagnostics;
  if (first) {
    const error = new SyntaxError(ts.flattenDiagnosticMessageText(first.messageText, '\n'));
    const at = first.file?.getLineAndCharacterOfPosition(first.start);
    error.place = at ? { line: at.line + 1, column: at.character + 1 } : {};
    throw error;
  }
  // It makes modules of files that import nothing, too.
  return withMap(outputText, execution).replace(/\bexport \{\};\s*$/, '');
}

/** Where Node and distributions keep packages for everybody. */
const SHARED = ['/usr/lib/node_modules/', '/usr/local/lib/node_modules/', '/usr/share/nodejs/', '/usr/share/node_modules/'];

function compiler(file) {
  for (const place of [file, ...SHARED]) {
    try {
      return Module.createRequire(place)('typescript');
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error;
    }
  }
  return undefined;
}

function convert(source, execution) {
  const canStrip = Boolean(Module.stripTypeScriptTypes);
  const converted = canStrip ? byNode(source, execution) : undefined;
  if (converted !== undefined) return converted;
  const ts = compiler(execution.file);
  if (ts) return byCompiler(ts, source, execution);
  const why = canStrip
    ? 'can only strip types, but this code has an enum, a namespace or a parameter property'
    : 'cannot strip types, as 22.13 and later do';
  const error = new Error(
    `Cannot find package 'typescript', and Node ${process.version} ${why}: ` +
      'write it in JavaScript',
  );
  error.place = { isMissing: true };
  throw error;
}

module.exports = { convert };
