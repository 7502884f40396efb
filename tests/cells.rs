//! The proof from inside: what a hostile program tries in a cell, and what
//! becomes of it.
//!
//! This executable is the harness and the hostile program at once. As the
//! harness it has one thread and starts cellblock with itself as `/probe`; as
//! `cells --probe NAME` it makes the attempt NAME and reports what the kernel
//! answered. With `--start blank` it is cellblock as well, with cells that are started
//! in another way (`cells/start.rs`). A refusal counts only when the attempt is shown to work without
//! the layer that refuses it.

mod attacks;
#[path = "cells/catalogue.rs"]
mod catalogue;
#[path = "cells/mod.rs"]
mod cells;
#[path = "support/dispositions.rs"]
mod dispositions;
#[path = "support/events.rs"]
mod events;
#[path = "cells/layers.rs"]
mod layers;
mod lifecycle;
#[path = "cells/peers.rs"]
mod peers;
#[path = "support/schema.rs"]
mod schema;
#[path = "support/validate.rs"]
mod validate;

fn main() {
    if let Some(start) = cells::start::Start::of_this_executable() {
        std::process::exit(start.as_cellblock());
    }
    let suites = [
        attacks::SUITES,
        lifecycle::SUITES,
        peers::SUITES,
        catalogue::SUITES,
        layers::SUITES,
    ]
    .concat();
    std::process::exit(cells::runner::main(&suites));
}
