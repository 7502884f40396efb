//! `cellblock rootfs`: what there is in the store, what is in it, whether it is
//! still the same, and how it comes in and goes.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::archive::{Options, Report};
use crate::builder;
use crate::bytes::RawText;
use crate::cli::{self, InStore, RootfsAction};
use crate::error::{Result, SetupError, Step};
use crate::import::{self, Request};
use crate::rootfs::{Difference, Manifest, Prepared, Store, verify};
use crate::show::quantity;

/// Exit status of `rootfs verify` when something differs.
const DIFFERS: u8 = 1;

/// Lines about what an import left out; the rest is counted, or in the JSON.
const MOST_LINES: usize = 20;

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// Does what `cellblock rootfs` was asked to; returns the exit status.
///
/// # Errors
/// An unknown name, a source or tree that cannot be read, a store that cannot be
/// written, or no room for the answer.
pub fn run(action: &RootfsAction) -> Result<u8> {
    match action {
        RootfsAction::Build(asked) => build(asked),
        RootfsAction::Add(asked) => add(asked),
        RootfsAction::Recipes => recipes(),
        RootfsAction::List { store, json } => list(&open(store)?, *json),
        RootfsAction::Show { name, store, json } => show(&open(store)?, name, *json),
        RootfsAction::Verify { names, store, json } => verify_all(&open(store)?, names, *json),
        RootfsAction::Remove { names, store } => {
            let store = open(store)?;
            names.iter().try_for_each(|name| store.remove(name))?;
            Ok(0)
        }
        RootfsAction::Import {
            name,
            source,
            store,
            reference,
            max_size,
            json,
        } => {
            let request = Request {
                name: name.clone(),
                source: source.clone(),
                reference: reference.clone(),
                max_bytes: max_size.map_or(Options::default().max_bytes, |size| size.0),
            };
            import(&open(store)?, &request, *json)
        }
    }
}

fn build(asked: &cli::Build) -> Result<u8> {
    let asked = asked.clone();
    builder::build(&builder::Request {
        recipe: asked.recipe,
        name: asked.name,
        store: asked.store.store,
        locked: asked.locked,
        update_lock: asked.update_lock,
        fresh: asked.fresh,
        dry_run: asked.dry_run,
        quiet: asked.quiet,
    })?;
    Ok(0)
}

fn add(asked: &cli::Add) -> Result<u8> {
    let asked = asked.clone();
    builder::add(&builder::Addition {
        base: asked.base,
        name: asked.name,
        store: asked.store.store,
        pip: asked.pip,
        npm: asked.npm,
        apt: asked.apt,
        quiet: asked.quiet,
    })?;
    Ok(0)
}

fn recipes() -> Result<u8> {
    let mut text = String::new();
    for layer in builder::built_in() {
        let recipe = layer.recipe;
        let _ = writeln!(text, "{:<12} {}", recipe.name, recipe.summary);
    }
    print(&text)
}

fn open(store: &InStore) -> Result<Store> {
    Store::open(store.store.as_deref())
}

/// One rootfs, in JSON.
#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    path: RawText,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<&'a Manifest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a SetupError>,
}

fn list(store: &Store, json: bool) -> Result<u8> {
    let listed = store.list();
    if json {
        let described: Vec<Described<'_>> = listed
            .iter()
            .map(|listed| Described {
                name: &listed.name,
                path: RawText::from(listed.path.as_path()),
                manifest: listed.manifest.as_ref().ok(),
                error: listed.manifest.as_ref().err(),
            })
            .collect();
        return print_json(&described);
    }
    if listed.is_empty() {
        eprint_line(&format!(
            "no rootfs in {}; `cellblock rootfs import NAME SOURCE` makes one",
            store.path().display()
        ));
        return Ok(0);
    }
    let rows: Vec<[String; 4]> = listed
        .iter()
        .map(|listed| match &listed.manifest {
            Ok(manifest) => [
                listed.name.clone(),
                quantity::bytes(manifest.size_bytes),
                day(&manifest.built),
                interpreters(manifest).join(", "),
            ],
            Err(error) => [
                listed.name.clone(),
                "broken".to_owned(),
                String::new(),
                error.message.clone(),
            ],
        })
        .collect();
    print(&table(&rows))
}

