//! `cellblock rootfs`: what there is in the store, what is in it, whether it is
//! still the same, and how it comes in and goes.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use crate::cli::{self, InStore, RootfsAction};
use archive::Options;
use cell::rootfs::{Difference, Manifest, Prepared, Store, verify};
use import::import;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use record::words;
use rootfs_builder::build as builder;
use rootfs_builder::import::Request;
use text::{eprint_line, print, print_json, table};

mod import;
mod text;

/// Exit status of `rootfs verify` when something differs.
const DIFFERS: u8 = 1;

/// Does what `cellblock rootfs` was asked to; returns the exit status.
///
/// # Errors
/// An unknown name, a source or tree that cannot be read, a store that cannot be
/// written, or no room for the answer.
pub(super) fn run(action: &RootfsAction) -> Result<u8> {
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
                words::bytes(manifest.size_bytes),
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
                words::bytes(manifest.size_bytes),
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
        let size = words::bytes(manifest.size_bytes);
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
