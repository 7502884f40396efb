//! `In`, `Out`, `_` and their kin: what executions in Python find of earlier ones.

use super::harness::{Bench, python};
use super::live::Live;

/// Executes each code in one process; its result is to have this text.
fn check(python: &Bench, expected: &[(&str, &str)]) {
    let mut live = Live::new(python);
    for (code, text) in expected {
        let shown = live.ok(code);
        assert_eq!(shown.texts.concat(), *text, "{code}: {shown:?}");
    }
}

#[test]
fn earlier_results_and_code_have_names() {
    let Some(python) = python() else { return };
    check(
        &python,
        &[
            (
                "_, __, ___, Out, In",
                "('', '', '', {}, ['', '_, __, ___, Out, In'])",
            ),
            ("2", "2"),
            ("_ + 1", "3"),
            ("4;", ""),
            ("None", ""),
            ("_, __, _2, _3, sorted(Out)", "(3, 2, 2, 3, [1, 2, 3])"),
            (
                "len(In), _i, _ii, In[2]",
                "(8, '_, __, _2, _3, sorted(Out)', 'None', '2')",
            ),
            ("_i4, _ih is In, _oh is Out", "('4;', True, True)"),
        ],
    );
}

#[test]
fn a_failed_execution_has_a_number_and_no_result() {
    let Some(python) = python() else { return };
    let mut live = Live::new(&python);
    live.ok("1");
    assert_eq!(live.run("x = = 1").outcome(), Err("SyntaxError"));
    assert_eq!(live.run("1 / 0").outcome(), Err("ZeroDivisionError"));
    let shown = live.ok("_, len(In), sorted(Out)");
    assert_eq!(shown.outcome(), Ok(Some("(1, 5, [1])")));
}

#[test]
fn names_of_the_codes_own_stay() {
    let Some(python) = python() else { return };
    check(
        &python,
        &[
            ("_ = 'mine'; 5", "5"),
            ("_", "'mine'"),
            ("del _", ""),
            ("6", "6"),
            ("_", "6"),
            ("import gettext; gettext.install('x')", ""),
            ("_('text')", "'text'"),
            ("_('again')", "'again'"),
        ],
    );
}

#[test]
fn large_results_make_room_for_later_ones() {
    let Some(python) = python() else { return };
    check(
        &python,
        &[
            (
                "import weakref
class Big:
    nbytes = 40 << 20
    def __repr__(self): return 'big'
class Small(Big): nbytes = 1
Small()",
                "big",
            ),
            ("first = weakref.ref(Big()); Big()", "big"),
            ("Big()", "big"),
            ("first = weakref.ref(_3); _", "big"),
            ("Big()", "big"),
            (
                "first() is None, repr(_1)[:32], repr(_3) == repr(Out[3])",
                "(True, '<Out[1] is no longer kept, since', True)",
            ),
            ("_5, Out[5]", "(big, big)"),
            // The same value takes room once.
            ("same = Big(); same", "big"),
            ("same", "big"),
            ("_8 is _9", "True"),
            ("last = weakref.ref(same); del same", ""),
            ("%reset out\nlast() is None, Out", "(True, {})"),
        ],
    );
}

#[test]
fn the_list_of_variables_has_none_of_them() {
    let Some(python) = python() else { return };
    let mut live = Live::new(&python);
    live.ok("x = 1; x");
    live.ok("_1, __");
    let names = |live: &mut Live<'_>| {
        let list = live.describe();
        let names = list.variables.into_iter().map(|variable| variable.name);
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&mut live), ["x"]);
    live.ok("_ = 'mine'");
    let mut found = names(&mut live);
    found.sort();
    assert_eq!(found, ["_", "x"]);
}

#[test]
fn a_single_run_has_no_history() {
    let Some(python) = python() else { return };
    for name in ["In", "Out", "_", "_i", "_1"] {
        assert_eq!(python.run(name).error().name, "NameError");
    }
    let names = python.quiet("sorted(name for name in globals() if name[:2] != '__')");
    assert_eq!(names.texts(), ["=[]"]);
}

#[test]
fn features_of_the_future_stay() {
    let Some(python) = python() else { return };
    check(
        &python,
        &[
            ("from __future__ import annotations", ""),
            (
                "def f(a: no_such_name): pass\nf.__annotations__",
                "{'a': 'no_such_name'}",
            ),
            (
                "async def g(b: nor_this): return 1\nawait g(1), g.__annotations__",
                "(1, {'b': 'nor_this'})",
            ),
            (
                "%%capture\ndef h(c: nothing): pass\nlocals()['kept'] = h.__annotations__",
                "",
            ),
            ("kept", "{'c': 'nothing'}"),
        ],
    );
}
