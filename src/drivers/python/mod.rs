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
//!   semicolon follows. `display(…)` makes further results. Both ask an object
//!   for `_repr_mimebundle_` and for `_repr_html_` and its kin, as Jupyter does.
//!   A form that raises or exceeds 8 MiB is left out with a note; the code goes
//!   on.
//! * `await` works at the top level.
//! * An uncaught exception becomes an error frame and exit status 1 (130 for
//!   `KeyboardInterrupt`). Its traceback is *not* written to stderr as well:
//!   stderr is what the code wrote. A `sys.excepthook` that the code has set is
//!   called, and Python's own message appears where the code has closed the
//!   channel, or in a child that it forked.
//! * stdout is line-buffered, so that a killed run leaves its output.
//! * `sys.exit`, `atexit` and threads are plain Python's.
//!
//! Not there: display ids and metadata, `_ipython_display_`, and
//! `multiprocessing` by `spawn`, which wants to import `__main__` from a file.
//!
//! # Why the shim looks like that
//!
//! Python compiles the shim anew at every start, at about 10 µs a line, so only
//! what every run needs is in `shim.py`. (As a `-c` argument it would spare Python
//! the search for who could import it, a tenth of a millisecond; but Python 3.13
//! then imports `linecache`, from the workspace if there is one.) The other parts
//! come with the request and are compiled when they are first called for,
//! all in one namespace: `results.py` when there is a value to show, `rich.py`
//! when its repr is not all, `errors.py` for an exception, `code.py` for code
//! that is not read the short way. By then they are bytes in the shim's own
//! hands, whatever the program did to files, descriptors and modules. A further
//! part is a file here and a line in [`PARTS`].
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

use super::{ChannelForm, Delivery, Driver, DriverFile, Part};

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
    channel: ChannelForm::Socket,
    memory_flags: super::no_memory_flags,
    out_of_memory: &[],
    compiled: None,
    profile: "python",
    rootfs: "python",
};
