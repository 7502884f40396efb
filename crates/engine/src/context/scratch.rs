//! Files that go with the state of a context: copies of the workspace, of `/tmp` and of `/dev/shm` in a
//! checkpoint.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::rc::Rc;

use nix::unistd::{Gid, Uid};

use super::carry::{Checkpoint, Layout, failed, no_room, on_disk, refused};
use crate::run::Live;
use ::carry::{Image, Refusal};
use record::error::{Result, SetupError, Step};
use spec::Scratch;
use sys::beneath::Beneath;
use workspace::copy::{self, Copied};
use workspace::{Caps, Tree};

pub(super) const WORKSPACE: &str = "workspace";
/// Files that are left out, by name; the rest is counted. Their number and names are the code's choice.
const MOST_LEFT_OUT: usize = 100;

/// A directory of the cell's own whose files go with a state.
struct Place {
    name: Scratch,
    /// Its number among the directories that a frozen cell shows.
    number: usize,
    /// How much it can hold.
    caps: Caps,
}

/// Those of a cell, the workspace first. `/tmp` and `/dev/shm` are left out where they are the
/// caller's, or something of the caller's is mounted beneath them.
fn places(live: &Live<'_>) -> Result<Vec<Place>> {
    let (number, caps) = workspace(live)?;
    let workspace = Place {
        name: Scratch::Workspace,
        number,
        caps,
    };
    let own = live.facts.plan.own_scratch().enumerate();
    let others =
        own.filter(|(_, scratch)| scratch.name != Scratch::Workspace && scratch.covered.is_empty());
    let others = others.map(|(number, scratch)| Place {
        name: scratch.name,
        number,
        caps: Caps::of(scratch.limit),
    });
    Ok([workspace].into_iter().chain(others).collect())
}

/// The name of its copy in a checkpoint.
const fn name_of(scratch: Scratch) -> &'static str {
    match scratch {
        Scratch::Workspace => WORKSPACE,
        Scratch::Tmp => "tmp",
        Scratch::Shm => "shm",
    }
}

/// Adds the files to a checkpoint that has `bytes` bytes and may grow to `most`. A replay makes
/// those of `/tmp` and `/dev/shm` again.
pub(super) fn add(
    live: &mut Live<'_>,
    layout: Layout,
    to: &Path,
    bytes: u64,
    most: u64,
) -> Result<Checkpoint> {
    let mut places = places(live)?;
    if layout == Layout::Replay {
        places.truncate(1);
    }
    let mut made = Checkpoint {
        layout,
        bytes,
        left_out: BTreeMap::new(),
    };
    let frozen = live.cell.freeze()?;
    for place in places {
        let from = frozen
            .scratch()
            .get(place.number)
            .ok_or_else(no_workspace)?;
        let to = to.join(name_of(place.name));
        let copied = keep(from, &to, place.caps, made.bytes, most)?;
        made.bytes = made.bytes.saturating_add(copied.bytes);
        let room = MOST_LEFT_OUT.saturating_sub(made.left_out.len());
        let more = copied.left_out.len().saturating_sub(room);
        let left_out = copied
            .left_out
            .into_iter()
            .take(room)
            .map(|(path, reason)| {
                let path = match place.name {
                    Scratch::Workspace => path.to_string(),
                    Scratch::Tmp | Scratch::Shm => format!("{}/{path}", place.name.path()),
                };
                (path, reason)
            });
        made.left_out.extend(left_out);
        if more > 0 {
            let place = place.name.path();
            (made.left_out).insert(format!("{place}/…"), format!("{more} more are left out"));
        }
    }
    Ok(made)
}

/// Refuses a state with files that the checkpoint in `to` has no copy of, and that another cell
/// does not have: nothing could go on from it. What is mapped and deleted stays in the process that
/// goes back.
pub(super) fn refuse_left_out(
    live: &mut Live<'_>,
    layout: Layout,
    image: &Image,
    to: &Path,
) -> Result<()> {
    let mut copies = Vec::new();
    for place in places(live)? {
        copies.push((place.name.path(), open_tree(&to.join(name_of(place.name)))?));
    }
    let plan = Rc::clone(&live.facts.plan);
    let frozen = live.cell.freeze()?;
    let is_lost = |path: &Path| {
        for (place, copy) in &copies {
            if let Some(inside) = beneath(path, Path::new(place)) {
                return Beneath::new(copy).find(inside).is_err();
            }
        }
        // Of the same cell, they may still be there.
        if layout == Layout::Own {
            return false;
        }
        let mut written = plan.writable_tmpfs();
        if written.any(|place| beneath(path, place).is_some()) {
            return true;
        }
        let changed = frozen.scratch().iter().skip(plan.writable_tmpfs().count());
        plan.overlays.iter().zip(changed).any(|(overlay, changed)| {
            beneath(path, &overlay.target)
                .is_some_and(|inside| Beneath::new(changed).find(inside).is_ok())
        })
    };
    let mut paths = (image.paths()).filter(|path| !path.as_bytes().ends_with(b" (deleted)"));
    match paths.find(|path| is_lost(path.as_path())) {
        Some(path) => Err(refused(Refusal::LeftOut(path.to_string()))),
        None => Ok(()),
    }
}

