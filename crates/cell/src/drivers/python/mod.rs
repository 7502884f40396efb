//! Python 3.9 and later.
//!
//! `-B` keeps `__pycache__` out of the workspace, whose new files the record
//! lists. `-X utf8` makes UTF-8 the encoding whatever the locale. There is no
//! `-I`: the environment is the caller's explicit wish, `PYTHONPATH` and
//! `PYTHONHASHSEED` included, and the shim itself takes its own directory off
//! the module path.
//!
//! What the shim does for the code, beyond running it as a fresh `__main__`:
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
//!   E2B's charts. Frames and series of pandas and polars have a `data` form.
//!   pyplot, plotly and PIL show what they would open a window or a browser
//!   for.
//! * `await` works at the top level.
//! * An uncaught exception becomes an error frame and exit status 1 (130 for
//!   `KeyboardInterrupt`). Frames of the shim are not in its traceback, nor in
//!   those of exceptions that it is chained to or groups. It is *not* written to
//!   stderr as well: stderr is what the code wrote. A `sys.excepthook` that the code has set is
//!   called, and Python's own message appears where the code has closed the
//!   channel, or in a child that it forked.
//! * stdout is line-buffered, so that a killed run leaves its output.
//! * `sys.exit`, `atexit` and threads are plain Python's.
//!
//! Not there: IPython's magics and shell, and `multiprocessing` by `spawn`, which
//! wants to import `__main__` from a file. `clear_output()` takes back results,
//! not what was printed.
//!
//! # Why the shim looks like that
//!
//! Python compiles the shim anew at every start, at about 10 µs a line, so only
//! what every run needs is in `shim.py`. (As a `-c` argument it would spare Python
//! the search for who could import it, a tenth of a millisecond; but Python 3.13
//! then imports `linecache`, from the workspace if there is one.) The other parts
//! come with the request and are compiled when they are first called for,
//! all in one namespace. By then they are bytes in the shim's own hands, whatever
//! the program did to files, descriptors and modules. A further part is a file
//! here and a line in [`PARTS`].
//!
//! | part | when |
//! |---|---|
//! | `results.py` | there is a value to show |
//! | `rich.py` | its repr is not all |
//! | `display.py` | `display()` has options; updates and clears |
//! | `tables.py` | the value is a table, or a figure, whose numbers it makes JSON |
//! | `hooks.py` | IPython, matplotlib, PIL or plotly is imported |
//! | `figures.py` | pyplot is imported, or a figure shown |
//! | `ipython.py` | IPython is imported and not there |
//! | `errors.py` | there is an exception |
//! | `code.py` | code is not read the short way |
//!
//! Packages are noticed by a finder in `sys.meta_path` that a plain run only
//! pays for by having it. Nothing of them is imported for a result: an object of
//! a class that `sys.modules` does not know cannot be there.
//!
//! Three more things that a bare start does not pay for are avoided:
//!
//! * `compile()` sets up the types of all syntax trees before it looks at its
//!   argument, which takes a millisecond; `exec()` and `eval()` do not. So the
//!   code object is taken from these, by a profile function that stops them at
//!   their first call, and then given the code's name. That needs no tree to
//!   find a last expression that starts on the last line that is not indented.
//!   Anything else, code that does not parse or that warns included, is left to
//!   `compile()`.
//! * Modules that a bare interpreter has not loaded are not imported.
//! * Python's way out takes 2 ms to take everything apart. When the program has
//!   loaded no module and leaves only plain containers and functions behind,
//!   nobody could tell: no `atexit`, thread, open file or `__del__` is among
//!   them. Then the streams are flushed and the process ends. `gc.freeze()`
//!   tells what the program made from what was there before.

use super::{Delivery, Driver, DriverFile, Exceptions, Modules, Part, SCRIPT, between, profile};
use record::{Category, CodeError};

mod modules;

const SHIM: &str = "/run/cellblock/python.py";

/// A part that is the file of this name beside this one.
macro_rules! part {
    ($name:literal) => {
        Part {
            name: $name,
            content: include_str!($name),
        }
    };
}

const PARTS: &[Part] = &[
    part!("results.py"),
    part!("rich.py"),
    part!("display.py"),
    part!("tables.py"),
    part!("hooks.py"),
    part!("figures.py"),
    part!("ipython.py"),
    part!("errors.py"),
    part!("code.py"),
];

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
    flags: &["-B", "-X", "utf8", SHIM],
    files: &[DriverFile {
        path: SHIM,
        content: include_str!("shim.py"),
    }],
    delivery: Delivery::Channel(PARTS),
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
        (
            Category::Syntax,
            &["SyntaxError", "IndentationError", "TabError"],
        ),
        (
            Category::Name,
            &[
                "NameError",
                "UnboundLocalError",
                "AttributeError",
                "ReferenceError",
            ],
        ),
        (Category::Import, &["ImportError", "ModuleNotFoundError"]),
        (
            Category::Type,
            &[
                "TypeError",
                "UFuncTypeError",
                "UFuncNoLoopError",
                "DTypePromotionError",
            ],
        ),
        (
            Category::Value,
            &[
                "ValueError",
                "LookupError",
                "KeyError",
                "IndexError",
                "ArithmeticError",
                "ZeroDivisionError",
                "OverflowError",
                "FloatingPointError",
                "UnicodeError",
                "UnicodeDecodeError",
                "UnicodeEncodeError",
                "UnicodeTranslateError",
                "JSONDecodeError",
                "InvalidOperation",
                "LinAlgError",
                "EmptyDataError",
                "ParserError",
                "ColumnNotFoundError",
                "IntCastingNaNError",
                "InvalidIndexError",
                "MergeError",
                "OutOfBoundsDatetime",
                "AxisError",
            ],
        ),
        (
            Category::File,
            &[
                "FileNotFoundError",
                "FileExistsError",
                "IsADirectoryError",
                "NotADirectoryError",
                "BadZipFile",
                "InvalidFileException",
                "UnidentifiedImageError",
                "UnsupportedOperation",
            ],
        ),
        (Category::Permission, &["PermissionError"]),
        (
            Category::Network,
            &[
                "ConnectionError",
                "ConnectionRefusedError",
                "ConnectionResetError",
                "ConnectionAbortedError",
                "gaierror",
                "herror",
                "URLError",
                "MaxRetryError",
                "NewConnectionError",
                "NameResolutionError",
                "ProxyError",
                "SSLError",
                "ConnectError",
                "ConnectTimeout",
                "ConnectTimeoutError",
                "ReadTimeout",
                "ReadTimeoutError",
                "ClientConnectorError",
                "ClientConnectorDNSError",
                "ClientOSError",
                "ServerDisconnectedError",
            ],
        ),
        (Category::Timeout, &["TimeoutExpired"]),
        (Category::Processes, &["BlockingIOError"]),
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
