//! The languages that `cellblock run` speaks, as data.
//!
//! A language is one folder here and one line in [`TABLE`]. A [`Driver`] says
//! which interpreter it wants, which files cellblock shows it inside the cell,
//! and how the code gets there; it knows nothing of how a cell is launched.
//!
//! Code reaches the interpreter in one of two ways ([`Delivery`]). On a
//! *channel* a small program of ours inside the cell, the shim, takes the code
//! from one pipe and reports values and errors on another (see [`frames`]). As a
//! *file* the interpreter runs it like any script, and the exit status and the
//! standard streams are all there is.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

pub use crate::plan::CHANNEL_FD;
use crate::spec::Bytes;
use record::Category;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

pub mod frames;
mod java;
mod javascript;
mod python;
mod r;
mod shell;

/// Where the files of cellblock's own appear inside a cell, read-only.
pub const DIRECTORY: &str = "/run/cellblock";

/// One language. Plain data: see [`TABLE`].
#[derive(Debug)]
pub struct Driver {
    /// The language's name in specs and records.
    pub name: &'static str,
    /// Other names that callers and `#!` lines may use.
    pub aliases: &'static [&'static str],
    /// File name extensions, without the dot.
    pub extensions: &'static [&'static str],
    /// Absolute paths of interpreters inside the cell, the best first. A
    /// prepared rootfs may name another one.
    pub interpreters: &'static [&'static str],
    /// The interpreter's arguments before those of the run; for a channel, the
    /// last is the shim.
    pub flags: &'static [&'static str],
    /// Files to show inside the cell, read-only and world-readable.
    pub files: &'static [DriverFile],
    /// How the code gets to the interpreter.
    pub delivery: Delivery,
    /// The heap that the interpreter keeps itself within, where it does: it can
    /// say what happened, which a kill cannot.
    pub heap: Option<Heap>,
    /// What the interpreter, or a tool of that language, writes to a standard
    /// stream before it gives up for want of something.
    pub last_words: &'static [LastWords],
    /// System calls that the interpreter tries by itself at every start, and does
    /// without. Denied before it begins with the code, they are not the code's.
    pub probes: &'static [&'static str],
    /// Where a prepared rootfs may have the shim compiled.
    pub compiled: Option<Compiled>,
    /// The policy profile that serves it when the caller names none.
    pub profile: &'static str,
    /// The prepared rootfs that serves it, where the store has one and the
    /// caller names none.
    pub rootfs: &'static str,
}

/// A limit that an interpreter keeps for its own heap.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// How much of the cell's memory it may have.
    pub share: fn(Bytes) -> Bytes,
    /// The argument, before all others, that makes it so many MiB; without one
    /// the shim sees to it.
    pub flag: Option<fn(u64) -> String>,
    /// What the interpreter needs besides the heap, at the least.
    pub besides: Bytes,
}

impl Heap {
    /// The use of memory from which on the heap is about full, in a cell with
    /// this limit.
    pub fn full_at(&self, limit: Bytes) -> Bytes {
        let share = (self.share)(limit).0;
        Bytes(share - share / 8 + self.besides.0)
    }
}

/// Words that tell why something gave up. Code can write the same.
#[derive(Clone, Copy, Debug)]
pub struct LastWords {
    /// What was lacking.
    pub category: Category,
    /// The words.
    pub phrase: &'static str,
    /// Whether who says so ends by a signal, always.
    pub aborts: bool,
}

/// A file of cellblock's own inside the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverFile {
    /// Absolute path below [`DIRECTORY`].
    pub path: &'static str,
    /// Its content.
    pub content: &'static str,
}

/// A shim whose interpreter starts faster when it need not compile it.
#[derive(Clone, Copy, Debug)]
pub struct Compiled {
    /// The directory inside the cell; see [`Driver::compiled_stem`].
    pub directory: &'static str,
    /// How the file with the compiled shim ends.
    pub ending: &'static str,
    /// The arguments instead of the shim's path; they get the file's path
    /// without its ending.
    pub arguments: fn(&str) -> Vec<String>,
}

