//! The list of variables, without running code of theirs.

use record::{Variable, Variables};

use super::harness::{Bench, lasting_bash, other, python, python_with};
use super::live::Live;

fn named<'a>(list: &'a Variables, name: &str) -> &'a Variable {
    let mut all = list.variables.iter();
    all.find(|variable| variable.name == name)
        .unwrap_or_else(|| panic!("no {name} in {list:?}"))
}

/// The name, type and preview of each variable that the code makes.
fn described(bench: &Bench, code: &str) -> Variables {
    let mut live = Live::new(bench);
    assert_eq!(live.describe(), Variables::default(), "before any code");
    live.ok(code);
    let list = live.describe();
    assert_eq!(live.describe(), list, "it changes nothing");
    assert!(live.end().0.success());
    list
}

fn check(bench: &Bench, code: &str, expected: &[(&str, &str, &str)]) {
    let list = described(bench, code);
    for (name, kind, preview) in expected {
        let found = named(&list, name);
        assert_eq!((&*found.kind, &*found.preview), (*kind, *preview), "{name}");
    }
    assert_eq!(list.total, expected.len() as u64, "{list:#?}");
}

#[test]
fn python_values_have_previews() {
    let Some(python) = python() else { return };
    let code = "
import collections, datetime
a = [1, 'a', (2,), {}, set(), {1}, frozenset({1}), frozenset(), b'x', None, [[[[1]]]]]
s = 'x' * 1000; t = 'line\\n\\x1b[2J'; big = 10**10000; f = 1.5; many = list(range(10**6))
c = collections.Counter('aab'); d = datetime.date(2020, 1, 2)
def g(a, *b, c=1): pass
class C: pass
o = C(); __hidden__ = 1";
    check(
        &python,
        code,
        &[
            ("collections", "module", "module collections"),
            ("datetime", "module", "module datetime"),
            (
                "a",
                "list",
                "[1, 'a', (2,), {}, set(), {1}, frozenset({1}), frozenset(), b'x', None, [[[…]]]]",
            ),
            ("s", "str", &format!("'{}…", "x".repeat(98))),
            ("t", "str", "'line\\n\\x1b[2J'"),
            ("big", "int", "… an integer of 33220 bits"),
            ("f", "float", "1.5"),
            (
                "many",
                "list",
                "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, …",
            ),
            ("c", "Counter", "Counter({'a': 2, 'b': 1})"),
            ("d", "date", "datetime.date(2020, 1, 2)"),
            ("g", "function", "g(a, c)"),
            ("C", "type", "class C"),
            ("o", "C", "<C>"),
        ],
    );
}

#[test]
fn python_objects_cannot_harm_their_description() {
    let Some(python) = python() else { return };
    let code = "
class Meta(type):
  def __getattribute__(self, name): 1 / 0
  def __repr__(self):
    while True: pass
class Hostile(metaclass=Meta):
  def loop(self, *_):
    open('ran', 'w')
    while True: pass
  __repr__ = __str__ = __sizeof__ = __len__ = __iter__ = __hash__ = loop
  __class__ = property(lambda self: int)
  def __getattribute__(self, name): 1 / 0
class Text(str):
  def __repr__(self):
    while True: pass
  __getitem__ = __len__ = __repr__
h = Hostile(); t = Text('text'); inside = [h, {1: h}]
class ndarray: shape = property(lambda self: 1 / 0)
n = ndarray()
class DataFrame: shape = property(lambda self: 1 / 0)
DataFrame.__module__ = 'pandas.core.frame'
p = DataFrame()
globals().update({'\\x1b[2J\\n': 1, '': 2, '\\ud800': 3, 'x' * 10000: 4, 5: 5})";
    let list = described(&python, code);
    assert!(!python.workspace().join("ran").exists());
    for (name, kind, preview) in [
        ("h", "Hostile", "<Hostile>"),
        ("t", "Text", "Text('text')"),
        ("inside", "list", "[<Hostile>, {1: <Hostile>}]"),
        ("n", "ndarray", "<ndarray>"),
        ("p", "DataFrame", "<DataFrame>"),
        ("\u{1b}[2J\n", "int", "1"),
        ("", "int", "2"),
        ("\\ud800", "int", "3"),
    ] {
        let found = named(&list, name);
        assert_eq!((&*found.kind, &*found.preview), (kind, preview), "{name:?}");
    }
    assert_eq!(named(&list, "h").size_bytes, None);
}

