//! The state of a live interpreter, carried into a sibling: both are forked from one
//! Python template and wait in the same read(2), as the interpreters of contexts do. They
//! have the filter and the Landlock rules of a cell.

mod forks;
mod hostile;
mod images;
mod refusals;
mod siblings;
#[path = "../../../../tests/support/skip.rs"]
mod skip;
mod state;
