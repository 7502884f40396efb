//! Results that are more than text: displays with names, the stand-in for
//! IPython, plots, tables, pictures, and what broken ones do.

use record::ResultItem;
use record::json::Form;
use serde_json::{Value, json};

use super::harness::{Bench, finish, parsed, python, python_with};
use crate::skip::skip;

/// The forms of each result, without text.
fn forms(results: &[ResultItem]) -> Vec<Vec<&str>> {
    fn names(item: &ResultItem) -> Vec<&str> {
        let names = item.formats.keys().map(String::as_str);
        names.filter(|name| *name != "text/plain").collect()
    }
    results.iter().map(names).collect()
}

fn is_png(item: &ResultItem) -> bool {
    item.formats
        .get("image/png")
        .and_then(Form::as_str)
        .is_some_and(|png| png.starts_with("iVBORw0KGgo"))
}

/// The charts of the results of code that draws with `plt`, `np` and `pd`.
fn charts(python: &Bench, code: &str) -> Vec<Value> {
    let imports = "import matplotlib.pyplot as plt\n";
    let run = python.quiet(&format!("{imports}{code}"));
    assert_eq!(run.notes, Vec::<String>::new(), "{code}");
    let charts = run.results.iter().filter(|item| is_png(item));
    let plain = |item: &ResultItem| floats(parsed(item.chart.as_ref()).unwrap());
    charts.map(plain).collect()
}

/// All numbers as floating-point ones: which of the two they are is up to the
/// version of matplotlib.
fn floats(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.into_iter().map(floats).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, floats(value)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

#[test]
fn a_handle_updates_what_it_stands_for() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "h = display(1, display_id=True)
h.update(2)
h.display(3)
named = display(4, display_id='é' * 300)
from IPython.display import update_display
update_display(5, display_id='other')
print(repr(h) == f'<DisplayHandle display_id={h.display_id}>', len(h.display_id))",
    );
    assert_eq!(run.stdout, "True 32\n");
    assert_eq!(run.texts(), ["1", "3", "4"]);
    let ids: Vec<_> = (run.results.iter().chain(&run.updates))
        .map(|item| item.display_id.as_deref().unwrap())
        .collect();
    assert_eq!((ids[0], ids[0]), (ids[1], ids[3]));
    assert_eq!(
        ids[2].chars().count(),
        128,
        "the cap of the channel, in bytes"
    );
    let updates: Vec<_> = run
        .updates
        .iter()
        .map(|item| item.text.as_deref())
        .collect();
    assert_eq!((updates, ids[4]), (vec![Some("2"), Some("5")], "other"));
    let run = python.run("from IPython.display import update_display\nupdate_display(1)");
    assert_eq!(run.error().name, "TypeError");
}

#[test]
fn clears_come_between_results() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "from IPython.display import clear_output
display(1)
clear_output()
display(2)
clear_output(wait=True)
display(3, clear=True)",
    );
    assert_eq!(run.texts(), ["1", "2", "3"]);
    assert_eq!(run.clears, [(1, false), (2, true), (2, true)]);
}

#[test]
fn metadata_goes_with_its_form() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "class A:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/html': '<b>'}, {'text/html': {'isolated': True}}
    def _repr_svg_(self): return '<svg/>', {'width': 2}
display(A(), metadata={'text/plain': {'x': float('inf')}})
display(A(), metadata={'text/plain': {'x': 1}}, exclude=['image/svg+xml'])
display(A(), include=['text/html'])
A()",
    );
    let metadata: Vec<_> = run
        .results
        .iter()
        .map(|item| parsed(item.metadata.as_ref()))
        .collect();
    let own = json!({"text/html": {"isolated": true}, "image/svg+xml": {"width": 2}});
    let mut more = own.clone();
    more["text/plain"] = json!({"x": 1});
    let mut infinite = own.clone();
    infinite["text/plain"] = json!({"x": null});
    let expected = [infinite, more, own.clone(), own].map(Some);
    assert_eq!(metadata, expected);
    assert_eq!(run.notes, Vec::<String>::new());
    let html = vec!["text/html"];
    let both = vec!["image/svg+xml", "text/html"];
    assert_eq!(
        forms(&run.results),
        [both.clone(), html.clone(), html, both]
    );
    assert_eq!(run.results[2].text, None);
}

#[test]
fn an_object_may_display_itself() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "class A:
    def _ipython_display_(self): display('mine', 'too')
