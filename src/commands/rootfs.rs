//! `cellblock rootfs`: its output for people and programs.
//!
//! Names come from archives and packages, so that everything printed is escaped for
//! a terminal.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::print;
use crate::cli::{self, InStore, RootfsAction};
use defaults::Defaults;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use record::terminal;
use record::words;
use rootfs_builder::{
    AddRequest, BuildRequest, Difference, ImportRequest, Manifest, PlannedBuild, Report, Skipped,
    Store,
};

mod defaults;

/// Exit status of `rootfs verify` when something differs.
const DIFFERS: u8 = 1;

/// Maximum number of lines about entries that an import left out.
const MAX_LINES: usize = 20;

/// Runs `cellblock rootfs`; returns the exit status.
///
/// # Errors
/// An unknown name, a source or tree that cannot be read, a store that cannot be
/// written, or output that cannot be printed.
#[inline(never)]
pub(super) fn run(action: RootfsAction) -> Result<u8> {
    perform(action).map_err(rootfs_builder::with_hint)
}

fn perform(action: RootfsAction) -> Result<u8> {
    match action {
        RootfsAction::Build(asked) => build(asked),
        RootfsAction::Add(asked) => add(asked),
        RootfsAction::Recipes => recipes(),
        RootfsAction::Default {
            language,
            name,
            store,
        } => defaults::run(&open(&store)?, language.as_deref(), name.as_deref()),
        RootfsAction::List { store, json } => {
            list(&Store::open_to_read(store.store.as_deref())?, json)
        }
        RootfsAction::Show { name, store, json } => show(&open(&store)?, &name, json),
        RootfsAction::Verify { names, store, json } => verify(&open(&store)?, &names, json),
        RootfsAction::Remove { names, store } => {
            let store = open(&store)?;
            let mut names = names.iter();
            names.try_for_each(|name| rootfs_builder::remove(&store, name))?;
            Ok(0)
        }
        RootfsAction::Import {
            name,
            source,
            store,
            reference,
            max_size,
            skip_unplaced,
            json,
        } => {
            let request = ImportRequest {
                name,
                store: store.store,
                source,
                reference,
                max_bytes: max_size.map(|size| size.0),
                skip_unplaced,
            };
            import(&request, json)
        }
    }
}

fn open(store: &InStore) -> Result<Store> {
    Store::open(store.store.as_deref())
}

fn build(asked: cli::Build) -> Result<u8> {
    let began = Instant::now();
    let request = BuildRequest {
        recipe: asked.recipe,
        name: asked.name,
        store: asked.store.store,
        locked: asked.locked,
        update_lock: asked.update_lock,
        fresh: asked.fresh,
        quiet: asked.quiet,
    };
    if asked.dry_run {
        return print_text(&planned(&rootfs_builder::plan(&request)?));
    }
    let manifest = rootfs_builder::build(&request)?;
    report(&manifest, asked.quiet, began)
}

fn add(asked: cli::Add) -> Result<u8> {
    let began = Instant::now();
    let manifest = rootfs_builder::add(&AddRequest {
        base: asked.base,
        name: asked.name,
        store: asked.store.store,
        pip: asked.pip,
        npm: asked.npm,
        apt: asked.apt,
        quiet: asked.quiet,
    })?;
    report(&manifest, asked.quiet, began)
}

/// Prints one line about a rootfs that was built.
fn report(manifest: &Manifest, is_quiet: bool, began: Instant) -> Result<u8> {
    if !is_quiet {
        let elapsed = began.elapsed().as_secs_f64() * 1000.0;
        print_error(&format!(
            "{}: {} files, {}, {} packages, sha256:{} ({})",
            manifest.name,
            manifest.files,
            words::bytes(manifest.size_bytes),
            manifest.packages.len(),
            manifest.digest,
            words::milliseconds(elapsed),
        ));
    }
    Ok(0)
}

