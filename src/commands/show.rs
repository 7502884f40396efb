//! `cellblock show`.

use std::io;

use super::outlet::print_record;
use super::{plots, print};
use crate::cli;
use crate::show::{self, Style};
use record::error::Result;
use record::terminal;

/// Prints a stored record.
///
/// # Errors
/// It cannot be read, or standard output cannot be written.
#[inline(never)]
pub(super) fn show(wanted: &cli::Show) -> Result<u8> {
    let record = show::read(&wanted.record)?;
    if let Some(directory) = &wanted.plots {
        for path in plots::write(&record, directory, &[])? {
            print(format!("{}\n", terminal::lines(&path.display().to_string())).as_bytes())?;
        }
        return Ok(0);
    }
    match wanted.format() {
        Some(format) => print_record(&record, &format, &mut io::stdout())?,
        None if wanted.html => print(show::render_html(&record).as_bytes())?,
        None => print(show::render(&record, Style::of_stdout()).as_bytes())?,
    }
    Ok(0)
}
