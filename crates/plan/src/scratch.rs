//! What `/workspace`, `/tmp` and `/dev/shm` are: decided here, once. Mounting,
//! metering, limits, collecting files and writing them back all follow.

use std::path::{Path, PathBuf};

use serde::Serialize;

use record::error::{Result, SetupError, Step};
use spec::{Placed, Scratch, Spec, TmpfsLimit};

/// One of the places that a program writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScratchDir {
    /// Which.
    pub name: Scratch,
    /// The bounds that were asked for it. They hold unless it is a bind.
    #[serde(skip)]
    pub limit: TmpfsLimit,
    /// What it is.
    pub storage: Storage,
    /// Mount points of the caller's beneath it, relative to it. Nothing at or below them is
    /// the cell's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub covered: Vec<PathBuf>,
}

/// What a program writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// A tmpfs of the cell's own.
    Own,
    /// The same, and this host directory keeps its content between runs.
    Kept(PathBuf),
    /// A writable view of a host directory: what changes there is listed.
    Overlay {
        /// The directory.
        source: PathBuf,
    },
    /// A bind of the caller's. It is the host's: neither measured nor listed.
    Bind {
        /// What is shown there.
        source: PathBuf,
        /// Whether the program may write there.
        writable: bool,
    },
}

impl ScratchDir {
    /// Whether it is a tmpfs of the cell's own.
    pub fn is_own(&self) -> bool {
        matches!(self.storage, Storage::Own | Storage::Kept(_))
    }

    /// The directory that keeps its content.
    pub fn kept_in(&self) -> Option<&Path> {
        match &self.storage {
            Storage::Kept(directory) => Some(directory),
            Storage::Own | Storage::Overlay { .. } | Storage::Bind { .. } => None,
        }
    }
}

/// What each of the places is.
///
/// # Errors
/// Options contradict each other: something is to be copied into a bind, or out of
/// one, or a bind covers what is to be kept.
pub(super) fn choose(spec: &Spec) -> Result<Vec<ScratchDir>> {
    let all = Scratch::ALL.map(|name| ScratchDir {
        name,
        limit: spec.limits.of(name),
        storage: storage(spec, name),
        covered: covered(spec.mount_points(), name),
    });
    for scratch in &all {
        refuse_contradictions(spec, scratch)?;
    }
    Ok(all.into())
}

fn kept_in(spec: &Spec, name: Scratch) -> Option<&PathBuf> {
    match name {
        Scratch::Workspace => spec.workspace.as_ref(),
        Scratch::Tmp => spec.keep_tmp.as_ref(),
        Scratch::Shm => None,
    }
}

fn storage(spec: &Spec, name: Scratch) -> Storage {
    let binds = spec.binds.iter().map(|bind| {
        let storage = Storage::Bind {
            source: bind.source.clone(),
            writable: bind.writable,
        };
        (&bind.target, storage)
    });
    let overlays = spec.overlays.iter().map(|overlay| {
        let source = overlay.source.clone();
        (&overlay.target, Storage::Overlay { source })
    });
    let covers = |target: &Path| Path::new(name.path()).starts_with(target);
    // The innermost one is on top.
    let callers = (binds.chain(overlays))
        .filter(|(target, _)| covers(target))
        .max_by_key(|(target, _)| target.components().count());
    match (callers, kept_in(spec, name)) {
        (Some((_, storage)), _) => storage,
        (None, Some(directory)) => Storage::Kept(directory.clone()),
        (None, None) => Storage::Own,
    }
}

fn covered<'s>(targets: impl Iterator<Item = &'s Path>, name: Scratch) -> Vec<PathBuf> {
    let beneath = targets.filter_map(|target| {
        let below = target.strip_prefix(name.path()).ok()?;
        (!below.as_os_str().is_empty()).then(|| below.components().collect())
    });
    beneath.collect()
}