fn show(store: &Store, name: &str, json: bool) -> Result<u8> {
    let (found, manifest) = described(store, name)?;
    if json {
        return print_json(&Described {
            name,
            path: RawText::from(found.path.as_path()),
            manifest: Some(&manifest),
            error: None,
        });
    }
    let mut rows = vec![
        ["name".to_owned(), manifest.name.clone()],
        ["digest".to_owned(), format!("sha256:{}", manifest.digest)],
        ["built".to_owned(), manifest.built.clone()],
        [
            "size".to_owned(),
            format!(
                "{} in {} files",
                quantity::bytes(manifest.size_bytes),
                manifest.files
            ),
        ],
        ["path".to_owned(), found.path.display().to_string()],
    ];
    if let Some(recipe) = &manifest.recipe {
        let text = format!("{} sha256:{}", recipe.name, recipe.digest);
        rows.push(["recipe".to_owned(), text]);
    }
    if let Some(base) = &manifest.base {
        let text = format!("{} sha256:{}", base.name, base.digest);
        rows.push(["base".to_owned(), text]);
    }
    for (language, interpreter) in &manifest.interpreters {
        let text = format!("{} ({})", interpreter.version, interpreter.path.display());
        rows.push([language.clone(), text]);
    }
    let mut text = table(&rows);
    if !manifest.packages.is_empty() {
        text.push_str("\npackages:\n");
        let packages: Vec<[String; 3]> = manifest
            .packages
            .iter()
            .map(|package| {
                [
                    format!("  {}", package.name),
                    package.version.clone(),
                    package.source.clone(),
                ]
            })
            .collect();
        text.push_str(&table(&packages));
    }
    print(&text)
}

/// What `rootfs verify` says of one rootfs, in JSON.
#[derive(Serialize)]
struct Verified<'a> {
    name: &'a str,
    digest: String,
    intact: bool,
    differences: Vec<Difference>,
}

fn verify_all(store: &Store, names: &[String], json: bool) -> Result<u8> {
    let mut all = Vec::new();
    for name in names {
        let (found, manifest) = described(store, name)?;
        let differences = verify(&found.path, &manifest)?;
        if !json {
            print(&verdict(name, &manifest, &differences))?;
        }
        all.push(Verified {
            name,
            intact: differences.is_empty(),
            digest: manifest.digest,
            differences,
        });
    }
    if json {
        print_json(&all)?;
    }
    Ok(match all.iter().all(|one| one.intact) {
        true => 0,
        false => DIFFERS,
    })
}

fn verdict(name: &str, manifest: &Manifest, differences: &[Difference]) -> String {
    if differences.is_empty() {
        let size = quantity::bytes(manifest.size_bytes);
        return format!("{name}: intact, {size} in {} files\n", manifest.files);
    }
    let mut text = String::new();
    for difference in differences {
        let _ = write!(
            text,
            "{name}: {}: {}",
            difference.path,
            difference.change.word()
        );
        let _ = match (&difference.wanted, &difference.found) {
            (Some(wanted), Some(found)) => write!(text, ", {found} instead of {wanted}"),
            _ => Ok(()),
        };
        text.push('\n');
    }
    text
}

/// What `rootfs import --json` prints.
#[derive(Serialize)]
struct ImportDocument<'a> {
    manifest: &'a Manifest,
    left_out: Vec<LeftOut>,
    left_out_in_all: u64,
    stripped: u64,
}

#[derive(Serialize)]
struct LeftOut {
    path: RawText,
    reason: String,
}

