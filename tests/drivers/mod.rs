//! The drivers, run outside of any cell: what they do to code, and what code
//! can do to them.

mod bash;
mod describe;
mod executions;
mod frames;
mod harness;
mod history;
mod hostile;
mod interrupts;
mod java;
mod javascript;
mod live;
mod notebook;
mod pools;
mod python;
mod r;
mod rich;
mod run;
mod scripts;
mod shell;
mod typescript;
mod units;
