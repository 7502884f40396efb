//! Python 3.9 and later.
//!
//! `-B` keeps `__pycache__` out of the workspace, whose new files the record
//! lists. `-X utf8` makes UTF-8 the encoding whatever the locale. There is no
//! `-I`: the environment is the caller's explicit wish, `PYTHONPATH` and
//! `PYTHONHASHSEED` included, and the driver takes its own directory off the module
//! path.
//!
//! What the driver does for the code, beyond running it as a fresh `__main__`:
//!
//! * The value of a last expression is the main result, unless it is `None` or a
//!   semicolon follows. `display(…)` makes further results, and handles to
//!   update them by. Both ask an object for `_ipython_display_`,
//!   `_repr_mimebundle_` and for `_repr_html_` and its kin, as Jupyter does.
//!   A form that raises, is of the wrong type or exceeds 8 MiB is left out with
//!   a note; the code goes on.
//! * Where IPython is not installed, `from IPython.display import …` gives a
//!   stand-in; where it is, its functions display here.
//! * matplotlib draws without a window, whatever the code asks for.
//!   `plt.show()` and the end of the code show every open figure that is not
//!   shown already as it is, with the data behind it (`chart`) in the terms of
//!   E2B's charts; the end of the code closes all figures. Frames and series of pandas and polars have a `data` form.
//!   pyplot, plotly and PIL show what they would open a window or a browser
//!   for.
//! * `await` works at the top level, and `asyncio.run()` beside it: the other loop runs to its end
//!   while the outer one waits. A process that the code has forked shows no value and no figures.
//! * An uncaught exception becomes an error frame and exit status 1 (130 for
//!   `KeyboardInterrupt`). The driver's frames are not in its traceback, nor in
//!   those of exceptions that it is chained to or groups. It is *not* written to
//!   stderr, which holds only what the code wrote. A `sys.excepthook` that the code
//!   has set is called. Python's own message appears where the code has closed the
//!   channel, and in a child that it forked.
//! * stdout and stderr have no buffer (as with `python -u`), so that a killed run leaves its output.
//!   One `print()` is one write: it is the driver's, which gives the values' texts to Python's own.
//! * `sys.exit`, `atexit` and threads are plain Python's.
//!
//! * Code that speaks of `__file__`, `argv[0]` or its own name lies in that file, in the
//!   workspace; the supervisor does not list it. Workers of `multiprocessing` by `spawn` and
//!   `forkserver`, and of joblib, import all that was executed so far from a file that is
//!   written for them below the temporary directory. Of an execution that starts them without
//!   `if __name__ == "__main__":`, that file has the definitions alone: otherwise each worker
//!   would start others. A pool of which the workers end as soon as they start ends the execution.
//! * Lines of notebooks (`!cmd`, `%magic`, `%%magic`, `x = !cmd`) become calls of
//!   `get_ipython()`, in code that does not parse as Python. Nothing of IPython is needed.
//!   `%pip` and `!pip` install for the user, with a pip that the index has if the cell has
//!   none; modules that appear there meanwhile can be imported.
//! * `input()` says that there is no input, where plain Python says EOF.
//!
//! `clear_output()` takes back results, not what was printed.
//!
//! Executions share one `__main__`: variables, functions, imports and what `from __future__` gives
//! persist, and an exception leaves them as they are. `In`, `Out`, `_`, `_1` and their kin have
//! earlier code and results, as far as these fit into 64 MiB; a single run has none of them. `sys.exit` ends the process, since a
//! single run needs its status. From the second execution on, the code is called
//! `main.py[2]` in tracebacks, so that functions of earlier ones keep their lines.
//!
//! # Interrupts
//!
//! SIGINT raises `KeyboardInterrupt` where an execution is at work: in its code, in the
//! reprs of its results, in its figures. The handler looks at the frames below it and lets
//! the driver's own work be; a frame that is being written is finished first. A handler
//! that the code itself sets is in force during executions only.
//!
//! # Variables
//!
//! They are described without running code of theirs: types come from `type`'s own
//! descriptors, sizes and previews from methods written in C. The exceptions are frames and
//! series of pandas and polars, whose shape and memory their packages tell.
//!
//! # The modules
//!
//! Python takes longer to compile the driver than the driver takes for all else. So most
//! starts find the code that this Python has made of it ([`super::Compiler`]). Each start
//! loads only what every execution needs, and the rest when it is first needed. The
//! modules travel as one file, and their code as another; `__main__.py` reads both at
//! once: they load whatever a program has done to descriptors and to `sys`. Code with
//! another magic number than this Python's is not used. The modules have builtins of their
//! own, which a program cannot replace, and import Python's modules without the workspace,
//! whose files would stand in for them.
//!
//! | module | when |
//! |---|---|
//! | `main` loads modules, and finds those of packages | at once |
//! | `protocol` reads requests and writes frames | at once |
//! | `session`, `source` execute code | at once |
//! | `streams` takes the buffers from stdout and stderr | at once |
//! | `interrupts` decides what SIGINT interrupts | at once |
//! | `ending` ends the process | at once |
//! | `results` | a value is shown |
//! | `rich` | a value has more forms than its repr |
//! | `display` | `display()` has options; updates and clears |
//! | `tables` | the value is a table, or a figure, whose numbers it makes JSON |
//! | `hooks` | IPython, matplotlib, PIL, plotly or subprocess is imported; `linecache`, from the second execution on |
//! | `figures` | pyplot is imported, or a figure shown |
//! | `standins`, `ipython`, `decorators` | IPython, or matplotlib's part of it, is imported and not installed |
//! | `history` | there are several executions |
//! | `inline` | code sets what figures are shown as |
//! | `formatters`, `pretty` | code gives types forms of its own; an object has `_repr_pretty_` |
//! | `describe` | the variables are to be described |
//! | `errors`, `tracebacks` | there is an exception |
//! | `eventloop` | `await` occurs at the top level |
//! | `template`, `doublefork`, `rehearsal`, `immortal` | it is to serve forks of itself |
//! | `randomness` | it is a copy of a template, or has the state of a checkpoint |
//! | `workers`, `definitions` | `multiprocessing` is imported; code starts processes without a guard |
//! | `reserves` | `subprocess` is imported; `os.system()` |
//! | `codefile` | the code looks for its file, or a process imports it |
//! | `magics`, `notebook`, `commands`, `timing`, `packages` | there are lines of notebooks; `get_ipython()` |
//! | `kernel`, `capturing` | code asks for the larger parts of `get_ipython()`; `%%capture` |
//!
//! `compiled.py` is no module of the driver's: it compiles them, in a cell of its own.
//!
//! Python's own start is left as it is. `-S`, with what `site` does handed over, would save a
//! millisecond and a half; but `sys.flags` would say so, processes that Python starts would be
//! given the flag, and lines of `.pth` files have to be executed in any case.
//!
//! Nothing of a package is imported for a result: an object of a class that
//! `sys.modules` does not know cannot be there.