fn import(store: &Store, request: &Request, json: bool) -> Result<u8> {
    let mut progress = Progress::new();
    let imported = import::import(store, request, &mut |doing, report| {
        progress.tell(doing, report);
    });
    progress.end();
    let imported = imported?;
    let (manifest, report) = (&imported.manifest, imported.report);
    if json {
        return print_json(&ImportDocument {
            manifest,
            left_out_in_all: report.skipped_in_all,
            stripped: report.stripped,
            left_out: report
                .skipped
                .into_iter()
                .map(|skipped| LeftOut {
                    path: skipped.path,
                    reason: skipped.reason,
                })
                .collect(),
        });
    }
    for skipped in report.skipped.iter().take(MOST_LINES) {
        eprint_line(&format!("left out: {} {}", skipped.path, skipped.reason));
    }
    let more = report.skipped_in_all.saturating_sub(MOST_LINES as u64);
    if more > 0 {
        eprint_line(&format!("left out: {more} more; --json lists them"));
    }
    let found = match interpreters(manifest) {
        found if found.is_empty() => "no interpreter".to_owned(),
        found => found.join(", "),
    };
    print(&format!(
        "{}: {} in {} files, {found}\n",
        manifest.label(),
        quantity::bytes(manifest.size_bytes),
        manifest.files
    ))
}

/// Tells on standard error what is being done: on a terminal in one line that
/// changes, otherwise in a line when something else begins.
struct Progress {
    is_terminal: bool,
    last: Option<(String, Instant)>,
}

impl Progress {
    fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            last: None,
        }
    }

    fn tell(&mut self, doing: &str, report: &Report) {
        let is_new = self.last.as_ref().is_none_or(|(last, _)| last != doing);
        let is_time = self
            .last
            .as_ref()
            .is_none_or(|(_, at)| at.elapsed() >= PROGRESS);
        let shows_more = self.is_terminal && is_time;
        if !(is_new || shows_more) {
            return;
        }
        self.last = Some((doing.to_owned(), Instant::now()));
        if self.is_terminal {
            let done = quantity::bytes(report.bytes);
            let _ = write!(io::stderr(), "\r\x1b[K{doing}: {done}");
        } else {
            eprint_line(doing);
        }
    }

    fn end(&self) {
        if self.is_terminal && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A rootfs and what it says of itself.
fn described(store: &Store, name: &str) -> Result<(Prepared, Manifest)> {
    let found = store.require(name)?;
    let manifest = Manifest::read(&found.path)?.ok_or_else(|| {
        SetupError::new(Step::Store, "it has no manifest")
            .on(PathBuf::from(&found.path).display())
            .hint("remove it, and build or import it again")
    })?;
    Ok((found, manifest))
}

fn interpreters(manifest: &Manifest) -> Vec<String> {
    let all = manifest.interpreters.iter();
    all.map(|(language, interpreter)| format!("{language} {}", interpreter.version))
        .collect()
}

/// The day of a time in RFC 3339.
fn day(time: &str) -> String {
    time.split('T').next().unwrap_or_default().to_owned()
}

/// Rows in columns; the last column is as wide as it is.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|c| escaped(c)))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths);
        let line = cells.fold(String::new(), |line, (cell, width)| {
            line + &format!("{cell:width$}  ")
        });
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Names come from archives: a terminal must not obey them.
fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

fn eprint_line(line: &str) {
    let _ = writeln!(io::stderr(), "{}", escaped(line));
}

/// Prints lines, none of which may hold a control character.
fn print(text: &str) -> Result<u8> {
    let lines: String = text.lines().map(|line| escaped(line) + "\n").collect();
    let mut stdout = io::stdout();
    stdout
        .write_all(lines.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|e| SetupError::io(Step::Outputs, "write", &e).on("standard output"))?;
    Ok(0)
}

fn print_json(value: &impl Serialize) -> Result<u8> {
    let text = serde_json::to_string_pretty(value).map_err(|e| {
        SetupError::new(Step::Outputs, format!("the answer does not serialise: {e}"))
    })?;
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let text = table(&[row("a", "x"), row("long", "\x1b[2J"), row("", "")]);
        assert_eq!(text, "a     x\nlong  \\u{1b}[2J\n\n");
    }
}