class B:
    def __repr__(self): return 'B'
    def _ipython_display_(self): raise ValueError('no')
class C:
    def __repr__(self): return 'C'
    def _ipython_display_(self): display(self)
display(A())
display(B())
C()",
    );
    assert_eq!(run.texts()[..3], ["'mine'", "'too'", "B"]);
    assert_eq!(run.notes[0], "_ipython_display_: ValueError: no");
    // Endlessly; the innermost gives up, and no other is to be shown.
    assert_eq!(run.texts()[3..], ["C"]);
}

#[test]
fn ipythons_objects_are_there_without_ipython() {
    let Some(python) = python() else { return };
    if python.plain("import IPython").status.success() {
        return skip("this Python has IPython");
    }
    python.write("page.html", "<i>");
    let run = python.quiet("from IPython.display import *
from IPython.core.display import HTML as Same, display_html
from IPython import get_ipython, display as shown
import IPython.display as d
display(HTML('<b>'), Markdown('**b**'), Latex('$x$'), Math('y'), SVG('<svg/>'), Javascript('f()'))
display(JSON({'a': [1]}), GeoJSON({'type': 'Point'}), Image(b'\\x89PNG', width=3), Image(url='http://x/?a&b'))
display(HTML(filename='page.html'), HTML('page.html'), Code('a < b'), IFrame('https://x', 1, 2), Audio(b'RIFF'))
display_html('<u>', raw=True)
print(get_ipython(), Same is HTML is d.HTML, HTML('x').data, HTML('<b>').__html__())
Pretty('as it is')",
    );
    assert_eq!(run.stdout, "<the shell of this cell> True x <b>\n");
    let shown: Vec<Value> = (run.results.iter())
        .map(|item| {
            let mut formats = item.formats.clone();
            let text = formats.remove("text/plain");
            match formats.pop_first() {
                Some((name, form)) if name != "text/plain" => json!([name, form]),
                _ => json!(text.unwrap()),
            }
        })
        .collect();
    assert_eq!(
        shown,
        [
            json!(["text/html", "<b>"]),
            json!(["text/markdown", "**b**"]),
            json!(["text/latex", "$x$"]),
            json!(["text/latex", "$\\displaystyle y$"]),
            json!(["image/svg+xml", "<svg/>"]),
            json!(["application/javascript", "f()"]),
            json!(["application/json", {"a": [1]}]),
            json!(["application/geo+json", {"type": "Point"}]),
            json!(["image/png", "iVBORw=="]),
            json!(["text/html", "<img src=\"http://x/?a&amp;b\">"]),
            json!(["text/html", "<i>"]),
            json!(["text/html", "<i>"]),
            json!(["text/html", "<pre>a &lt; b</pre>"]),
            json!([
                "text/html",
                "<iframe src=\"https://x\" width=\"1\" height=\"2\"></iframe>"
            ]),
            json!([
                "text/html",
                "<audio src=\"data:audio/wav;base64,UklGRg==\" controls=\"controls\"></audio>"
            ]),
            json!(["text/html", "<u>"]),
            json!("as it is"),
        ]
    );
    assert_eq!(run.texts()[0], "<IPython.core.display.HTML object>");
    assert_eq!(
        parsed(run.results[8].metadata.as_ref()),
        Some(json!({"image/png": {"width": 3}}))
    );
    // The rest of IPython is missing, as it would be.
    let run = python.run("import IPython.core.debugger");
    assert_eq!(run.error().name, "ModuleNotFoundError");
}

#[test]
fn an_ipython_that_is_there_is_used() {
    let Some(python) = python() else { return };
    let package = python.workspace().join("IPython");
    std::fs::create_dir_all(package.join("core")).unwrap();
    python.write("IPython/__init__.py", "");
    python.write("IPython/core/__init__.py", "");
    python.write(
        "IPython/core/display_functions.py",
        "def display(*objects, **options): print(*objects)\ndef clear_output(wait=False): print('clear')\n",
    );
    python.write(
        "IPython/display.py",
        "from IPython.core.display_functions import *\nclass HTML:\n    def _repr_html_(self): return 'real'\n",
    );
    let run = python.quiet(
        "from IPython.display import display, HTML, clear_output\ndisplay(HTML())\nclear_output()",
    );
    assert_eq!((run.stdout.as_str(), run.clears.len()), ("", 1));
    assert_eq!(run.results[0].formats["text/html"].as_str(), Some("real"));
}