use super::{
    Compiler, Delivery, Driver, DriverFile, Exceptions, Modules, SCRIPT, between, file, profile,
};
use record::{Category, CodeError};

mod modules;

/// The file that Python runs.
const MAIN: DriverFile = file!("cellblock_driver/__main__.py");

/// The modules in one file: before each, a form feed and a line with its name.
macro_rules! modules {
    ($($name:literal)*) => {
        concat!($(
            "\x0c", $name, "\n",
            include_str!(concat!("cellblock_driver/", $name, ".py")),
        )*)
    };
}

/// The directory of these in a cell.
macro_rules! directory {
    () => {
        "/run/cellblock/cellblock_driver"
    };
}

const MODULES: DriverFile = DriverFile {
    path: concat!(directory!(), "/modules"),
    content: modules!(
        "capturing" "codefile" "commands" "decorators" "definitions" "describe" "display" "doublefork" "ending"
        "errors" "eventloop" "figures" "formatters" "history" "hooks" "immortal" "inline" "interrupts"
        "ipython" "kernel" "magics" "main" "notebook" "output" "packages" "pretty" "protocol"
        "randomness" "rehearsal" "reserves" "results" "rich" "session" "solids" "source" "standins" "streams"
        "tables" "template" "timing" "tracebacks" "workers"
    )
    .as_bytes(),
};

