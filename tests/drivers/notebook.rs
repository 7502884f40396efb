//! What code for notebooks has beside Python: commands, magics, and their shell.

use super::harness::python;
use super::live::Live;

#[test]
fn lines_of_notebooks_do_what_they_say() {
    let Some(python) = python() else { return };
    for (code, stdout, texts) in [
        (
            "x = 'a b'\n!echo {x} $x \"$((1 + 1))\"",
            "a b a b 2\n",
            &[][..],
        ),
        (
            "if True:\n    !echo in \\\n      two lines\nprint(1)",
            "in two lines\n1\n",
            &[],
        ),
        (
            "files = !echo 1; echo 2\nfiles.n, files",
            "",
            &["=('1\\n2', ['1', '2'])"],
        ),
        (
            "\n    text = '''\n    a'''\n  # less\n    text\n",
            "",
            &["='\\na'"],
        ),
        ("  !echo indented\n", "indented\n", &[]),
        ("!exit 3\n_exit_code", "", &["=3"]),
        ("print('first')\n!echo second", "first\nsecond\n", &[]),
        ("!echo {unknown} {print $1}", "{unknown} {print }\n", &[]),
        ("%env FOO=bar\n!echo $FOO", "env: FOO=bar\nbar\n", &[]),
        ("%env FOO\n", "", &[]),
        (
            "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n%config A.b = 'c'",
            "",
            &[],
        ),
        (
            "%%bash -s\nfor i in 1 2; do\n  echo $i\ndone",
            "1\n2\n",
            &[],
        ),
        (
            "# a comment\n\n%%writefile new.txt\n%not a magic\n",
            "Writing new.txt\n",
            &[],
        ),
        ("open('new.txt').read()", "", &["='%not a magic\\n'"]),
        ("%%capture out\nprint('quiet')", "", &[]),
        (
            "%%html\n<b>x</b>",
            "",
            &["<IPython.core.display.HTML object>"],
        ),
        (
            "get_ipython().system('echo x')\nget_ipython().run_line_magic('pwd', '') == __import__('os').getcwd()",
            "x\n",
            &["=True"],
        ),
        (
            "get_ipython().run_cell_magic('bash', '', 'echo y')",
            "y\n",
            &[],
        ),
        ("def f():\n    !echo {1 + 1}\nf()", "2\n", &[]),
    ] {
        let run = python.quiet(code);
        assert_eq!(run.stdout, stdout, "{code}");
        assert_eq!(run.texts(), texts, "{code}");
    }
}

#[test]
fn what_python_understands_is_left_alone() {
    let Some(python) = python() else { return };
    // Each has a line that begins like one of a notebook's, and one that is one.
    for code in [
        "x = 7\ny = (100\n%x)\nprint(y)\n!true",
        "s = '''\n!not a command\n%nor a magic\n'''\nprint(len(s.split('\\n')) - 2)\n!true",
        "s = 'a \\\n!b'\nprint(2)\n!true",
        "x = [1,  # !a (\n2] and 2\nprint(x)\n!true",
        "x = 102 \\\n  % 100\nprint(x)\n!true",
        "print(\"it's\" and 2)  # don't\n!true",
    ] {
        assert_eq!(python.quiet(code).stdout, "2\n", "{code}");
    }
}

#[test]
fn times_are_printed_and_values_kept() {
    let Some(python) = python() else { return };
    let run = python.quiet("%timeit -n 3 -r 2 sum(range(10))");
    assert!(
        run.stdout
            .contains("(mean ± std. dev. of 2 runs, 3 loops each)"),
        "{run:?}"
    );
    let run = python.quiet("%%timeit -n 1 -r 1 x = 1\ny = x\ny");
    assert!(run.stdout.contains("of 1 run, 1 loop each)"), "{run:?}");
    let run = python.quiet("%time x = 5\n%time x + 1");
    assert_eq!(run.stdout.matches("Wall time: ").count(), 2);
    assert_eq!(run.texts(), ["=6"]);
}

#[test]
fn errors_name_the_line_and_the_magic() {
    let Some(python) = python() else { return };
    for (code, name, line, words) in [
        (
            "x = 1\n%nosuch x",
            "UsageError",
            2,
            "%nosuch is not a magic that cells have; there are %autoreload",
        ),
        (
            "x = 1\n%%bash\necho",
            "UsageError",
            2,
            "%%bash takes the rest of the code",
        ),
        ("%%nosuch", "UsageError", 1, "%%nosuch is not a magic"),
        (
            "%bash echo",
            "UsageError",
            1,
            "%bash is there as %%bash only",
        ),
        ("%%bash\nexit 3", "CalledProcessError", 1, "status 3"),
        ("!true\n1/0", "ZeroDivisionError", 2, "division"),
        ("%%time\n\n1/0", "ZeroDivisionError", 3, "division"),
        ("!true\nx = = 1", "SyntaxError", 2, "invalid syntax"),
        ("x = 5 !", "SyntaxError", 1, "invalid syntax"),
    ] {
        let run = python.run(code);
        let error = run.error();
        assert_eq!(
            (error.name.as_str(), error.line),
            (name, Some(line)),
            "{code}: {run:?}"
        );
        assert!(error.message.contains(words), "{code}: {error:?}");
        let shown = code.lines().nth(line as usize - 1).unwrap();
        assert!(run.traceback().contains(shown), "{code}: {error:?}");
    }
}

