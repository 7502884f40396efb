//! JavaScript and TypeScript, by Node.js 20.10 and later.
//!
//! What the shim does for the code, beyond running it:
//!
//! * The value of a last expression is the main result, as `util.inspect` shows
//!   it and, if it is plain data, as JSON. `undefined` is not a result.
//!   An object literal at the end of the code is a result; a script would see a block.
//!   `display(value)`, `display(value, type)` and `display(forms, {raw: true})`
//!   make further results; objects may have the method
//!   `Symbol.for("Jupyter.display")`, as for Deno's kernel.
//! * `await` works at the top level, and so do `import`, static and dynamic,
//!   `import.meta`, and `require`. Modules are those below the workspace and
//!   Node's own. Imports happen where they stand; `export` is ignored.
//! * An uncaught error, or a rejection that nothing handles, becomes an error
//!   frame and exit status 1, unless the program has a handler of its own for
//!   `uncaughtException` or `unhandledRejection`. Nothing is written to stderr.
//!   An `await` at the top level that can never end is an error with status 13.
//! * `const`, `let`, `class` and functions of the top level are globals of the
//!   process, as in Node's REPL.
//!
//! TypeScript becomes JavaScript first: by Node 22.13 and later itself, or by
//! the package `typescript` below `/usr` or the workspace. Types are not checked.
//! Where blanking types out is not enough (enums, namespaces, parameter
//! properties), lines in the error are mapped back; `stack` as the code itself
//! sees it is not. Node 22 to 25 generate that code, but for decorators.
//! Node 26 generates none, and needs the package, which also supports
//! decorators.
//!
//! # How it works
//!
//! Code without `await`, imports and lexical declarations runs as a script, since
//! loading the inspector takes milliseconds.
//! Other code is evaluated as V8's console evaluates what is typed there
//! (`Runtime.evaluate` with `replMode`, through a session of the inspector within
//! the process, which opens no port): V8 itself takes care of `await`, and of
//! declarations that later executions may repeat. Between two executions the event
//! loop rests: a timer of the first one fires during the second one.
//!
//! The parser is V8, too. Import statements and the like are found by the place
//! of the error that they are in a script, one by one. The last statement is
//! found by trying, from the end on, which piece parses, and whether the code
//! before it does. Patterns are applied only at such a place.
//!
//! # Interrupts
//!
//! SIGINT ends code that runs, by the watchdog that Node has for its REPL, and an `await`
//! at the top level that waits for something. What the code has begun (timers, requests)
//! may go on. Code that runs *after* such an `await`, or in most callbacks, is outside of what
//! the watchdog ends. A thread of the driver's (a worker, 10 MB) has the inspector terminate it
//! (`Runtime.terminateExecution`). It is started when an execution waits for the first time,
//! unless no other execution follows; where it cannot be started, such code has to be killed.
//! Node does not survive the end of a callback of a timer or of `setImmediate` in its midst:
//! it aborts. (With `--no-force-async-hooks-checks` it goes on, but the timer still counts as
//! active, and a later `await` of another one is taken for one that never ends.)
//! A listener of the program's own for SIGINT takes the driver's place.
//!
//! # The channel
//!
//! Node cannot hide the channel's descriptors from the program: child processes do not
//! inherit them, but `fs.writeSync(4, …)` reaches them. A program that does so breaks
//! its channel or forges its own results. The driver stops using a descriptor that the
//! program has closed or replaced.
//!
//! # Memory
//!
//! V8 aborts when its heap is full, and no code can run any more. Its heap gets
//! what the limit leaves after a share for everything else, and its last words
//! tell the supervisor what happened.

use super::{
    Delivery, Driver, DriverFile, Exceptions, Heap, Modules, Provider, SCRIPT, between, profile,
};
use record::{Category, CodeError};

