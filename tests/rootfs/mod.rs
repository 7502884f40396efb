//! `cellblock rootfs`, from the outside: sources that were made by hand, with
//! every trick in them.

mod bombs;
mod builds;
mod calls;
mod chosen;
mod defaults;
mod image;
mod imports;
mod lifecycle;
mod schema;
