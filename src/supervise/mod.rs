//! Watches over a running cell and tells what became of it.

pub mod capture;
mod category;
mod explain;
pub mod verdict;