fn planned(plan: &PlannedBuild) -> String {
    let mut rows: Vec<[String; 3]> = Vec::new();
    let (mut all, mut missing) = (0, 0);
    for file in &plan.files {
        all += file.size;
        let mut note = "in the cache";
        if !file.is_cached {
            missing += file.size;
            note = "";
        }
        rows.push([words::bytes(file.size), file.name.clone(), note.to_owned()]);
    }
    let mut text = table(&rows);
    if !plan.unresolved.is_empty() {
        let names = plan.unresolved.join(", ");
        let _ = writeln!(text, "pip will resolve {names}");
    }
    if plan.is_estimate {
        text += "Python packages are those of the lock file; a build takes the newest\n";
    }
    let (count, all, missing) = (plan.files.len(), words::bytes(all), words::bytes(missing));
    text + &format!("{count} files, {all}; {missing} to fetch\n")
}

fn recipes() -> Result<u8> {
    let recipes = rootfs_builder::recipes().into_iter();
    let rows: Vec<[String; 2]> = recipes
        .map(|recipe| [recipe.name, recipe.summary])
        .collect();
    print_text(&table(&rows))
}

/// One rootfs, in JSON.
#[derive(Serialize)]
struct RootfsDocument<'a> {
    name: &'a str,
    path: RawText,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<&'a Manifest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a SetupError>,
    /// The languages that have it by default.
    default_for: Vec<&'static str>,
}

impl<'a> RootfsDocument<'a> {
    fn new(
        name: &'a str,
        path: &Path,
        manifest: Result<&'a Manifest, &'a SetupError>,
        defaults: &Defaults,
    ) -> Self {
        Self {
            name,
            path: path.into(),
            default_for: defaults.of(name),
            manifest: manifest.ok(),
            error: manifest.err(),
        }
    }
}

fn list(store: &Store, json: bool) -> Result<u8> {
    let listed = rootfs_builder::list(store);
    let defaults = Defaults::of_store(store);
    if json {
        let documents: Vec<RootfsDocument<'_>> = listed
            .iter()
            .map(|found| {
                let manifest = found.manifest.as_ref();
                RootfsDocument::new(&found.name, &found.path, manifest, &defaults)
            })
            .collect();
        return print_json(&documents);
    }
    if listed.is_empty() {
        print_error(&format!(
            "no rootfs in {}; `cellblock rootfs build RECIPE` makes one",
            store.path().display()
        ));
        return Ok(0);
    }
    let rows: Vec<[String; 5]> = listed
        .into_iter()
        .map(|found| {
            let default = defaults.words(&found.name);
            match found.manifest {
                Ok(manifest) => [
                    found.name,
                    words::bytes(manifest.size_bytes),
                    // The day of a time in RFC 3339.
                    manifest.built.chars().take_while(|c| *c != 'T').collect(),
                    interpreters(&manifest),
                    default,
                ],
                Err(error) => {
                    let (broken, built) = ("broken".into(), String::new());
                    [found.name, broken, built, error.message, default]
                }
            }
        })
        .collect();
    print_text(&table(&rows))
}

fn show(store: &Store, name: &str, json: bool) -> Result<u8> {
    let (path, manifest) = rootfs_builder::show(store, name)?;
    if json {
        let defaults = Defaults::of_store(store);
        return print_json(&RootfsDocument::new(name, &path, Ok(&manifest), &defaults));
    }
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |key: &str, value: String| rows.push([key.to_owned(), value]);
    row("name", manifest.name.clone());
    row("digest", format!("sha256:{}", manifest.digest));
    row("built", manifest.built.clone());
    row("size", size(&manifest));
    row("path", path.display().to_string());
    if let Some(recipe) = &manifest.recipe {
        row(
            "recipe",
            format!("{} sha256:{}", recipe.name, recipe.digest),
        );
    }
    if let Some(base) = &manifest.base {
        row("base", format!("{} sha256:{}", base.name, base.digest));
    }
    for (language, found) in &manifest.interpreters {
        row(
            language,
            format!("{} ({})", found.version, found.path.display()),
        );
    }
    let mut text = table(&rows);
    if !manifest.packages.is_empty() {
        let packages = manifest.packages.into_iter();
        let packages: Vec<[String; 3]> = packages
            .map(|package| {
                [
                    format!("  {}", package.name),
                    package.version,
                    package.source,
                ]
            })
            .collect();
        text = format!("{text}\npackages:\n{}", table(&packages));
    }
    print_text(&text)
}