/// What most executions need is compiled ahead.
const COMPILER: Compiler = Compiler {
    arguments: &[
        "-I",
        "-S",
        "-B",
        "-X",
        "utf8",
        "-c",
        include_str!("cellblock_driver/compiled.py"),
        directory!(),
    ],
    input: modules!(
        "codefile" "display" "ending" "errors" "eventloop" "history" "interrupts" "main" "output" "protocol"
        "results" "rich" "session" "source" "streams" "tracebacks"
    ),
    digest: include_str!(concat!(env!("OUT_DIR"), "/python.digest")),
    path: concat!(directory!(), "/compiled"),
};

/// See the module's documentation.
pub(super) static DRIVER: Driver = Driver {
    name: "python",
    aliases: &["python3", "py"],
    extensions: &["py"],
    interpreters: &[
        "/usr/bin/python3",
        "/usr/local/bin/python3",
        "/opt/python/bin/python3",
    ],
    flags: &["-B", "-X", "utf8", MAIN.path],
    files: &[MAIN, MODULES],
    compiler: Some(COMPILER),
    delivery: Delivery::Channel,
    is_template: true,
    settles: true,
    // Its heap has no limit.
    reserves: false,
    profile: Some(profile!("python", "profile.toml")),
    rootfs: "python",
    exceptions: EXCEPTIONS,
    modules: Some(Modules {
        missing: &["No module named "],
        provider: modules::provider,
    }),
    missing_program,
    ..SCRIPT
};

const EXCEPTIONS: Exceptions = Exceptions {
    decisive: &[(Category::Processes, "can't start new thread")],
    classes: &[
        (Category::Syntax, "SyntaxError IndentationError TabError"),
        (
            Category::Name,
            "NameError UnboundLocalError AttributeError ReferenceError",
        ),
        (Category::Import, "ImportError ModuleNotFoundError"),
        (
            Category::Type,
            "TypeError UFuncTypeError UFuncNoLoopError DTypePromotionError",
        ),
        (
            Category::Value,
            "ValueError LookupError KeyError IndexError ArithmeticError \
             ZeroDivisionError OverflowError FloatingPointError UnicodeError \
             UnicodeDecodeError UnicodeEncodeError UnicodeTranslateError \
             JSONDecodeError InvalidOperation LinAlgError EmptyDataError ParserError \
             ColumnNotFoundError IntCastingNaNError InvalidIndexError MergeError \
             OutOfBoundsDatetime AxisError",
        ),
        (
            Category::File,
            "FileNotFoundError FileExistsError IsADirectoryError NotADirectoryError \
             BadZipFile InvalidFileException UnidentifiedImageError \
             UnsupportedOperation",
        ),
        (Category::Permission, "PermissionError"),
        (
            Category::Network,
            "ConnectionError ConnectionRefusedError ConnectionResetError \
             ConnectionAbortedError gaierror herror URLError MaxRetryError \
             NewConnectionError NameResolutionError ProxyError SSLError ConnectError \
             ConnectTimeout ConnectTimeoutError ReadTimeout ReadTimeoutError \
             ClientConnectorError ClientConnectorDNSError ClientOSError \
             ServerDisconnectedError",
        ),
        (Category::Timeout, "TimeoutExpired"),
        (Category::Processes, "BlockingIOError"),
    ],
    messages: &[],
};

/// Python names the file alone; the traceback shows that it was to be executed.
fn missing_program(error: &CodeError) -> Option<&str> {
    const CALLS: [&str; 5] = [
        "_execute_child",
        "posix_spawn",
        "execvp",
        "os.exec",
        "create_subprocess",
    ];
    let executes = |line: &String| CALLS.iter().any(|call| line.contains(call));
    let is_missing = error.errno == Some(libc::ENOENT) && error.name == "FileNotFoundError";
    (is_missing && error.traceback.iter().any(executes))
        .then(|| between(&error.message, "No such file or directory: '", "'"))
        .flatten()
}
