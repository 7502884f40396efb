//! Commands without a cell, with which others are compared.

use crate::worker::{Job, Output};

/// P: Python as small as it can be.
pub(crate) const PYTHON: [&str; 4] = ["/usr/bin/python3", "-I", "-c", "1"];

/// A command to start so many times, one after the other.
pub(crate) fn job(argv: &[&str], count: usize) -> Job {
    Job {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        output: Output::Null,
        count,
        peak: false,
    }
}
