//! Python 3.9 and later.
//!
//! `-B` keeps `__pycache__` out of the workspace, whose new files the record
//! lists. `-X utf8` makes UTF-8 the encoding whatever the locale. There is no
//! `-I`: the environment is the caller's explicit wish, `PYTHONPATH` and
//! `PYTHONHASHSEED` included, and the shim itself takes its own directory off
//! the module path.
//!
//! What the shim does for the code, beyond running it as `__main__`:
//!
//! * The last expression is the main result, unless it is `None` or a semicolon
//!   follows it. `display(…)` makes further results. Both ask an object for
//!   `_repr_mimebundle_` and `_repr_html_` and its kin, as Jupyter does.
//! * `await` works at the top level.
//! * An uncaught exception becomes an error frame and exit status 1 (130 for
//!   `KeyboardInterrupt`). Its traceback is *not* written to stderr as well,
//!   which holds only what the code wrote; but a `sys.excepthook` that the code
//!   set is called, and Python's own message appears when the code has closed
//!   the channel.
//! * `sys.exit`, `atexit` and threads work as in plain Python.

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
