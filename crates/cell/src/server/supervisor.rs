//! The supervisor of one cell: carries out the front end's orders.

use std::os::fd::OwnedFd;

use super::Base;

/// The life of a supervisor: orders come from `socket`, whose end ends the cell.
pub fn serve(socket: OwnedFd, base: &Base) -> ! {
    let _ = (socket, base);
    sys::process::exit_now(0)
}
