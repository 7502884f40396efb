//! The languages of `cellblock run`, as data.
//!
//! A language is one folder here and one line in [`TABLE`]. Its [`Driver`] holds
//! everything that cellblock knows about it: its names, its interpreters and how the
//! code reaches them, its policy profile, and how its errors name what went wrong. A
//! driver knows nothing about how a cell is launched.
//!
//! Code reaches the interpreter in one of two ways ([`Delivery`]). On a *channel*, a
//! small program inside the cell, the shim, reads the code from one pipe and reports
//! values and errors on another (see [`frames`]). As a *file*, the interpreter runs it
//! like any script, and reports with its exit status and standard streams alone.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use record::bytes::{RawText, hex};
use record::{Category, CodeError};

pub mod frames;
mod java;
mod javascript;
pub mod node;
mod python;
mod r;
mod shell;
pub mod template;

/// Every language.
pub static TABLE: &[&Driver] = &[
    &python::DRIVER,
    &javascript::JAVASCRIPT,
    &javascript::TYPESCRIPT,
    &r::DRIVER,
    &java::DRIVER,
    &shell::DRIVER,
];

/// The driver with this name or alias, in upper or lower case.
pub fn find(name: &str) -> Option<&'static Driver> {
    TABLE.iter().copied().find(|driver| driver.is_called(name))
}

/// The language of code that nothing shows the language of.
pub const USUAL: &str = "python";

/// The directory of cellblock's own files inside a cell, which are read-only. A cell that lasts has
/// those of all languages.
pub const DIRECTORY: &str = "/run/cellblock";

/// The descriptor from which a driver reads requests, a pipe; it writes frames to
/// the next number, another pipe. Both block, and can be opened by their names in
/// `/proc/self/fd`.
pub const CHANNEL_FD: i32 = 3;

/// One language, as plain data.
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
    /// Code that fails where the interpreter is there and yet cannot run the language:
    /// `doctor` runs it. Its error says what would do.
    pub trial: Option<&'static str>,
    /// Files to show inside the cell, read-only and world-readable.
    pub files: &'static [DriverFile],
    /// How the code reaches the interpreter.
    pub delivery: Delivery,
    /// The driver for several executions in one interpreter, if it is another one.
    pub(crate) lasting: Option<&'static Self>,
    /// The limit that the interpreter enforces on its own heap, if it does: then it
    /// can report the lack of memory, which a killed process cannot.
    pub heap: Option<Heap>,
    /// Whether the interpreter may map much more memory than it uses, where mappings count. A request
    /// far above the memory limit is then granted until it is used, unless the heap has a limit.
    pub reserves: bool,
    /// System calls that the interpreter tries at every start and can do without. If
    /// they are denied before the code begins, the denial is not the code's.
    pub probes: &'static [&'static str],
    /// Where a prepared rootfs may have the shim compiled.
    pub(crate) compiled: Option<Compiled>,
    /// How the interpreter compiles the shim, where that is done at its first start.
    pub compiler: Option<Compiler>,
    /// Whether the shim can be a template, from which others are forked ([`template`]).
    pub is_template: bool,
    /// Whether SIGURG interrupts the code. SIGINT is then only for what the interpreter waits for.
    /// Both are sent again and again until the code stops; other code could be in the midst of
    /// cleaning up.
    pub urgent_interrupts: bool,
    /// Whether the shim sends a result only when what was printed before it has been read.
    pub settles: bool,
    /// The policy profile for the language, unless the caller names one; without it,
    /// `default`.
    pub profile: Option<Profile>,
    /// The prepared rootfs for the language, if the store has it and the caller
    /// names none.
    pub rootfs: &'static str,
    /// How its exceptions map to the category of an error.
    pub exceptions: Exceptions,
    /// Whether the interpreter ends itself by a signal where memory is refused, often without a
    /// word.
    pub aborts: bool,
    /// How its exceptions name a missing module, and what provides modules.
    pub modules: Option<Modules>,
    /// The program that could not be started because it is missing, if the
    /// exception says so.
    pub missing_program: fn(&CodeError) -> Option<&str>,
}