fn refuse_contradictions(spec: &Spec, scratch: &ScratchDir) -> Result<()> {
    let path = scratch.name.path();
    let is_workspace = scratch.name == Scratch::Workspace;
    let refused = |what: &str, message: String, hint: String| {
        Err(SetupError::new(Step::Spec, message).on(what).hint(hint))
    };
    if let Storage::Bind { source, .. } | Storage::Overlay { source } = &scratch.storage {
        let is_bind = matches!(scratch.storage, Storage::Bind { .. });
        let (what, kind) = match is_bind {
            true => ("a bind", "bind"),
            false => ("an overlay", "overlay"),
        };
        let source = source.display();
        let message = |why: &str| format!("{path} is {what} of {source}, {why}");
        if kept_in(spec, scratch.name).is_some() {
            let option = if is_workspace {
                "--workspace"
            } else {
                "--keep-tmp"
            };
            let message = message(match is_bind {
                true => "which keeps its content anyway",
                false => "whose changes end with the cell",
            });
            return refused(option, message, format!("leave {option} or the {kind} out"));
        }
        let goes_in = [
            ("--file", !spec.files.is_empty()),
            ("--files-from", spec.files_from.is_some()),
        ];
        if is_workspace && let Some((option, _)) = goes_in.iter().find(|(_, given)| *given) {
            let message = message("and nothing is copied into the host's directories");
            let hint = format!("put the files into {source} yourself, or leave the bind out");
            return refused(option, message, hint);
        }
        if is_workspace && is_bind && spec.out.is_some() {
            let message = message("and the program's changes there are not copied out");
            let hint = format!("look in {source} after the run, or leave the bind out");
            return refused("--out", message, hint);
        }
    }
    let is_made_here = |path: &&PathBuf| path.starts_with(scratch.name.path());
    let made = (spec.places.iter())
        .filter(|place| !matches!(place.what, Placed::Tmpfs { .. }))
        .map(|place| &place.path);
    let made = made.chain(spec.read_only_files.iter().map(|file| &file.path));
    if let (Some(path), Some(_)) = (made.into_iter().find(is_made_here), scratch.kept_in()) {
        return refused(
            &path.display().to_string(),
            "lies in a directory that is kept, which holds what the last run left".to_owned(),
            "give it another path, or put it into the kept directory yourself".to_owned(),
        );
    }
    let lies_in_bind =
        |target: &Path| (scratch.covered.iter()).any(|bind| target.starts_with(bind));
    match spec.files.iter().find(|file| lies_in_bind(&file.target)) {
        Some(file) if is_workspace => refused(
            &file.target.display().to_string(),
            "lies in a bind, and nothing is copied into the host's directories".to_owned(),
            "put the file into the bind's source yourself, or give it another path".to_owned(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::Bind;

    fn bind(target: &str, writable: bool) -> Bind {
        Bind {
            source: "/srv/data".into(),
            target: target.into(),
            writable,
            optional: false,
        }
    }

    #[test]
    fn only_binds_at_or_above_a_place_make_it_one() {
        let is_bind = |target: &str, name: Scratch| {
            let binds = [bind(target, true)];
            let covers = |b: &&Bind| Path::new(name.path()).starts_with(&b.target);
            binds.iter().rfind(covers).is_some()
        };
        assert!(is_bind("/workspace", Scratch::Workspace));
        assert!(is_bind("/workspace/", Scratch::Workspace));
        assert!(is_bind("/dev", Scratch::Shm));
        assert!(!is_bind("/workspace/data", Scratch::Workspace));
        assert!(!is_bind("/work", Scratch::Workspace));
        assert!(!is_bind("/tmp", Scratch::Workspace));
    }

    #[test]
    fn what_lies_beneath_is_named_relative_to_the_place() {
        let binds = [bind("/workspace/a/./b/", false), bind("/tmp/x", true)];
        let covered = |name| covered(binds.iter().map(|bind| bind.target.as_path()), name);
        assert_eq!(covered(Scratch::Workspace), [Path::new("a/b")]);
        assert_eq!(covered(Scratch::Tmp), [Path::new("x")]);
        assert!(covered(Scratch::Shm).is_empty());
    }
}
