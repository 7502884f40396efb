//! Shims in their interpreter's own compiled form, kept between calls: Python takes longer to
//! compile its shim than to do all else that the shim does.
//!
//! 1. While a call is resolved, [`Compiled::find`] looks for the form that this interpreter has made
//!    of this shim. It becomes one more file of the cell, and the shim uses it if the interpreter
//!    is of the kind that it was made for. Otherwise the shim is compiled as ever.
//! 2. When the record has been written, [`Compiled::keep`] has the interpreter make what was
//!    missing. That is a cell of its own, without anything of the caller's: no code, files,
//!    variables or binds. This process writes what the cell printed to the cache.
//!
//! Only interpreters in cells parse the form, since a hostile one could do anything to its
//! parser. A cell gets nothing that a cell with another root file system has made. Whatever fails
//! costs one attempt, and never the call; SECURITY.md has what the store refuses.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::execute;
use languages::{Compiler, Driver};
use plan::rootfs::{Lease, Tree};
use record::Outcome;
use record::bytes::{RawText, hex};
use record::error::Result;
use spec::quantity::Bound;
use spec::{
    self, Ask, Bytes, CgroupChoice, Mode, Partial, PartialLimits, RootfsRef, Spec, Stdin, Stdio,
};

mod store;

use store::{Draft, Found, Store};

/// The longest that compiling may take.
const WALL: Duration = Duration::from_secs(10);

/// What a call found of its shim's compiled form.
#[derive(Debug, Default)]
pub struct Compiled {
    missing: RefCell<Option<Missing>>,
}

/// What is to be compiled.
#[derive(Debug)]
struct Missing {
    store: Store,
    key: String,
    compiler: Compiler,
    interpreter: PathBuf,
    rootfs: RootfsRef,
    /// Keeps the tree from being removed meanwhile.
    _lease: Option<Arc<Lease>>,
}

impl Compiled {
    /// The file for the cell, if there is one. What is missing is noted.
    pub(super) fn find(
        &self,
        tree: &Tree,
        driver: &Driver,
        interpreter: &Path,
    ) -> Option<(PathBuf, RawText)> {
        let compiler = driver.compiler?;
        let store = Store::of_caller()?;
        let key = key(tree, &compiler, interpreter)?;
        match store.find(&key) {
            Found::Content(content) => {
                return Some((compiler.path.into(), RawText::from(content)));
            }
            Found::Nothing => {}
            Found::Missing => {
                *self.missing.borrow_mut() = Some(Missing {
                    store,
                    key,
                    compiler,
                    interpreter: interpreter.into(),
                    rootfs: match tree.is_host() {
                        true => RootfsRef::Host,
                        false => RootfsRef::Dir(tree.base.clone()),
                    },
                    _lease: tree.lease.clone(),
                });
            }
        }
        None
    }

    /// Compiles and keeps what the call did not find, for the next one. The call is over: this
    /// reports nothing.
    #[inline(never)]
    pub fn keep(&self) {
        let Some(missing) = self.missing.take() else {
            return;
        };
        // First: where there is no room for the result, nothing is compiled.
        if let Some(draft) = missing.store.draft(&missing.key) {
            missing.keep(draft);
        }
    }
}

impl Missing {
    fn keep(&self, draft: Draft<'_>) {
        let Ok(spec) = self.spec() else { return };
        let record = execute(&spec, Instant::now());
        // A later call may succeed: this one was killed, timed out or was cancelled.
        if !matches!(record.outcome, Outcome::Ok | Outcome::Exit) {
            return;
        }
        let printed = (record.outcome == Outcome::Ok)
            .then_some(record.stdout)
            .flatten();
        let content = printed.and_then(|digits| bytes(digits.as_str()?));
        // Nothing is worth noting, too: it keeps the next call from trying the same again.
        draft.keep(content.as_deref().unwrap_or_default());
    }