/// A language of scripts without a shim; a driver fills in its own fields.
const SCRIPT: Driver = Driver {
    name: "",
    aliases: &[],
    extensions: &[],
    interpreters: &[],
    flags: &[],
    trial: None,
    files: &[],
    delivery: Delivery::File("/run/cellblock/main"),
    lasting: None,
    heap: None,
    reserves: true,
    probes: &[],
    compiled: None,
    compiler: None,
    is_template: false,
    urgent_interrupts: false,
    settles: false,
    profile: None,
    rootfs: "shell",
    exceptions: Exceptions::NONE,
    aborts: false,
    modules: None,
    missing_program: |_| None,
};

/// A policy profile that is part of cellblock.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Its file, with the reason above each value.
    pub source: &'static str,
    /// The same as JSON, which is parsed many times faster.
    pub json: &'static str,
}

/// The profile in this file, as the build script of the crate compiled it.
#[macro_export]
macro_rules! profile {
    ($name:literal, $file:expr) => {
        $crate::Profile {
            name: $name,
            source: include_str!($file),
            json: include_str!(concat!(env!("OUT_DIR"), "/profiles/", $name, ".json")),
        }
    };
}

/// The file of this name in the language's folder.
macro_rules! file {
    ($name:literal) => {
        $crate::DriverFile {
            path: concat!("/run/cellblock/", $name),
            content: include_bytes!($name),
        }
    };
}
use file;

/// The limit of an interpreter on its own heap.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// The limit, in MiB, for a cell with this much memory.
    pub(crate) limit: fn(u64) -> u64,
    /// The argument, before all others, that sets the limit; without one the shim
    /// sets it.
    pub(crate) flag: Option<fn(u64) -> String>,
    /// The MiB that the interpreter needs besides the heap, at least.
    pub(crate) besides: u64,
}

impl Heap {
    /// The use of memory, in bytes, above which the heap of a cell with this limit is
    /// about full.
    pub fn full_at(&self, limit: u64) -> u64 {
        let heap = (self.limit)(limit >> 20) << 20;
        heap - heap / 8 + (self.besides << 20)
    }
}

/// How exceptions map to the category of an error.
#[derive(Clone, Copy, Debug)]
pub struct Exceptions {
    /// Parts of messages, in lower case, that say more than the class.
    pub decisive: &'static [(Category, &'static str)],
    /// Names of classes, without their package and separated by spaces.
    pub classes: &'static [(Category, &'static str)],
    /// Parts of messages, in lower case, of classes that say nothing. Those that
    /// come from the kernel's error numbers are known for all languages.
    pub messages: &'static [(Category, &'static str)],
}

impl Exceptions {
    /// No exception says anything.
    pub const NONE: Self = Self {
        decisive: &[],
        classes: &[],
        messages: &[],
    };
}

/// How a language's exceptions name a missing module, and what provides modules.
#[derive(Clone, Copy, Debug)]
pub struct Modules {
    /// The words of a message before the module's name, which may be quoted.
    pub missing: &'static [&'static str],
    /// What provides the module, in a cell with the rootfs of this name. Both come
    /// from messages, where the module is a word that can stand in a command.
    pub provider: fn(module: &str, rootfs: &str) -> Option<Provider>,
}