/// What goes wrong in one result is that result's affair.
#[test]
fn a_broken_object_breaks_nothing_else() {
    let Some(python) = python() else { return };
    for (body, text, notes) in [
        (
            "def __repr__(self): return 5",
            "<unprintable A object>",
            &["text/plain: TypeError"][..],
        ),
        (
            "def __repr__(self): return repr(self)",
            "<unprintable A object>",
            &["text/plain: RecursionError"],
        ),
        ("def __repr__(self): print('said'); return 'A'", "A", &[]),
        (
            "def __repr__(self): return 'A'\n    def _repr_html_(self): return 5",
            "A",
            &["text/html: TypeError"],
        ),
        (
            "def __repr__(self): return 'A'\n    def _repr_png_(self): return ['x']",
            "A",
            &["image/png: TypeError"],
        ),
        (
            "def __repr__(self): return 'A'\n    def _repr_html_(self): return self._repr_html_()",
            "A",
            &["text/html: RecursionError"],
        ),
        (
            "def __repr__(self): return 'A'\n    def _repr_html_(self): return 'x' * (1 << 26)",
            "A",
            &["text/html: ValueError"],
        ),
        (
            "def __repr__(self): return 'A'\n    def _repr_png_(self): return bytes(1 << 26)",
            "A",
            &["image/png: ValueError"],
        ),
        (
            "def __repr__(self): return 'A'\n    def _repr_json_(self): return [[]] * (4 << 20)",
            "A",
            &["application/json: ValueError"],
        ),
        (
            "def __repr__(self): return 'A'\n    def _repr_html_(self): return bytes(1 << 60)",
            "A",
            &["text/html: MemoryError"],
        ),
        (
            "def __repr__(self): return 'A'\n    def _repr_mimebundle_(self): return {}",
            "A",
            &["mimebundle: TypeError"],
        ),
        (
            "def __repr__(self): return 'A'\n    def _repr_mimebundle_(self, **k): return 1, 2, 3",
            "A",
            &[],
        ),
        (
            "def __repr__(self): return 'A'\n    @property\n    def _repr_html_(self): return 1 / 0",
            "A",
            &["text/html: ZeroDivisionError"],
        ),
    ] {
        let run = python.quiet(&format!(
            "class A:\n    {body}\ndisplay(A())\ndisplay(A(), metadata={{}})\n'after'"
        ));
        assert_eq!(run.texts(), [text, text, "='after'"], "{body}");
        let expected: Vec<&str> = notes.iter().chain(notes).copied().collect();
        let noted: Vec<String> = (run.notes.iter())
            .map(|note| note.split(": ").take(2).collect::<Vec<_>>().join(": "))
            .collect();
        assert_eq!(noted, expected, "{body}");
    }
}

#[test]
fn results_survive_whatever_comes_after_them() {
    let Some(python) = python() else { return };
    for (end, status) in [
        ("import os; os._exit(3)", Some(3)),
        ("import os; os.kill(os.getpid(), 9)", None),
        ("import os; os.abort()", None),
        ("raise SystemExit(4)", Some(4)),
    ] {
        let run = python.run(format!("display('x' * 100_000)\ndisplay(2)\n{end}"));
        assert_eq!((run.results.len(), run.status.code()), (2, status), "{end}");
    }
    // A repr that never ends is ended by the limit on time.
    let code = "class A:\n    def __repr__(self):\n        print('asleep')\n        import time; time.sleep(1000)\ndisplay(1)\nA()";
    let (mut child, channel) = python.start(code.as_bytes(), &[]);
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut String::new()).unwrap();
    child.kill().unwrap();
    child.stdout = Some(stdout.into_inner());
    let run = finish(child, channel);
    assert_eq!((run.texts(), run.done), (vec!["1".to_owned()], false));
}