#[test]
fn of_many_variables_python_lists_a_thousand() {
    let Some(python) = python() else { return };
    let list = described(
        &python,
        "for i in range(10**6): globals()[f'v{i}'] = 'x' * 10",
    );
    assert_eq!((list.variables.len(), list.total), (1000, 1_000_001));
    assert!(named(&list, "v0").size_bytes.is_some_and(|size| size > 10));
}

#[test]
fn python_arrays_and_frames_show_their_shape() {
    let Some(python) = python_with(&["numpy", "pandas"]) else {
        return;
    };
    let code = "
import numpy, pandas
a = numpy.zeros((3, 4)); x = numpy.int64(3); f = numpy.float64(1.5)
d = pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']}); s = d.a";
    let list = described(&python, code);
    for (name, preview) in [
        ("a", "float64 (3, 4)"),
        ("x", "int64(3)"),
        ("f", "float64(1.5)"),
        ("d", "2 × 2: ['a', 'b']"),
        ("s", "int64, length 2"),
    ] {
        assert_eq!(named(&list, name).preview, preview);
    }
    assert_eq!(named(&list, "a").size_bytes, Some(96));
    assert!(named(&list, "d").size_bytes.is_some());
}

#[test]
fn javascript_values_have_previews() {
    let Some(node) = other("javascript") else {
        return;
    };
    let code = "
const o = { a: 1, get c() { for (;;); } }; let arr = [1, 'b'], big = 'x'.repeat(1000), und
class K { constructor() { this.z = 1 } }
const k = new K(), m = new Map([[1, { a: 2 }]]), n = 10n, nul = null, re = /x/g, s = Symbol('s')
const buf = new Uint8Array(100000), p = new Proxy({}, { get() { for (;;); }, ownKeys() { for (;;); } })
const h = { get [Symbol.toStringTag]() { for (;;); }, toString() { for (;;); } }
let __proto = 1; function f(x) { return x }
globalThis['\\x1b[2J'] = 2; globalThis['1'] = 3
Object.defineProperty(globalThis, 'g', { get() { for (;;); } })";
    check(
        &node,
        code,
        &[
            ("o", "Object", "{a: 1, c: accessor}"),
            ("arr", "Array", "Array(2) [1, \"b\"]"),
            ("big", "string", &format!("\"{}…", "x".repeat(98))),
            ("und", "undefined", "undefined"),
            ("K", "Function", "class K { constructor() { this.z = 1 } }"),
            ("k", "K", "K {z: 1}"),
            ("m", "Map", "Map(1) {1 => {a: 2}}"),
            ("n", "bigint", "10n"),
            ("nul", "null", "null"),
            ("re", "RegExp", "/x/g"),
            ("s", "symbol", "Symbol(s)"),
            (
                "buf",
                "Uint8Array",
                &format!("Uint8Array(100000) [{}…", "0, ".repeat(26) + "0"),
            ),
            ("p", "Object", "Proxy(Object)"),
            (
                "h",
                "Object",
                "{toString: function, Symbol(Symbol.toStringTag): accessor}",
            ),
            ("__proto", "number", "1"),
            ("f", "Function", "function f(x) { return x }"),
            ("\u{1b}[2J", "number", "2"),
            ("1", "number", "3"),
            ("g", "accessor", ""),
        ],
    );
}