/// What provides a module.
#[derive(Clone, Debug)]
pub enum Provider {
    /// A package, added by this option of `cellblock rootfs add`.
    Package(&'static str, String),
    /// A prepared rootfs.
    Rootfs(&'static str),
    /// A jar, for `CLASSPATH`.
    Jar,
    /// Nothing, since a cell lacks this.
    Nothing(&'static str),
}

/// A file of cellblock's own inside the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverFile {
    /// Absolute path below [`DIRECTORY`].
    pub path: &'static str,
    /// Its content.
    pub content: &'static [u8],
}

/// A shim whose interpreter starts faster when it need not compile it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiled {
    /// The directory inside the cell.
    pub(crate) directory: &'static str,
    /// The extension of the file with the compiled shim.
    pub(crate) extension: &'static str,
    /// The arguments instead of the shim's path, given the file's path.
    pub(crate) arguments: fn(String) -> Vec<String>,
}

/// How an interpreter compiles a shim for itself. It executes nothing of a caller's by that.
#[derive(Clone, Copy, Debug)]
pub struct Compiler {
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// What it reads from standard input, a pipe. It writes hexadecimal digits to standard output.
    pub input: &'static str,
    /// A digest of these.
    pub digest: &'static str,
    /// Where the shim looks for the compiled form, below [`DIRECTORY`].
    pub path: &'static str,
}

/// How the code reaches the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The shim reads a [`frames::Request`] from [`CHANNEL_FD`], whose number is its
    /// only argument, and writes frames to the next one.
    Channel,
    /// The code is a read-only file at this path; the run's arguments follow it.
    File(&'static str),
}

impl Driver {
    /// The program's argument vector. The caller's `args` are part of it only
    /// where the code is a file: on a channel they travel with the request.
    /// `memory` is the cell's limit in bytes, if it has one; `is_compiled` says
    /// whether [`Driver::compiled_file`] exists.
    pub fn argv(
        &self,
        interpreter: &Path,
        args: &[RawText],
        memory: Option<u64>,
        is_compiled: bool,
    ) -> Vec<RawText> {
        let mut argv = vec![RawText::from(interpreter)];
        if let (Some(limit), Some(heap)) = (memory, self.heap) {
            let flag = heap.flag.map(|flag| flag((heap.limit)(limit >> 20)));
            argv.extend(flag.map(RawText::from));
        }
        match (self.compiled, self.flags.split_last(), self.compiled_file()) {
            (Some(compiled), Some((_shim, flags)), Some(file)) if is_compiled => {
                argv.extend(flags.iter().copied().map(RawText::from));
                argv.extend((compiled.arguments)(file).into_iter().map(RawText::from));
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

    /// The file with the compiled shim. Its name is a digest of the source, so that
    /// the compiled form of another version is not used.
    pub fn compiled_file(&self) -> Option<String> {
        let Compiled {
            directory,
            extension,
            ..
        } = self.compiled?;
        let source = self.files.first()?.content;
        let digest = Sha256::digest(source);
        let digest = hex(&digest[..8]);
        Some(format!("{directory}/{digest}.{extension}"))
    }

    /// The files to put into the cell, read-only, below [`DIRECTORY`].
    pub fn files_for(&self, code: &RawText) -> Vec<(PathBuf, RawText)> {
        let own = |file: &DriverFile| (file.path.into(), RawText::from(file.content.to_vec()));
        let mut files: Vec<(PathBuf, RawText)> = self.files.iter().map(own).collect();
        if let Delivery::File(path) = self.delivery {
            files.push((path.into(), code.clone()));
        }
        files
    }

    /// The driver that serves several executions in one interpreter, on a channel.
    pub fn lasting(&'static self) -> &'static Self {
        self.lasting.unwrap_or(self)
    }

    /// Whether the program has a channel.
    pub const fn has_channel(&self) -> bool {
        matches!(self.delivery, Delivery::Channel)
    }

    /// The language's name and aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Whether this is the language's name or an alias, in upper or lower case.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.names().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The part of `text` between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(part, _)| part)
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
    fn every_language_can_keep_its_state() {
        for driver in TABLE {
            let lasting = driver.lasting();
            assert!(lasting.has_channel(), "{}", driver.name);
            assert_eq!(lasting.name, driver.name);
            let mut paths = lasting.files.iter().map(|file| file.path);
            assert!(paths.any(|path| Some(&path) == lasting.flags.last()));
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
        let files = |name: &str| find(name).unwrap().files_for(&"echo".into());
        assert_eq!(
            files("bash"),
            [("/run/cellblock/main.sh".into(), "echo".into())]
        );
        let main = Path::new("/run/cellblock/cellblock_driver/__main__.py");
        assert_eq!(files("python")[0].0, main);
        let shim = include_str!("java/Shim.java");
        assert_eq!(files("java")[0].1, shim.into());
    }

    #[test]
    fn arguments_follow_a_file_but_not_a_shim() {
        let argv = |name: &str| {
            let argv = find(name).unwrap().argv(
                Path::new("/bin/x"),
                &["a b".into()],
                Some(1 << 30),
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