#[test]
fn the_shell_lasts_from_one_execution_to_the_next() {
    let Some(python) = python() else { return };
    let mut live = Live::new(&python);
    live.ok("x = 3\n!true");
    let shown = live.ok("y = !echo {x}\ny");
    assert_eq!(shown.outcome(), Ok(Some("['3']")));
    let source =
        live.ok("def f():\n    z = !echo g\n    return z\nimport inspect; inspect.getsource(f)");
    assert!(source.texts[0].contains("z = !echo g"), "{source:?}");
}

#[test]
fn pip_says_why_it_installs_nothing() {
    let Some(python) = python() else { return };
    // An index that nobody answers at.
    let nowhere = "import os; os.environ['PIP_INDEX_URL'] = 'http://127.0.0.1:1/simple'\n";
    for line in [
        "%pip install no-such-package",
        "!pip install -q no-such-package",
    ] {
        let run = python.ok(&format!("{nowhere}{line}\n_exit_code"));
        let words =
            "pip cannot install no-such-package: the network of this cell reaches no package index";
        assert!(run.stderr.contains(words), "{run:?}");
        assert_eq!(run.texts(), ["=1"]);
    }
    // No index is needed for what the cell has.
    for line in ["--no-index -f . no-such-package", "./own.whl"] {
        let code = format!("{nowhere}open('own.whl', 'w').close()\n%pip install {line}\n");
        let run = python.ok(&code);
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(!said.contains("reaches no package index"), "{said}");
    }
    let fake = "os.makedirs('own-1.0.dist-info'); open('own-1.0.dist-info/METADATA', 'w').write('Name: own\\nVersion: 1.0\\n')\n";
    let run = python.quiet(&format!("{nowhere}{fake}%pip install own==1.0\n"));
    assert_eq!(run.stdout, "Requirement already satisfied: own==1.0\n");
}

/// Where there is no pip, programs that the code starts get the same sentence.
#[test]
fn child_processes_call_pip_as_notebooks_do() {
    let Some(python) = python() else { return };
    let mut live = Live::new(&python);
    live.ok("import os, sys, subprocess
os.environ['HOME'] = os.getcwd()
os.environ['PIP_INDEX_URL'] = 'http://127.0.0.1:1/simple'
sys.modules['pip'] = None");
    for command in [
        "[sys.executable, '-m', 'pip', 'install', 'no-such-package']",
        "'pip install -q no-such-package', shell=True",
        "['pip3', 'install', 'no-such-package']",
    ] {
        let code = format!(
            "ran = subprocess.run({command}, capture_output=True, text=True)\n\
             (ran.returncode, ran.stderr[:70], 'pip')"
        );
        let shown = live.ok(&code);
        assert_eq!(
            shown.outcome(),
            Ok(Some(
                "(1, 'pip cannot install no-such-package: the network of this cell reaches n', 'pip')"
            )),
            "{command}"
        );
    }
    // Once, however often pip is called.
    let shown = live.ok("os.environ['PATH'].count('.local/bin'), 'pip'");
    assert_eq!(shown.outcome(), Ok(Some("(1, 'pip')")));
}

#[test]
fn what_is_installed_meanwhile_can_be_imported() {
    let Some(python) = python() else { return };
    let code = "import os, site
os.environ['HOME'] = os.getcwd()
site.USER_SITE = site.USER_BASE = None
place = site.getusersitepackages()
try:
    import brought
except ModuleNotFoundError as error:
    print(error)
os.makedirs(place)
open(place + '/brought.py', 'w').write('value = 7')
import brought
brought.value";
    let run = python.quiet(code);
    assert_eq!(run.stdout, "No module named 'brought'\n");
    assert_eq!(run.texts(), ["=7"]);
}

#[test]
fn input_that_is_not_there_is_named() {
    let Some(python) = python() else { return };
    let run = python.run("input('name? ')");
    assert_eq!(run.stdout, "name? ");
    assert_eq!(run.error().name, "EOFError");
    assert!(
        run.error()
            .message
            .contains("there is no more standard input")
    );
    let run = python.quiet("import io, sys\nsys.stdin = io.StringIO('one\\n')\ninput()");
    assert_eq!(run.texts(), ["='one'"]);
}