/// How the code gets to the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The shim takes a [`frames::Request`] from [`CHANNEL_FD`], whose number is
    /// its only argument, and writes frames to the next one.
    Channel,
    /// The code is put at this path, read-only; the run's arguments follow it.
    File(&'static str),
}

/// Every language.
pub static TABLE: &[&Driver] = &[
    &python::DRIVER,
    &javascript::JAVASCRIPT,
    &javascript::TYPESCRIPT,
    &r::DRIVER,
    &java::DRIVER,
    &shell::DRIVER,
];

impl Driver {
    /// The program's argument vector. The caller's `args` are part of it only
    /// where the code is a file: on a channel they travel with the request.
    /// `memory` is the limit for the cell, if it has one; `is_compiled` says
    /// whether [`Driver::compiled_file`] is there.
    pub fn argv(
        &self,
        interpreter: &Path,
        args: &[RawText],
        memory: Option<Bytes>,
        is_compiled: bool,
    ) -> Vec<RawText> {
        let mut argv = vec![RawText::from(interpreter)];
        if let (Some(limit), Some(heap)) = (memory, self.heap) {
            let flag = heap.flag.map(|flag| flag((heap.share)(limit).0 >> 20));
            argv.extend(flag.map(RawText::from));
        }
        match (self.compiled, self.flags.split_last(), self.compiled_stem()) {
            (Some(compiled), Some((_, flags)), Some(stem)) if is_compiled => {
                argv.extend(flags.iter().copied().map(RawText::from));
                argv.extend((compiled.arguments)(&stem).into_iter().map(RawText::from));
            }
            _ => argv.extend(self.flags.iter().copied().map(RawText::from)),
        }
        match self.delivery {
            Delivery::Channel => argv.push(CHANNEL_FD.to_string().into()),
            Delivery::File(path) => {
                argv.push(path.into());
                argv.extend_from_slice(args);
            }
        }
        argv
    }

    /// Where the compiled shim is, without its ending. The name tells which source
    /// it is of: one of another version is not used.
    pub fn compiled_stem(&self) -> Option<String> {
        let compiled = self.compiled?;
        let source = self.files.first()?.content;
        let digest = Sha256::digest(source.as_bytes());
        let digest: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Some(format!("{}/{digest}", compiled.directory))
    }

    /// The file with the compiled shim.
    pub fn compiled_file(&self) -> Option<PathBuf> {
        let ending = self.compiled?.ending;
        Some(format!("{}.{ending}", self.compiled_stem()?).into())
    }

    /// What to put into the cell, read-only, below [`DIRECTORY`].
    pub fn files_for(&self, code: &RawText) -> Vec<(PathBuf, RawText)> {
        let own = |file: &DriverFile| (file.path.into(), file.content.into());
        let mut files: Vec<(PathBuf, RawText)> = self.files.iter().map(own).collect();
        if let Delivery::File(path) = self.delivery {
            files.push((path.into(), code.clone()));
        }
        files
    }

