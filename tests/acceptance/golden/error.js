function f(x) {
  return x.missing.field;
}

console.log('before');
f({});