#[test]
fn tracebacks_show_no_frame_of_the_shim() {
    let Some(python) = python() else { return };
    for code in [
        "class R:\n    def __repr__(self): raise KeyboardInterrupt\ndisplay(R())",
        "class R:\n    def __repr__(self): raise KeyboardInterrupt\ndisplay(R(), display_id='x')",
        "class R:\n    def __repr__(self): raise KeyboardInterrupt\ntry: display([R()])\nexcept BaseException as e: raise ValueError from e",
        "class R:\n    def __repr__(self): raise KeyboardInterrupt\ntry: display([R()])\nexcept BaseException: 1 / 0",
    ] {
        let run = python.run(code);
        let traceback = run.traceback();
        let frames = traceback.matches("  File \"").count();
        assert_eq!(
            frames,
            traceback.matches("  File \"main.py\", line ").count(),
            "{traceback}"
        );
        assert!(
            traceback.contains("in __repr__\n    def __repr__(self): raise"),
            "{traceback}"
        );
    }
}

#[test]
fn tracebacks_of_groups_chains_and_syntax_are_pythons() {
    let Some(python) = python() else { return };
    let run = python.run("x = 1\nif x\n    pass");
    let traceback = run.error().traceback.join("\n");
    let caret = "  File \"main.py\", line 2\n    if x\n        ^\nSyntaxError: ";
    assert!(traceback.starts_with(caret), "{traceback}");
    assert!(run.is_syntax);
    let run = python
        .run("def f(n):\n    raise ValueError(n)\ntry:\n    f(1)\nexcept ValueError:\n    f(2)");
    let traceback = run.traceback();
    for part in [
        "line 4, in <module>\n    f(1)\n  File \"main.py\", line 2, in f\n    raise ValueError(n)\nValueError: 1\n\nDuring handling",
        "line 6, in <module>\n    f(2)\n  File \"main.py\", line 2, in f\n    raise ValueError(n)\nValueError: 2",
    ] {
        assert!(traceback.contains(part), "{traceback}");
    }
    let has_groups = python.plain("ExceptionGroup").status.success();
    if !has_groups {
        return skip("this Python has no exception groups");
    }
    let run = python.run(
        "class R:\n    def __repr__(self): raise KeyboardInterrupt\ndef f():\n    display(R())
caught = []\ntry: f()\nexcept BaseException as e: caught.append(e)
raise BaseExceptionGroup('two', [caught[0], ValueError(5)])",
    );
    let traceback = run.traceback();
    assert_eq!(run.error().name, "BaseExceptionGroup");
    for part in [
        "+-+---------------- 1 ----------------",
        "|     display(R())\n",
        "| ValueError: 5",
        "line 2, in __repr__",
    ] {
        assert!(traceback.contains(part), "{traceback}");
    }
    assert!(!traceback.contains("File \"<string>\""), "{traceback}");
}

#[test]
fn every_open_figure_is_shown_once() {
    let Some(python) = python_with(&["matplotlib"]) else {
        return;
    };
    for (code, expected) in [
        ("plt.plot([1])\nplt.savefig('a.png')\nplt.show()", "P"),
        ("plt.plot([1])", "P"),
        ("plt.plot([1]);", "P"),
        ("plt.plot([1])\nplt.show()\nplt.show()", "P"),
        (
            "for n in range(2):\n    plt.figure(); plt.bar([1, 2], [n, 3]); plt.show()",
            "PP",
        ),
        (
            "plt.plot([1]); plt.figure(); plt.plot([2])\nplt.show(block=False)",
            "PP",
        ),
        ("fig, ax = plt.subplots()\nax.plot([1])\nfig", "M"),
        (
            "fig, ax = plt.subplots()\nax.plot([1])\ndisplay(fig)\nplt.show()",
            "P",
        ),
        (
            "fig, ax = plt.subplots()\ndisplay(fig)\nax.plot([1]);",
            "PP",
        ),
        (
            "fig, ax = plt.subplots()\nax.plot([1])\nfig.show()\nplt.show()",
            "P",
        ),
        ("fig, ax = plt.subplots()\nplt.close(fig)\nfig", "M"),
        ("fig = plt.figure()\nplt.show()", ""),
        ("plt.plot([1])\nplt.show()\nprint(plt.get_fignums())", "P"),
        ("plt.plot([1])\nraise SystemExit", "P"),
        (
            "from matplotlib.figure import Figure\nfig = Figure()\nfig.subplots().plot([1])\nfig",
            "M",
        ),
    ] {
        let run = python.quiet(&format!("import matplotlib.pyplot as plt\n{code}"));
        let shown: String = (run.results.iter())
            .filter(|item| is_png(item))
            .map(|item| if item.is_main_result { 'M' } else { 'P' })
            .collect();
        assert_eq!(shown, expected, "{code}\n{:?}", run.texts());
    }
    assert!(python.workspace().join("a.png").exists());
    // An error loses none.
    let run = python.run("import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0");
    assert_eq!((run.results.len(), run.done), (1, true));
    assert_eq!(run.error().name, "ZeroDivisionError");
    // Whatever the code asks for, no window is looked for.
    for (code, backend) in [
        (
            "import matplotlib; matplotlib.use('TkAgg')\nimport matplotlib.pyplot as plt",
            "agg",
        ),
        (
            "import matplotlib; matplotlib.use('Agg')\nimport matplotlib.pyplot as plt",
            "agg",
        ),
        (
            "import matplotlib.pyplot as plt\nplt.switch_backend('QtAgg')",
            "agg",
        ),
        (
            "import matplotlib.pyplot as plt\nplt.switch_backend('svg')",
            "svg",
        ),
    ] {
        let show = "plt.plot([1]); plt.show(); print(plt.get_backend().lower())";
        let run = python.quiet(&format!("{code}\n{show}"));
        assert_eq!(
            (run.stdout.trim(), run.results.len()),
            (backend, 1),
            "{code}"
        );
        assert!(is_png(&run.results[0]), "{code}");
    }
    let left: Vec<_> = std::fs::read_dir(python.workspace()).unwrap().collect();
    assert_eq!(left.len(), 1, "only what the code saved: {left:?}");
}