/// One file, which starts the module with the file's name.
/// All modules in one file, which starts the one with the file's name; build.rs writes it.
const DRIVER_TEXT: &str = include_str!(concat!(env!("OUT_DIR"), "/driver.cjs"));
const JAVASCRIPT_MAIN: DriverFile = DriverFile {
    path: "/run/cellblock/javascript.cjs",
    content: DRIVER_TEXT.as_bytes(),
};
const TYPESCRIPT_MAIN: DriverFile = DriverFile {
    path: "/run/cellblock/typescript.cjs",
    content: DRIVER_TEXT.as_bytes(),
};

/// See the module's documentation.
pub(super) static JAVASCRIPT: Driver = NODE;

const NODE: Driver = Driver {
    name: "javascript",
    aliases: &["js", "node", "nodejs"],
    extensions: &["js", "mjs", "cjs"],
    interpreters: INTERPRETERS,
    flags: &[JAVASCRIPT_MAIN.path],
    files: &[JAVASCRIPT_MAIN],
    delivery: Delivery::Channel,
    heap: Some(Heap {
        limit: heap,
        flag: Some(|mib| format!("--max-old-space-size={mib}")),
        besides: 32,
    }),
    // libuv batches its waiting by it where it can.
    probes: &["io_uring_setup"],
    profile: Some(profile!("javascript", "profile.toml")),
    rootfs: "node",
    exceptions: EXCEPTIONS,
    aborts: true,
    modules: Some(MODULES),
    missing_program,
    ..SCRIPT
};

const MODULES: Modules = Modules {
    missing: &["Cannot find module ", "Cannot find package "],
    provider: |module, _| Some(Provider::Package("--npm", package(module)?.to_owned())),
};

/// The same interpreter and driver, which takes the types out first.
pub(super) static TYPESCRIPT: Driver = Driver {
    name: "typescript",
    aliases: &["ts", "ts-node", "tsx"],
    extensions: &["ts", "mts", "cts"],
    flags: &[TYPESCRIPT_MAIN.path],
    files: &[TYPESCRIPT_MAIN],
    trial: Some("const x: number = 1"),
    modules: Some(Modules {
        provider: |module, rootfs| match (module, rootfs) {
            ("typescript", "host") => Some(Provider::Rootfs("node")),
            _ => Some(Provider::Package("--npm", package(module)?.to_owned())),
        },
        ..MODULES
    }),
    ..NODE
};

const INTERPRETERS: &[&str] = &[
    "/usr/bin/node",
    "/usr/local/bin/node",
    "/opt/node/bin/node",
    "/usr/bin/nodejs",
];

/// A bare process takes 50 MB outside of the heap, and buffers live there too.
fn heap(memory: u64) -> u64 {
    memory
        .saturating_sub(memory / 4)
        .min(memory.saturating_sub(64))
        .max(16)
}

const EXCEPTIONS: Exceptions = Exceptions {
    decisive: &[
        (Category::Memory, "array buffer allocation failed"),
        (Category::Runtime, "maximum call stack size exceeded"),
        (Category::Network, "fetch failed"),
    ],
    classes: &[
        (Category::Syntax, "SyntaxError"),
        (Category::Name, "ReferenceError"),
        (Category::Type, "TypeError"),
        (Category::Value, "RangeError URIError"),
        (Category::Network, "ConnectTimeoutError"),
    ],
    messages: &[
        (Category::Import, "cannot find module"),
        (Category::Import, "cannot find package"),
        (Category::Network, "getaddrinfo"),
    ],
};

/// `lodash` of `lodash/fp`, `@scope/name` of `@scope/name/part`.
fn package(module: &str) -> Option<&str> {
    let parts = if module.starts_with('@') { 2 } else { 1 };
    let end = module.match_indices('/').nth(parts - 1);
    let package = end.map_or(module, |(end, _)| &module[..end]);
    (package.matches('/').count() == parts - 1).then_some(package)
}

/// `spawn git ENOENT`, `spawnSync git ENOENT`.
fn missing_program(error: &CodeError) -> Option<&str> {
    let after = |call| between(&error.message, call, " ENOENT");
    after("spawn ").or_else(|| after("spawnSync "))
}
