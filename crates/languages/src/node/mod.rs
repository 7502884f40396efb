//! What every process of Node.js loads before its program, whatever starts it.

use super::DriverFile;

/// The variable that names [`WORKERS`]. Node's own options in it are separated by spaces.
pub const OPTIONS: (&str, &str) = ("NODE_OPTIONS", "--require=/run/cellblock/workers.cjs");

/// Its worker threads reserve less memory.
pub const WORKERS: DriverFile = DriverFile {
    path: "/run/cellblock/workers.cjs",
    content: include_bytes!("workers.cjs"),
};