    /// The interpreter alone, within the usual confinement.
    fn spec(&self) -> Result<Spec> {
        let ask = Ask {
            mode: Mode::Exec,
            cwd: Path::new("/"),
            stdio: Stdio::Capture,
            lends: false,
        };
        let arguments = self.compiler.arguments.iter().copied();
        let program = RawText::from(self.interpreter.as_path());
        let argv = std::iter::once(program).chain(arguments.map(RawText::from));
        let partial = Partial {
            argv: Some(argv.collect()),
            limits: PartialLimits {
                wall: Some(Bound(Some(WALL))),
                // In hexadecimal digits.
                output: Some(Bytes(2 * store::LONGEST)),
                ..PartialLimits::default()
            },
            ..Partial::default()
        };
        let mut spec = spec::load(&ask, None, None, partial)?;
        spec.rootfs = self.rootfs.clone();
        // A cgroup may take a round trip to systemd.
        spec.cgroup = CgroupChoice::None;
        spec.stdin = Stdin::Inline(self.compiler.input.into());
        Ok(spec)
    }
}

/// What the form depends on: the shim, the tree, and the interpreter's file, which is replaced
/// when it is upgraded.
fn key(tree: &Tree, compiler: &Compiler, interpreter: &Path) -> Option<String> {
    use std::fmt::Write as _;

    let file = tree.status_of_file(interpreter)?;
    let base = nix::sys::stat::stat(&tree.base).ok()?;
    let mut text = format!("{}\n{}\n", compiler.digest, tree.label);
    for number in [
        i128::from(base.st_dev),
        base.st_ino.into(),
        file.st_dev.into(),
        file.st_ino.into(),
        file.st_size.into(),
        file.st_mtime.into(),
        file.st_mtime_nsec.into(),
        file.st_ctime.into(),
        file.st_ctime_nsec.into(),
    ] {
        let _ = writeln!(text, "{number}");
    }
    text.push_str(&interpreter.to_string_lossy());
    Some(hex(&Sha256::digest(text)[..16]))
}

/// The bytes that hexadecimal digits stand for.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_pairs() {
        assert_eq!(bytes("00ffA0"), Some(vec![0, 255, 160]));
        assert_eq!(bytes(""), Some(Vec::new()));
        assert_eq!(bytes("0"), None);
        assert_eq!(bytes("0g"), None);
    }

    #[test]
    fn another_interpreter_or_tree_has_another_key() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt as _;

        let make = |place: &Path| {
            let bin = place.join("usr/bin");
            fs::create_dir_all(&bin).unwrap();
            let python = bin.join("python3");
            fs::write(&python, "#!").unwrap();
            fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
            python
        };
        let driver = languages::find("python").unwrap();
        let compiler = driver.compiler.unwrap();
        let inside = Path::new("/usr/bin/python3");
        let of = |place: &Path| {
            let tree = Tree::find(&RootfsRef::Dir(place.to_owned()), None, None).unwrap();
            key(&tree, &compiler, inside).unwrap()
        };
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let python = make(one.path());
        let mut seen = vec![of(one.path())];
        assert_eq!(of(one.path()), seen[0]);
        // The same file in another tree, as in the store.
        fs::create_dir_all(other.path().join("usr/bin")).unwrap();
        fs::hard_link(&python, other.path().join("usr/bin/python3")).unwrap();
        seen.extend([of(one.path()), of(other.path())]);
        fs::write(&python, "#?").unwrap();
        seen.push(of(one.path()));
        // With the size and the time of the one before.
        let time = python.metadata().unwrap().modified().unwrap();
        fs::remove_file(&python).unwrap();
        make(one.path());
        fs::File::open(&python).unwrap().set_modified(time).unwrap();
        seen.push(of(one.path()));
        let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len());
    }

    #[test]
    fn what_is_compiled_fits_into_a_pipe() {
        for compiler in languages::TABLE.iter().filter_map(|d| d.compiler) {
            assert!(compiler.input.len() < 1 << 16);
        }
    }
}
