//! `get_ipython()`, and what packages ask of it.

use record::ResultItem;
use serde_json::{Value, json};

use super::harness::{Bench, python, python_with};
use super::live::Live;

/// Executes each code in one process; its results are to have these texts.
fn check(python: &Bench, expected: &[(&str, &[&str])]) {
    let mut live = Live::new(python);
    for (code, texts) in expected {
        let shown = live.ok(code);
        assert_eq!(shown.texts, *texts, "{code}: {shown:?}");
    }
}

fn form(item: &ResultItem, name: &str) -> Value {
    json!(item.formats.get(name))
}

/// A package that is as far like IPython as the driver looks at it.
fn write_ipython(python: &Bench) {
    std::fs::create_dir_all(python.workspace().join("IPython/core")).unwrap();
    for (path, text) in [
        ("__init__", "from .core.getipython import get_ipython"),
        ("core/__init__", ""),
        ("core/getipython", "def get_ipython(): return None"),
        (
            "core/interactiveshell",
            "class InteractiveShell:\n    @classmethod\n    def instance(cls): return cls()",
        ),
        (
            "core/magic",
            "class Magics:\n    def __init__(self, shell=None): assert shell is None; self.magics = {'line': {'own': self.own}, 'cell': {}}",
        ),
        ("core/pylabtools", "def select_figure_formats(*_): 1 / 0"),
    ] {
        python.write(&format!("IPython/{path}.py"), &format!("{text}\n"));
    }
}

#[test]
fn there_is_one_shell_however_it_is_asked_for() {
    let Some(python) = python() else { return };
    let code = "import IPython
from IPython.core.getipython import get_ipython as third
from IPython.core.interactiveshell import InteractiveShell
from IPython import get_ipython as second
shell = get_ipython()
assert shell is second() is third() is IPython.get_ipython() is InteractiveShell.instance()
assert InteractiveShell.initialized() and __IPYTHON__ and hasattr(shell, 'kernel')
from IPython.core.magic import Magics
class Own(Magics):
    own = lambda self, line: (self.shell is shell, line)
    own.magics = [('line', 'own')]
shell.register_magics(Own)
print(type(shell), shell.run_line_magic('own', 'x'))";
    let expected = "<class 'ipykernel.zmqshell.ZMQInteractiveShell'> (True, 'x')\n";
    if !python.plain("import IPython").status.success() {
        assert_eq!(python.quiet(code).stdout, expected, "without IPython");
    }
    write_ipython(&python);
    assert_eq!(python.quiet(code).stdout, expected, "with IPython");
}

#[test]
fn types_get_forms_by_functions_of_the_codes_own() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "import decimal
table = get_ipython().display_formatter.formatters
class Thing:
    def _repr_html_(self): return 'own'
    def _repr_mimebundle_(self, **_): return {'text/latex': 'own', 'x/y': 'kept'}
table['text/html'].for_type(Thing, lambda thing: '<i>')
table['text/latex'].for_type_by_name('__main__', 'Thing', lambda thing: ('$x$', {'a': 1}))
table['text/plain'].for_type(int, lambda value, printer, cycle: printer.text('#%d' % value))
table['text/plain'].for_type_by_name('decimal', 'Decimal', lambda value, printer, cycle: printer.text('D'))
display(Thing(), 5, [5, decimal.Decimal(1)], True)
print(table['text/html'].lookup(Thing())(0), table['text/html'].pop(Thing)(0), table['text/html'](Thing()))
get_ipython().display_formatter.active_types = ['text/plain']
display(Thing())
class Own:
    def __call__(self, value): return 'mine'
table['text/plain'] = Own()
display(1.5)
print(get_ipython().display_formatter.format({})[0])",
    );
    let things: Vec<_> = ["text/html", "text/latex", "x/y"]
        .map(|name| form(&run.results[0], name))
        .into();
    assert_eq!(things, [json!("<i>"), json!("$x$"), json!("kept")]);
    assert_eq!(run.texts()[1..4], ["#5", "[#5, D]", "#1"]);
    let last = &run.results[4];
    assert_eq!(
        (form(last, "text/html"), form(last, "x/y")),
        (Value::Null, json!("kept"))
    );
    assert_eq!(run.texts()[5..], ["mine"]);
    assert_eq!(run.stdout, "<i> <i> own\n{'text/plain': 'mine'}\n");
}

