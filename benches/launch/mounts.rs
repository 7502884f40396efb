//! The mounts of a cell, for the peers.

use std::fs;
use std::path::Path;

use serde_json::Value;
use spec::Bytes;

use crate::Result;
use crate::scene::Scene;

/// A mount of cellblock's plan, as far as peers can do the same.
pub(crate) struct Mount {
    pub(crate) target: String,
    pub(crate) what: What,
}

/// The kind of a mount.
pub(crate) enum What {
    Bind { source: String },
    Tmpfs { size: u64 },
    Symlink { to: String },
    Proc,
    Devpts,
    Directory,
}

/// The mounts of cellblock's plan. A generated file becomes a bind of a file
/// with that content.
pub(crate) fn mounts(scene: &Scene) -> Result<Vec<Mount>> {
    let list = scene.plan["plan"]["mounts"].as_array();
    let list = list.ok_or("the plan has no mounts")?;
    list.iter().map(|entry| mount(scene, entry)).collect()
}

fn mount(scene: &Scene, entry: &Value) -> Result<Mount> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let target = text(&entry["target"]).ok_or("a mount without a target")?;
    let what = match entry["kind"].as_str().unwrap_or_default() {
        "bind" => What::Bind {
            source: source(&entry["source"]).ok_or("a bind without a source")?,
        },
        "tmpfs" => What::Tmpfs {
            size: serde_json::from_value::<Bytes>(entry["size"].clone())?.0,
        },
        "symlink" => What::Symlink {
            to: text(&entry["to"]).ok_or("a symlink to nowhere")?,
        },
        "file" => {
            let path = scene.path(&target.replace('/', "-"));
            fs::write(&path, text(&entry["content"]).unwrap_or_default())?;
            What::Bind {
                source: path.to_string_lossy().into_owned(),
            }
        }
        // Peers do not show the cell's limits as the machine: they get less to do.
        "proc" | "machine" => What::Proc,
        "devpts" => What::Devpts,
        "directory" => What::Directory,
        other => return Err(format!("peers do not know mounts of kind {other:?}").into()),
    };
    Ok(Mount { target, what })
}

fn source(value: &Value) -> Option<String> {
    if let Some(host) = value["host"].as_str() {
        return Some(host.to_owned());
    }
    let beneath = &value["beneath"];
    let base = Path::new(beneath["base"].as_str()?);
    let path = base.join(beneath["path"].as_str()?);
    Some(path.to_string_lossy().into_owned())
}
