//! The drivers, run outside of any cell: what they do to code, and what code
//! can do to them.

mod bash;
mod executions;
mod frames;
mod harness;
mod hostile;
mod java;
mod javascript;
mod python;
mod r;
mod rich;
mod typescript;
mod units;