#[test]
fn functions_are_called_before_and_after_executions() {
    let Some(python) = python() else { return };
    check(
        &python,
        &[
            (
                "log = []; events = get_ipython().events
def after(result): log.append((result.success, result.result))
events.register('pre_run_cell', lambda info: log.append(info.raw_cell))
events.register('post_run_cell', after)",
                &[],
            ),
            ("7", &["7"]),
            ("log", &["[(True, None), '7', (True, 7), 'log']"]),
            (
                "events.unregister('post_run_cell', after); log.clear()",
                &[],
            ),
            ("log", &["['log']"]),
            (
                "import ast
class Double(ast.NodeTransformer):
    def visit_Constant(self, node): return ast.copy_location(ast.Constant(node.value * 2), node)
shell = get_ipython(); shell.ast_transformers.append(Double())",
                &[],
            ),
            ("4", &["8"]),
            ("shell.ast_transformers.clear()", &[]),
            (
                "shell.input_transformers_post.append(lambda lines: [line.replace('@@', '1') for line in lines])",
                &[],
            ),
            ("@@ + @@", &["2"]),
        ],
    );
    let mut live = Live::new(&python);
    live.ok("log = []\nget_ipython().events.register('post_run_cell', lambda result: log.append(repr(result.error_in_exec)))");
    assert_eq!(live.run("1 / 0").outcome(), Err("ZeroDivisionError"));
    let shown = live.ok("log[1]");
    assert_eq!(
        shown.outcome(),
        Ok(Some("\"ZeroDivisionError('division by zero')\""))
    );
}

#[test]
fn magics_and_extensions_are_registered() {
    let Some(python) = python() else { return };
    python.write(
        "extension.py",
        "def load_ipython_extension(shell): shell.push({'loaded': True})\n",
    );
    check(
        &python,
        &[
            (
                "get_ipython().register_magic_function(str.upper, magic_name='up')\n%up a",
                &["'A'"],
            ),
            ("%load_ext extension\nloaded", &["True"]),
            (
                "%precision 2\n[1.23456, {'a': 2.0}]",
                &["[1.23, {'a': 2.00}]"],
            ),
            (
                "%config Some.setting = 1 + 1\nget_ipython().config.Some.setting",
                &["2"],
            ),
            ("%%capture out\nprint(1); display(2)", &[]),
            ("out.stdout, len(out.outputs)", &["('1\\n', 1)"]),
            ("out.outputs[0].display()", &["2"]),
            (
                "get_ipython().ev('1 + 1'), get_ipython().user_ns['out'] is out",
                &["(2, True)"],
            ),
        ],
    );
    let run = python.run("%load_ext no_such_extension");
    assert_eq!(run.error().name, "ModuleNotFoundError");
    let run = python.run("get_ipython().no_such_part");
    assert_eq!(run.error().name, "AttributeError");
}

#[test]
fn packages_may_show_tracebacks_and_the_record_has_the_error() {
    let Some(python) = python() else { return };
    let run = python.run(
        "shell = get_ipython()
shell._showtraceback = lambda kind, value, lines: print('shown', kind.__name__, lines[-1])
1 / 0",
    );
    assert_eq!(
        run.stdout,
        "shown ZeroDivisionError ZeroDivisionError: division by zero\n"
    );
    assert_eq!(run.error().name, "ZeroDivisionError");
    let handler = "shell = get_ipython()
def handle(self, kind, value, trace, tb_offset): print(self is shell, kind.__name__, tb_offset)
assert ArithmeticError not in shell.custom_exceptions
shell.set_custom_exc((ArithmeticError,), handle)\n";
    for (code, name, printed) in [
        (
            "1 / 0",
            "ZeroDivisionError",
            "True ZeroDivisionError None\n",
        ),
        ("no_such_name", "NameError", ""),
        (
            "shell.set_custom_exc((), None); 1 / 0",
            "ZeroDivisionError",
            "",
        ),
    ] {
        let run = python.run(format!("{handler}{code}"));
        assert_eq!(
            (&*run.error().name, &*run.stdout),
            (name, printed),
            "{code}"
        );
        assert_eq!(run.stderr, "", "{code}");
    }
}

#[test]
fn objects_print_themselves() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "class Tree:
    def __init__(self, *parts): self.parts = parts
    def _repr_pretty_(self, p, cycle):
        with p.group(2, 'Tree(', ')'):
            for index, part in enumerate(self.parts):
                if index:
                    p.text(',')
                    p.breakable()
                p.pretty(part)
class Other(Tree):
    def __repr__(self): return 'other'
class Broken:
    def _repr_pretty_(self, p, cycle): raise ValueError('no')
    def __repr__(self): return 'repr'
display(Tree(1, 'a'), Tree('x' * 50, Tree([1], 'y' * 40)), Other(), Tree)",
    );
    let long = format!(
        "Tree('{}',\n  Tree([1], '{}'))",
        "x".repeat(50),
        "y".repeat(40)
    );
    assert_eq!(
        run.texts(),
        ["Tree(1, 'a')", &long, "other", "<class '__main__.Tree'>"]
    );
    let run = python.run("class Broken:\n    def _repr_pretty_(self, p, cycle): raise ValueError('no')\n    def __repr__(self): return 'repr'\nBroken()");
    assert_eq!(run.texts(), ["=repr"]);
    assert_eq!(run.notes, ["text/plain: ValueError: no"]);
}

