// Loads the driver's modules, which this file holds as `sources`: to find a file takes
// Node a while, and a program may leave no descriptor to open one.
'use strict';
const loaded = { __proto__: null };

function load(name) {
  if (!name.startsWith('./')) return load('./builtins.cjs').quickly(() => require(name));
  if (!loaded[name]) {
    const own = { exports: {} };
    sources[name](load, own);
    loaded[name] = own;
  }
  return loaded[name].exports;
}