    /// Whether the program is to be given a channel.
    pub const fn has_channel(&self) -> bool {
        matches!(self.delivery, Delivery::Channel)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// The driver with this name or alias.
///
/// # Errors
/// Names the known languages, and the one that looks most like `name`.
pub fn find(name: &str) -> Result<&'static Driver> {
    let known = || TABLE.iter().copied();
    let is_it = |known: &str| known.eq_ignore_ascii_case(name);
    if let Some(driver) = known().find(|driver| driver.names().any(is_it)) {
        return Ok(driver);
    }
    let nearest = known()
        .flat_map(Driver::names)
        .map(|known| {
            (
                strsim::damerau_levenshtein(&name.to_lowercase(), known),
                known,
            )
        })
        .min()
        .filter(|(distance, known)| *distance <= known.len() / 2);
    let names = known().map(|driver| driver.name).collect::<Vec<_>>();
    let mut hint = format!("cellblock speaks {}", names.join(", "));
    if let Some((_, nearest)) = nearest {
        hint = format!("did you mean `{nearest}`? {hint}");
    }
    Err(SetupError::new(Step::Spec, "unknown language")
        .on(format_args!("language `{name}`"))
        .hint(hint))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_languages_share_a_name_or_an_extension() {
        for field in [
            |d: &'static Driver| d.names().collect::<Vec<_>>(),
            |d: &'static Driver| d.extensions.to_vec(),
        ] {
            let mut seen = BTreeSet::new();
            for value in TABLE.iter().copied().flat_map(field) {
                let value = value.to_lowercase();
                assert!(seen.insert(value.clone()), "{value} stands twice");
            }
        }
    }

    #[test]
    fn every_driver_is_complete() {
        for driver in TABLE {
            let name = driver.name;
            assert_eq!(find(name).unwrap().name, name);
            assert!(!driver.interpreters.is_empty(), "{name}");
            assert!(
                driver.interpreters.iter().all(|path| path.starts_with('/')),
                "{name}"
            );
            assert!(!driver.extensions.is_empty(), "{name}");
            let mut paths: Vec<&str> = driver.files.iter().map(|file| file.path).collect();
            match driver.delivery {
                Delivery::Channel => {
                    assert!(paths.contains(driver.flags.last().unwrap()), "{name}");
                }
                Delivery::File(code) => paths.push(code),
            }
            let distinct: BTreeSet<&str> = paths.iter().copied().collect();
            assert_eq!(distinct.len(), paths.len(), "{name}");
            for path in paths {
                assert!(Path::new(path).starts_with(DIRECTORY), "{name}");
            }
        }
    }

    #[test]
    fn aliases_find_their_language() {
        for (alias, name) in [
            ("py", "python"),
            ("python3", "python"),
            ("js", "javascript"),
            ("node", "javascript"),
            ("ts", "typescript"),
            ("R", "r"),
            ("Rscript", "r"),
            ("jshell", "java"),
            ("sh", "bash"),
        ] {
            assert_eq!(find(alias).unwrap().name, name);
        }
    }

    #[test]
    fn files_are_where_cells_have_them() {
        assert_eq!(DIRECTORY, crate::plan::RUN_DIR);
        let files = |name: &str| find(name).unwrap().files_for(&"echo".into());
        assert_eq!(
            files("bash"),
            [("/run/cellblock/main.sh".into(), "echo".into())]
        );
        let main = Path::new("/run/cellblock/cellblock_driver/__main__.py");
        assert_eq!(files("python")[0].0, main);
    }

    #[test]
    fn an_unknown_language_names_the_known_ones() {
        let error = find("Pyhton").unwrap_err();
        assert_eq!(
            error.to_string(),
            "read the request: language `Pyhton`: unknown language"
        );
        assert_eq!(
            error.hint.as_deref(),
            Some(
                "did you mean `python`? cellblock speaks python, javascript, typescript, r, java, bash"
            )
        );
        assert_eq!(
            find("cobol").unwrap_err().hint.as_deref(),
            Some("cellblock speaks python, javascript, typescript, r, java, bash")
        );
    }

    #[test]
    fn arguments_follow_a_file_but_not_a_shim() {
        let argv = |name: &str| {
            let argv = find(name).unwrap().argv(
                Path::new("/bin/x"),
                &["a b".into()],
                Some(Bytes(1 << 30)),
                false,
            );
            argv.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            argv("python"),
            [
                "/bin/x",
                "-B",
                "-X",
                "utf8",
                "/run/cellblock/cellblock_driver/__main__.py",
                "3"
            ]
        );
        assert_eq!(argv("bash"), ["/bin/x", "/run/cellblock/main.sh", "a b"]);
    }
}
