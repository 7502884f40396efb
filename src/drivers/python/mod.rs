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
//! `shim.py` is compiled at every start and costs about a third of a bare
//! interpreter's start-up: half of it for compiling the shim, a third for the
//! syntax tree types that the first use of `compile()` sets up. `report.py` is
//! compiled when the code raises or shows more than plain values.

use super::{Delivery, Driver, DriverFile};

const SHIM: &str = "/run/cellblock/python.py";

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
    flags: &["-B", "-X", "utf8"],
    files: &[
        DriverFile {
            path: SHIM,
            content: include_bytes!("shim.py"),
        },
        DriverFile {
            path: "/run/cellblock/python_report.py",
            content: include_bytes!("report.py"),
        },
    ],
    delivery: Delivery::Channel(SHIM),
    profile: "python",
};