/// The result of `rootfs verify` for one rootfs, in JSON.
#[derive(Serialize)]
struct VerifyDocument<'a> {
    name: &'a str,
    digest: String,
    intact: bool,
    differences: Vec<Difference>,
}

fn verify(store: &Store, names: &[String], json: bool) -> Result<u8> {
    let mut documents = Vec::new();
    for name in names {
        let (manifest, differences) = rootfs_builder::verify(store, name)?;
        if !json {
            print_text(&verdict(name, &manifest, &differences))?;
        }
        documents.push(VerifyDocument {
            name,
            intact: differences.is_empty(),
            digest: manifest.digest,
            differences,
        });
    }
    if json {
        print_json(&documents)?;
    }
    match documents.iter().all(|document| document.intact) {
        true => Ok(0),
        false => Ok(DIFFERS),
    }
}

fn verdict(name: &str, manifest: &Manifest, differences: &[Difference]) -> String {
    if differences.is_empty() {
        return format!("{name}: intact, {}\n", size(manifest));
    }
    let line = |difference: &Difference| {
        let Difference { path, change, .. } = difference;
        let values = match (&difference.wanted, &difference.found) {
            (Some(wanted), Some(found)) => format!(", {found} instead of {wanted}"),
            _ => String::new(),
        };
        format!("{name}: {path}: {change}{values}\n")
    };
    differences.iter().map(line).collect()
}

/// The result of `rootfs import`, in JSON.
#[derive(Serialize)]
struct ImportDocument<'a> {
    manifest: &'a Manifest,
    left_out: &'a [Skipped],
    left_out_in_all: u64,
    stripped: u64,
}

fn import(request: &ImportRequest, json: bool) -> Result<u8> {
    let imported = rootfs_builder::import(request)?;
    let (manifest, report) = (&imported.manifest, &imported.report);
    if json {
        return print_json(&ImportDocument {
            manifest,
            left_out: &report.skipped,
            left_out_in_all: report.skipped_in_all,
            stripped: report.stripped,
        });
    }
    print_left_out(report);
    let found = match interpreters(manifest) {
        found if found.is_empty() => "no interpreter".to_owned(),
        found => found,
    };
    print_text(&format!(
        "{}: {}, {found}\n",
        manifest.label(),
        size(manifest)
    ))
}

fn print_left_out(report: &Report) {
    for skipped in report.skipped.iter().take(MAX_LINES) {
        print_error(&format!("left out: {} {}", skipped.path, skipped.reason));
    }
    let more = report.skipped_in_all.saturating_sub(MAX_LINES as u64);
    if more > 0 {
        print_error(&format!("left out: {more} more; --json lists them"));
    }
}

/// `python 3.13.5, bash 5.2.37`.
fn interpreters(manifest: &Manifest) -> String {
    let all = manifest.interpreters.iter();
    let all = all.map(|(language, interpreter)| format!("{language} {}", interpreter.version));
    all.collect::<Vec<_>>().join(", ")
}

/// `57 MiB in 2345 files`.
fn size(manifest: &Manifest) -> String {
    let bytes = words::bytes(manifest.size_bytes);
    format!("{bytes} in {} files", manifest.files)
}

/// Rows in columns, without blanks at the ends of lines.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| terminal::line(cell)))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn print_error(line: &str) {
    let _ = writeln!(io::stderr(), "{}", terminal::line(line));
}

fn print_text(text: &str) -> Result<u8> {
    print(terminal::lines(text).as_bytes()).map(|()| 0)
}

fn print_json(value: &impl Serialize) -> Result<u8> {
    let text = serde_json::to_string_pretty(value).map_err(|e| {
        let message = format!("the result cannot be printed as JSON: {e}");
        SetupError::new(Step::Outputs, message)
    })?;
    print(terminal::json_for_stdout(text + "\n").as_bytes()).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let text = table(&[row("a", "x"), row("long", "\x1b[2J"), row("", "")]);
        assert_eq!(text, "a     x\nlong  \\x1b[2J\n\n");
    }
}