#[test]
fn charts_of_three_dimensions_are_described() {
    if let Some(python) = python_with(&["matplotlib", "numpy"]) {
        let code = "import numpy as np
ax = plt.figure().add_subplot(projection='3d')
ax.plot([0, 1], [0, 1], [5, 6], label='path')
ax.scatter(range(3000), range(3000), range(3000))
ax.plot_surface(*np.mgrid[0:3, 0:3], np.zeros((3, 3)), label='hill')
ax.plot_wireframe(*np.mgrid[0:3, 0:3], np.ones((3, 3)))
ax.set(title='T', xlabel='x (m)', ylabel='y', zlabel='height (km)')";
        let chart = &charts(&python, code)[0];
        let parts = chart["elements"].as_array().unwrap();
        let kinds: Vec<&Value> = parts.iter().map(|part| &part["type"]).collect();
        assert_eq!(kinds, ["line_3d", "scatter_3d", "surface", "wireframe"]);
        for part in parts {
            let frame = ["title", "x_label", "x_unit", "z_label", "z_unit"].map(|key| &part[key]);
            assert_eq!(frame, ["T", "x (m)", "m", "height (km)", "km"]);
        }
        let path = json!([{"label": "path", "points": [[0.0, 0.0, 5.0], [1.0, 1.0, 6.0]]}]);
        assert_eq!(floats(parts[0]["elements"].clone()), path);
        assert_eq!(parts[1]["elements"][0]["total_points"], 3000.0);
        let hill = json!([{"label": "hill", "faces": 4.0}]);
        assert_eq!(parts[2]["elements"], hill);
        let text = record::words::chart(&record::json::Json::of(chart));
        let expected =
            "charts “T”, x (m) × y × height (km): line_3d, scatter_3d, surface, wireframe";
        assert_eq!(text, expected);
    }
    if let Some(python) = python_with(&["plotly"]) {
        let run = python.run(
            "import plotly.graph_objects as go
figure = go.Figure([go.Surface(z=[[1, 2], [3, 4]], name='s')])
figure.update_layout(title='P', scene=dict(zaxis=dict(title='c (s)')))
display(figure, go.Figure([go.Bar(y=[1])]))",
        );
        let chart = parsed(run.results[0].chart.as_ref()).unwrap();
        let expected = json!({
            "type": "surface", "title": "P", "elements": [{"label": "s"}],
            "x_label": "", "x_unit": null, "y_label": "", "y_unit": null,
            "z_label": "c (s)", "z_unit": "s"
        });
        assert_eq!((chart, run.results[1].chart.is_none()), (expected, true));
    }
}

