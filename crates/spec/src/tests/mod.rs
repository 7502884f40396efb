//! Tests of the request side: from text and flags to a spec.

mod errors;
mod layers;
mod load;
mod request;

use std::path::Path;

use super::profiles::chain;
use super::resolve::{Ask, Mode, Origin, SpecLayer, resolve};
use super::{Partial, Spec, Stdio};
use record::error::{Result, SetupError};

fn ask(mode: Mode) -> Ask<'static> {
    Ask {
        mode,
        cwd: Path::new("/home/u"),
        stdio: Stdio::Inherit,
        lends: true,
    }
}

/// The error as people see it, its hint behind.
fn shown(error: &SetupError) -> String {
    match &error.hint {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}

/// A request for `true`, from the default profile and this on top.
fn resolved(mut partial: Partial, origin: Origin) -> Result<Spec> {
    let mut layers = chain("default", Path::new("/"), &|_| unreachable!()).unwrap();
    partial.argv.get_or_insert_with(|| vec!["true".into()]);
    partial.root_at(Path::new("/home/u"));
    layers.push(SpecLayer { origin, partial });
    resolve(layers, "default".to_owned(), &ask(Mode::Exec))
}