#[test]
fn a_picture_that_is_no_png_is_a_jpeg() {
    let Some(python) = python_with(&["PIL"]) else {
        return;
    };
    let run = python.quiet(
        "from PIL import Image\ndisplay(Image.new('RGB', (2, 2)), Image.new('CMYK', (2, 2)))",
    );
    let forms = |item: &ResultItem| item.formats.keys().cloned().collect::<Vec<_>>();
    assert_eq!(forms(&run.results[0]), ["image/png", "text/plain"]);
    assert_eq!(forms(&run.results[1]), ["image/jpeg", "text/plain"]);
}

#[test]
fn what_json_cannot_have_is_null() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "from IPython.display import JSON
display(JSON({'a': [1, float('nan')], 'b': float('-inf')}))
display({'application/x+json': {'c': float('nan')}}, raw=True)",
    );
    assert_eq!(
        form(&run.results[0], "application/json"),
        json!({"a": [1, null], "b": null})
    );
    assert_eq!(
        form(&run.results[1], "application/x+json"),
        json!({"c": null})
    );
}

#[test]
fn a_progress_bar_changes_what_it_has_shown() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "from IPython.display import ProgressBar, FileLink
print(list(ProgressBar(2)))
FileLink('x')",
    );
    assert_eq!(run.stdout, "[0, 1]\n");
    let bar = |item: &ResultItem| form(item, "text/html");
    let first = bar(&run.results[0]).to_string();
    assert!(first.contains("max") && first.contains('0'), "{first}");
    let last = run.updates.last().unwrap();
    let text = last.text.as_ref().unwrap();
    assert!(
        text.starts_with("[====") && text.ends_with("] 2/2"),
        "{text}"
    );
    let path = python.workspace().join("x");
    assert_eq!(run.results[1].text.as_deref(), path.to_str());
}

#[test]
fn formulas_are_pictures_where_matplotlib_draws_them() {
    let Some(python) = python_with(&["matplotlib"]) else {
        return;
    };
    let run = python.quiet(
        "from IPython.lib.latextools import latex_to_png
picture = latex_to_png('x^2', wrap=True, scale=2.0)
print(picture[1:4], latex_to_png('$\\\\no_such$'))",
    );
    assert_eq!(run.stdout, "b'PNG' None\n");
}

#[test]
fn a_forked_child_shows_no_value() {
    let Some(python) = python() else { return };
    let code = "import os
child = os.fork()
if child: os.waitpid(child, 0)
'value'";
    let run = python.quiet(code);
    assert_eq!(run.stdout, "");
    assert_eq!(run.texts(), ["='value'"]);
}

#[test]
fn asyncio_run_works_beside_a_top_level_await() {
    let Some(python) = python() else { return };
    check(
        &python,
        &[
            (
                "import asyncio
async def value(x): await asyncio.sleep(0); return x
first = asyncio.run(value(1))
async def inside(): return asyncio.run(value(3))
first, await value(2), await inside(), asyncio.run(value(4)), await value(5)",
                &["(1, 2, 3, 4, 5)"],
            ),
            ("asyncio.run(value(6))", &["6"]),
            (
                "task = asyncio.create_task(value(7)); asyncio.run(value(0)); await task",
                &["7"],
            ),
        ],
    );
    let run = python.run(
        "import asyncio\nawait asyncio.sleep(0)\nasync def fails(): 1 / 0\nasyncio.run(fails())",
    );
    assert_eq!(run.error().name, "ZeroDivisionError");
}

#[test]
fn figures_are_closed_and_have_the_forms_that_are_set() {
    let Some(python) = python_with(&["matplotlib"]) else {
        return;
    };
    let mut live = Live::new(&python);
    let first = live.ok("import matplotlib.pyplot as plt\nplt.plot([1]);");
    assert_eq!(first.texts.len(), 1);
    let none = live.ok("plt.get_fignums()");
    assert_eq!(none.outcome(), Ok(Some("[]")));
    live.ok("%config InlineBackend.close_figures = False\nplt.plot([1]);");
    assert_eq!(live.ok("plt.get_fignums()").outcome(), Ok(Some("[1]")));
    for (code, forms) in [
        (
            "%config InlineBackend.figure_format = 'svg'",
            &["image/svg+xml", "text/plain"][..],
        ),
        (
            "%config InlineBackend.figure_formats = ['png', 'pdf']",
            &["application/pdf", "image/png", "text/plain"],
        ),
        (
            "%config InlineBackend.figure_formats = {'jpeg', 'svg'}",
            &["image/jpeg", "image/svg+xml", "text/plain"],
        ),
    ] {
        let run = python.quiet(&format!(
            "{code}\nimport matplotlib.pyplot as plt\nplt.plot([1]);"
        ));
        let found: Vec<_> = run.results[0].formats.keys().collect();
        assert_eq!(found, forms, "{code}");
        assert!(run.results[0].chart.is_some());
    }
    let run = python.quiet("%config InlineBackend.figure_format = 'retina'\nimport matplotlib.pyplot as plt\nplt.plot([1]);");
    let about = super::harness::parsed(run.results[0].metadata.as_ref()).unwrap();
    assert!(about["image/png"]["width"].as_u64() > Some(100), "{about}");
}
