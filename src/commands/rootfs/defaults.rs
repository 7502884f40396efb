//! `cellblock rootfs default`, and what other subcommands say of defaults.

use std::collections::BTreeMap;

use super::{print_text, table};
use languages::{self, Driver};
use record::error::{Result, SetupError, Step};
use rootfs_builder::Store;

/// What withdraws a choice.
const AUTO: &str = "auto";

/// The names of the rootfs that languages have by default.
pub(super) struct Defaults(BTreeMap<&'static str, Option<String>>);

impl Defaults {
    /// Reads them; a choice that cannot be read counts as none.
    pub(super) fn of_store(store: &Store) -> Self {
        let of = |driver: &&Driver| {
            let found = store.find_default(driver.rootfs).ok().flatten();
            (driver.name, found.map(|found| found.name))
        };
        Self(languages::TABLE.iter().map(of).collect())
    }

    /// The languages that have the rootfs `name`.
    pub(super) fn of(&self, name: &str) -> Vec<&'static str> {
        let languages = self.0.iter();
        let languages = languages.filter(|(_, found)| found.as_deref() == Some(name));
        languages.map(|(language, _)| *language).collect()
    }

    /// `default for python`, or nothing.
    pub(super) fn words(&self, name: &str) -> String {
        match self.of(name) {
            languages if languages.is_empty() => String::new(),
            languages => format!("default for {}", languages.join(", ")),
        }
    }
}

/// Shows the default of one language or of all, or chooses it.
pub(super) fn run(store: &Store, language: Option<&str>, name: Option<&str>) -> Result<u8> {
    let driver = language.map(find).transpose()?;
    if let (Some(driver), Some(name)) = (driver, name) {
        choose(store, driver, name)?;
    }
    let all = languages::TABLE.iter().copied();
    let asked = all.filter(|other| driver.is_none_or(|driver| driver.name == other.name));
    let mut rows: Vec<[String; 3]> = Vec::new();
    for driver in asked {
        let found = store.find_default(driver.rootfs)?;
        let is_chosen = store.chosen(driver.rootfs)?.is_some();
        rows.push([
            driver.name.to_owned(),
            found.map_or_else(|| "host".to_owned(), |found| found.name),
            if is_chosen { "chosen" } else { "" }.to_owned(),
        ]);
    }
    print_text(&table(&rows))
}

fn choose(store: &Store, driver: &Driver, name: &str) -> Result<()> {
    if name == AUTO {
        return rootfs_builder::withdraw_default(store, driver.rootfs);
    }
    let (_, manifest) = rootfs_builder::show(store, name)?;
    if !manifest.interpreters.contains_key(driver.name) {
        let message = format!("this rootfs has no {}", driver.name);
        return Err(SetupError::new(Step::Store, message)
            .on(name)
            .hint("`cellblock rootfs list` shows the languages of each"));
    }
    rootfs_builder::choose_default(store, driver.rootfs, name)
}

fn find(language: &str) -> Result<&'static Driver> {
    languages::find(language).ok_or_else(|| {
        let known: Vec<&str> = languages::TABLE.iter().map(|driver| driver.name).collect();
        SetupError::new(Step::Spec, "there is no such language")
            .on(language)
            .hint(format!("the languages are {}", known.join(", ")))
    })
}