/// Where a path is beneath `place`, if it is, and is not `place` itself.
fn beneath<'p>(path: &'p Path, place: &Path) -> Option<&'p Path> {
    let inside = path.strip_prefix(place).ok()?;
    (!inside.as_os_str().is_empty()).then_some(inside)
}

/// The copies of a checkpoint, opened.
pub(super) struct Copies(Vec<(Scratch, OwnedFd)>);

impl Copies {
    /// Those of the checkpoint in this directory.
    pub(super) fn open(from: &Path) -> Result<Self> {
        let mut copies = vec![(Scratch::Workspace, open_tree(&from.join(WORKSPACE))?)];
        for name in [Scratch::Tmp, Scratch::Shm] {
            let path = from.join(name_of(name));
            if path.exists() {
                copies.push((name, open_tree(&path)?));
            }
        }
        Ok(Self(copies))
    }

    /// Replaces the files of a cell by them.
    pub(super) fn put(&self, live: &mut Live<'_>) -> Result<()> {
        let owner = live.facts.owner();
        let places = places(live)?;
        let frozen = live.cell.freeze()?;
        let mut baseline = None;
        for Place { name, number, caps } in places {
            let to = frozen.scratch().get(number).ok_or_else(no_workspace)?;
            let Some((_, from)) = self.0.iter().find(|(other, _)| *other == name) else {
                continue;
            };
            if name == Scratch::Workspace {
                copy::clear(to, owner)
                    .map_err(|errno| SetupError::os(Step::Inputs, "unlinkat", errno))?;
                copy::copy(tree_of(from), to, &caps, owner)?;
                baseline = Some(copy::content(tree_of(to), &caps)?);
            } else {
                // The program may have a file mapped, such as a library that it compiled.
                copy::renew(tree_of(from), to, &caps, owner)?;
            }
        }
        drop(frozen);
        if let Some(baseline) = baseline {
            live.set_baseline(baseline);
        }
        Ok(())
    }
}

/// Copies a tree to a new directory of a checkpoint that has `bytes` bytes, and may have
/// `most`.
pub(super) fn keep(
    from: &OwnedFd,
    to: &Path,
    mut caps: Caps,
    bytes: u64,
    most: u64,
) -> Result<Copied> {
    (DirBuilder::new().mode(0o700).create(to)).map_err(|e| on_disk("mkdir", &e, to))?;
    let to = open_tree(to)?;
    let room = most.saturating_sub(bytes);
    let is_short = room < caps.total_bytes.0;
    caps.total_bytes.0 = caps.total_bytes.0.min(room);
    copy::copy(tree_of(from), &to, &caps, own_ids()).map_err(|error| {
        match is_short && error.errno.is_none() {
            true => no_room(most),
            false => error,
        }
    })
}

/// Opens a directory of a checkpoint.
pub(super) fn open_tree(path: &Path) -> Result<OwnedFd> {
    let opened = File::open(path).map_err(|e| on_disk("open", &e, path))?;
    Ok(opened.into())
}

/// The place of the workspace among the cell's scratch places, and how much it can hold.
pub(super) fn workspace(live: &Live<'_>) -> Result<(usize, Caps)> {
    let mut own = live.facts.plan.own_scratch();
    let found = own.find(|scratch| scratch.name == Scratch::Workspace);
    match (found, live.facts.workspace()) {
        (Some(scratch), Some(place)) if scratch.covered.is_empty() => {
            Ok((place, Caps::of(scratch.limit)))
        }
        (Some(_), _) => Err(failed("there are binds beneath the workspace")
            .hint("bind them elsewhere: a checkpoint has a copy of the workspace")),
        _ => Err(no_workspace()),
    }
}

pub(super) fn tree_of(dir: &OwnedFd) -> Tree<'_> {
    Tree {
        dir: dir.as_fd(),
        covered: &[],
        code_file: None,
        keeps_links: true,
        prefix: b"",
        taken: &[],
        is_upper: false,
    }
}

fn own_ids() -> (u32, u32) {
    (Uid::effective().as_raw(), Gid::effective().as_raw())
}

pub(super) fn no_workspace() -> SetupError {
    failed("the cell has no workspace of its own")
        .hint("a checkpoint has a copy of the workspace, and a bind is the host's")
}