#[test]
fn charts_hold_the_data_of_plots() {
    let Some(python) = python_with(&["matplotlib"]) else {
        return;
    };
    let chart = &charts(
        &python,
        "plt.plot([0, 1, 2], [0, 1, 4], label='a')
plt.plot([0, 1], [float('nan'), 3])
plt.axhline(2)
plt.title('growth'); plt.xlabel('time (s)'); plt.ylabel('way [km]'); plt.xscale('log')
plt.xlim(0.5, 200)",
    )[0];
    let mut frame = chart.as_object().unwrap().clone();
    for ticks in ["x_ticks", "x_tick_labels", "y_ticks", "y_tick_labels"] {
        assert!(frame.remove(ticks).unwrap().is_array());
    }
    assert_eq!(
        chart["x_tick_labels"],
        json!(["10^{0}", "10^{1}", "10^{2}"])
    );
    assert_eq!(
        Value::Object(frame),
        floats(json!({
            "type": "line", "title": "growth",
            "x_label": "time (s)", "x_unit": "s", "x_scale": "log",
            "y_label": "way [km]", "y_unit": "km", "y_scale": "linear",
            "elements": [
                {"label": "a", "points": [[0, 0], [1, 1], [2, 4]]},
                {"label": null, "points": [[0, null], [1, 3]]},
            ],
        }))
    );
    let plots = [
        (
            "plt.scatter([1, 2], [3, 4], label='s')",
            "scatter",
            json!([{"label": "s", "points": [[1.0, 3.0], [2.0, 4.0]]}]),
        ),
        (
            "plt.plot(['x', 'y'], [1, 2], 'o')",
            "scatter",
            json!([{"label": null, "points": [["x", 1], ["y", 2]]}]),
        ),
        (
            "plt.errorbar([1, 2], [3, 4], yerr=[1, 1], label='e')",
            "line",
            json!([{"label": "e", "points": [[1, 3], [2, 4]]}]),
        ),
        (
            "plt.bar(['x', 'y'], [1, 2.5], label='b')",
            "bar",
            json!([{"label": "x", "group": "b", "value": 1}, {"label": "y", "group": "b", "value": 2.5}]),
        ),
        (
            "plt.barh(['x', 'y'], [1, 2])",
            "bar",
            json!([{"label": "x", "group": null, "value": 1}, {"label": "y", "group": null, "value": 2}]),
        ),
        (
            "plt.hist([1, 1, 2, 3], bins=2)",
            "bar",
            json!([{"label": "1 – 2", "group": null, "value": 2.0}, {"label": "2 – 3", "group": null, "value": 2.0}]),
        ),
        (
            "plt.pie([9, 1], labels=['x', 'y'], startangle=90)",
            "pie",
            json!([{"label": "x", "angle": 324.0, "radius": 1}, {"label": "y", "angle": 36.0, "radius": 1}]),
        ),
        (
            "plt.boxplot([[1, 2, 3, 10]])\nplt.boxplot([[1, 2, 3, 10]], patch_artist=True)",
            "box_and_whisker",
            json!([{"label": "1", "min": 1, "first_quartile": 1.75, "median": 2.5, "third_quartile": 4.75, "max": 4.75, "outliers": [10]}]),
        ),
        (
            "import datetime as d\nplt.plot([d.date(2024, 1, 1), d.date(2024, 1, 2)], [1, 2])",
            "line",
            json!([{"label": null, "points": [["2024-01-01", 1], ["2024-01-02", 2]]}]),
        ),
        ("plt.imshow([[1, 2]])", "unknown", json!([])),
    ];
    let code: String = (plots.iter())
        .map(|(code, ..)| format!("{code}\nplt.show()\n"))
        .collect();
    let found = charts(&python, &code);
    assert_eq!(found.len(), plots.len());
    for (chart, (code, kind, elements)) in found.into_iter().zip(plots) {
        assert_eq!(chart["type"].as_str(), Some(kind), "{code}");
        assert_eq!(chart["elements"], floats(elements), "{code}");
    }
    // Several axes, or several kinds in one, are charts of their own.
    let both = "fig, axes = plt.subplots(1, 2)\naxes[0].pie([1]); axes[1].bar([1], [2]); axes[1].plot([1, 2])\nfig.suptitle('all')";
    let chart = &charts(&python, both)[0];
    let kinds: Vec<_> = chart["elements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["type"].clone())
        .collect();
    assert_eq!(
        (chart["type"].as_str(), chart["title"].as_str()),
        (Some("superchart"), Some("all"))
    );
    assert_eq!(kinds, ["pie", "bar", "line"]);
    let many = "for n in range(60): plt.plot(range(300))\nplt.bar(range(3000), range(3000))";
    let chart = &charts(&python, many)[0];
    for (at, kind, total) in [(0, "bar", 3000.0), (1, "line", 60.0)] {
        let part = &chart["elements"][at];
        assert_eq!(
            (&part["type"], &part["total_elements"]),
            (&json!(kind), &json!(total))
        );
        let kept = part["elements"].as_array().unwrap().len();
        assert!(kept > 20 && (kept as f64) < total, "{kind}: {kept}");
    }
    let long = &charts(&python, "plt.plot(range(100_000))\nplt.title('x' * 10_000)")[0];
    let line = &long["elements"][0];
    assert_eq!(
        (
            line["points"].as_array().unwrap().len(),
            &line["total_points"]
        ),
        (1000, &json!(100_000.0))
    );
    assert_eq!(long["title"].as_str().unwrap().chars().count(), 2001);
}

#[test]
fn seaborn_draws_as_ever() {
    let Some(python) = python_with(&["seaborn"]) else {
        return;
    };
    let code = "import seaborn as sns, pandas as pd
df = pd.DataFrame({'k': ['a', 'b', 'a', 'b'], 'v': [1, 2, 3, 4]})
for draw in sns.boxplot, sns.barplot, sns.lineplot, sns.scatterplot:
    draw(data=df, x='k', y='v'); plt.show()
sns.heatmap([[1, 2]]); plt.show()
sns.pairplot(df)";
    let charts = charts(&python, code);
    let kinds: Vec<_> = charts.iter().map(|chart| chart["type"].clone()).collect();
    assert_eq!(kinds[..4], ["box_and_whisker", "bar", "line", "scatter"]);
    assert_eq!(charts[0]["elements"][1]["label"], "b");
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}

#[test]
fn a_chart_that_fails_leaves_the_picture() {
    let Some(python) = python_with(&["matplotlib"]) else {
        return;
    };
    let run = python.quiet("import matplotlib.pyplot as plt\nline, = plt.plot([1])\nline.get_xdata = lambda **k: 1 / 0\nplt.show()",
    );
    assert!(is_png(&run.results[0]) && run.results[0].chart.is_none());
    assert_eq!(run.notes, ["chart: ZeroDivisionError: division by zero"]);
    let run = python.quiet("import matplotlib.pyplot as plt\nfig = plt.figure(figsize=(9000, 9000))\nfig.add_subplot()\nplt.show()\n'on'",
    );
    assert_eq!(run.texts().last().unwrap(), "='on'");
    assert!(
        run.notes.iter().any(|note| note.starts_with("Figure: ")),
        "{run:#?}"
    );
}

#[test]
fn frames_come_as_tables_too() {
    let Some(python) = python_with(&["pandas"]) else {
        return;
    };
    let data = |code: &str| {
        let run = python.quiet(&format!("import pandas as pd, decimal\n{code}"));
        assert_eq!(run.notes, Vec::<String>::new(), "{code}");
        let item = run.results.into_iter().next().unwrap();
        (parsed(item.data.as_ref()).unwrap(), item.formats)
    };
    let (table, formats) = data(
        "pd.DataFrame({'city': ['Lyon', None], 'pop': [5.5, float('nan')], 'when': pd.to_datetime(['2024-05-01', None]), 'price': [decimal.Decimal('1.10'), float('inf')]})",
    );
    assert_eq!(table["columns"], json!(["city", "pop", "when", "price"]));
    assert_eq!(table["types"].as_array().unwrap().len(), 4);
    assert_eq!(
        table["rows"],
        json!([
            ["Lyon", 5.5, "2024-05-01T00:00:00", "1.10"],
            [null, null, null, null]
        ])
    );
    assert_eq!(
        (&table["total_rows"], table.get("index")),
        (&json!(2), None)
    );
    assert!(formats["text/html"].as_str().unwrap().contains("<table"));
    assert!(formats["text/plain"].as_str().unwrap().contains("Lyon"));

    let (table, _) = data("pd.Series([1, 2], index=pd.Index(['x', 'y'], name='k'), name='v')");
    assert_eq!(
        (
            &table["columns"],
            &table["rows"],
            &table["index"],
            &table["index_names"]
        ),
        (
            &json!(["v"]),
            &json!([[1], [2]]),
            &json!(["x", "y"]),
            &json!(["k"])
        )
    );
    let (table, _) =
        data("pd.DataFrame({('a', 1): [1]}, index=pd.MultiIndex.from_tuples([('x', 2)]))");
    assert_eq!(
        (&table["columns"], &table["index"]),
        (&json!([["a", 1]]), &json!([["x", 2]]))
    );
    let (table, _) = data("pd.DataFrame()");
    assert_eq!(
        (&table["columns"], &table["rows"], &table["total_rows"]),
        (&json!([]), &json!([]), &json!(0))
    );

    let (table, _) = data("pd.DataFrame({n: range(100_000) for n in range(300)})");
    let rows = table["rows"].as_array().unwrap();
    assert_eq!((rows.len(), rows[0].as_array().unwrap().len()), (200, 100));
    assert_eq!(
        (&table["total_rows"], &table["total_columns"]),
        (&json!(100_000), &json!(300))
    );
    let (table, _) = data("pd.DataFrame({'s': ['x' * 5000] * 1000})");
    assert!(table["rows"].as_array().unwrap().len() < 1000);
    assert_eq!(table["rows"][0][0].as_str().unwrap().chars().count(), 2001);
    assert_eq!(
        &table["shortened_values"],
        &json!(table["rows"].as_array().unwrap().len())
    );
    let (table, _) = data("pd.DataFrame({'s': [[[1] * 200] * 200] * 1000})");
    assert!(
        table["rows"]
            .as_array()
            .is_some_and(|rows| !rows.is_empty())
    );
}

#[test]
fn an_unreadable_table_is_still_a_frame() {
    let Some(python) = python_with(&["pandas"]) else {
        return;
    };
    let run = python.quiet(
        "import pandas as pd
class A:
    def __str__(self): raise KeyError('no')
    def __repr__(self): return 'A'
pd.DataFrame({'a': pd.Series([A()], dtype=object)})",
    );
    assert!(run.results[0].data.is_none());
    assert!(
        run.notes
            .iter()
            .any(|note| note.starts_with("data: KeyError")),
        "{run:#?}"
    );
}

#[test]
fn polars_frames_come_as_tables_too() {
    let Some(python) = python_with(&["polars"]) else {
        return;
    };
    let run = python.quiet("import polars as pl\ndisplay(pl.Series('s', [1, None]))\npl.DataFrame({'a': [1, 2], 'l': [[1], None]})",
    );
    let rows = |n: usize| parsed(run.results[n].data.as_ref()).unwrap()["rows"].clone();
    assert_eq!(rows(0), json!([[1], [null]]));
    assert_eq!(rows(1), json!([[1, [1]], [2, null]]));
}

#[test]
fn stylers_pictures_formulas_and_arrays_have_their_forms() {
    for (packages, code, expected, has_data) in [
        (
            &["pandas", "jinja2"][..],
            "import pandas as pd\npd.DataFrame({'a': [1]}).style.highlight_max()",
            &["text/html"][..],
            true,
        ),
        (
            &["PIL"],
            "from PIL import Image\nImage.new('RGB', (3, 3))",
            &["image/png"],
            false,
        ),
        (
            &["PIL"],
            "from PIL import Image\nImage.new('RGBA', (3, 3)).show()",
            &["image/png"],
            false,
        ),
        (
            &["sympy"],
            "import sympy\nsympy.Symbol('x') ** 2",
            &["text/latex"],
            false,
        ),
        (&["numpy"], "import numpy\nnumpy.arange(3)", &[], false),
        (
            &["plotly"],
            "import plotly.graph_objects as go\ngo.Figure(go.Bar(x=[1], y=[2])).show()",
            &["application/vnd.plotly.v1+json", "text/html"],
            false,
        ),
        (
            &["plotly"],
            "import plotly.graph_objects as go\ngo.Figure(go.Bar(x=[1], y=[2]))",
            &["application/vnd.plotly.v1+json", "text/html"],
            false,
        ),
        (
            &["altair"],
            "import altair as alt\nalt.Chart().mark_bar()",
            &["application/vnd.vegalite.v6+json", "text/html"],
            false,
        ),
    ] {
        let Some(python) = python_with(packages) else {
            continue;
        };
        let run = python.quiet(code);
        assert_eq!(forms(&run.results), [expected], "{code}");
        assert_eq!(run.results[0].data.is_some(), has_data, "{code}");
        assert_eq!(run.notes, Vec::<String>::new(), "{code}");
    }
}
