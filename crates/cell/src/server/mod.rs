//! The processes of a server: a spawner, and one supervisor for each cell.

mod orders;

pub use orders::{Execute, FileOrder, Open, Order, Report, State};
