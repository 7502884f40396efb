//! Descriptors of the caller's, on their way to the program.

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use plan::probe::descriptors::describe;
use record::error::{Result, SetupError, Step};
use spec::Descriptor;
use spec::descriptors::NUMBERS;
use sys::process::duplicate_above;

/// Descriptors that a program is to get, each with its number there.
#[derive(Debug, Default)]
pub struct Passed(RefCell<Vec<(i32, OwnedFd)>>);

impl Passed {
    /// Adds the caller's descriptor `from`, which the program gets as `number`; returns what
    /// it is.
    ///
    /// # Errors
    /// It would lead out of the cell, or its number is taken.
    pub fn add(&self, from: i32, number: i32, fd: &OwnedFd) -> Result<Descriptor> {
        let refused =
            |message: String| SetupError::new(Step::Spec, message).on(format!("--pass-fd {from}"));
        if !NUMBERS.contains(&number) {
            let (first, last) = NUMBERS.into_inner();
            let message = format!("is {number} inside, but wants {first} to {last}");
            return Err(refused(message).hint(format!("say which: --pass-fd {from}={first}")));
        }
        let mut all = self.0.borrow_mut();
        if all.iter().any(|(other, _)| *other == number) {
            return Err(refused(format!(
                "is {number} inside, which an earlier one is"
            )));
        }
        let described = describe(fd, number).map_err(|why| {
            refused(why).hint("pass a file, a pipe, or a connected Unix socket; --ro and --rw show files and directories, --dev devices")
        })?;
        // Above the numbers inside, where none replaces another.
        let above = duplicate_above(fd, NUMBERS.end() + 1);
        let above = above.map_err(|errno: Errno| {
            SetupError::os(Step::Spec, "fcntl", errno).on(format!("--pass-fd {from}"))
        })?;
        all.push((number, above));
        Ok(described)
    }

    /// All of them.
    pub(super) fn take(&self) -> Vec<(i32, OwnedFd)> {
        self.0.take()
    }
}