#[test]
fn of_many_variables_javascript_lists_a_thousand() {
    let Some(node) = other("javascript") else {
        return;
    };
    let list = described(
        &node,
        "for (let i = 0; i < 1e5; i++) globalThis[`v${i}`] = i",
    );
    assert_eq!((list.variables.len(), list.total), (1000, 100_000));
}

#[test]
fn bash_variables_are_as_declared() {
    let Some(bash) = lasting_bash() else { return };
    let code = "
s='a b'; arr=(1 'x y'); declare -A map=([k]=v); declare -i n=3; c=$'a\\nb\\e[2J'
declare -n ref='arr[$(touch ran)]'; printf -v long %01000d 5; f() { :; }";
    check(
        &bash,
        code,
        &[
            ("s", "string", "\"a b\""),
            ("arr", "array", "([0]=\"1\" [1]=\"x y\")"),
            ("map", "map", "([k]=\"v\" )"),
            ("n", "integer", "\"3\""),
            ("c", "string", "$'a\\nb\\E[2J'"),
            ("ref", "reference", "\"arr[\\$(touch ran)]\""),
            ("long", "string", &format!("\"{}…", "0".repeat(98))),
            ("f", "function", "f()"),
        ],
    );
    assert!(!bash.workspace().join("ran").exists());
}

#[test]
fn r_values_have_previews() {
    let Some(r) = other("r") else { return };
    let code = "
df <- data.frame(a = 1:3, b = letters[1:3]); li <- list(a = 1, b = list('x'), 3)
v <- 1:100; fa <- factor(c('u', 'v')); m <- matrix(1:4, 2); s <- 'a\\nb'; nul <- NULL
h <- structure(list(), class = 'evil')
length.evil <- print.evil <- format.evil <- function(x, ...) repeat NULL
makeActiveBinding('ab', function() repeat NULL, globalenv()); assign('odd\\033[2J', 1)";
    check(
        &r,
        code,
        &[
            ("df", "data.frame", "3 × 2: a, b"),
            ("li", "list", "list(a = 1, b = list(\"x\"), 3)"),
            (
                "v",
                "integer",
                "integer[100] 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, …",
            ),
            ("fa", "factor", "factor: character[2] \"u\", \"v\""),
            ("m", "matrix", "integer[2 × 2] 1, 2, 3, 4"),
            ("s", "character", "\"a\\nb\""),
            ("nul", "NULL", "NULL"),
            ("h", "evil", "evil: list()"),
            ("length.evil", "function", "function(x, ...)"),
            ("print.evil", "function", "function(x, ...)"),
            ("format.evil", "function", "function(x, ...)"),
            ("ab", "active binding", ""),
            ("odd\u{1b}[2J", "double", "1"),
        ],
    );
}

#[test]
fn java_values_have_previews() {
    let Some(java) = other("java") else { return };
    let code = "
var list = new ArrayList<Object>(List.of(1, \"a\", 'c')); var m = Map.of(1, List.of(2));
String s = \"a\\u0007b\"; int[] arr = new int[1000]; Object nul = null; double d = 1.5;
class K { static boolean bad; public String toString() { while (bad) {} return \"k\"; } }
K[] wrapped = { new K() }; K k = wrapped[0]; int twice(int n) { return 2 * n; } K.bad = true;";
    let list = described(&java, code);
    for (name, kind, preview) in [
        ("list", "ArrayList<Object>", "[1, \"a\", 'c']"),
        ("m", "Map<Integer,List<Integer>>", "{1=[2]}"),
        ("s", "String", "\"a b\""),
        ("nul", "Object", "null"),
        ("d", "double", "1.5"),
        ("wrapped", "K[]", "K[1] [<K>]"),
        ("k", "K", "<K>"),
        ("twice", "method", "(int)int"),
        ("K", "class", "class K"),
    ] {
        let found = named(&list, name);
        assert_eq!((&*found.kind, &*found.preview), (kind, preview), "{name}");
    }
    assert_eq!(named(&list, "arr").size_bytes, Some(4000));
}
