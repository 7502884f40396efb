//! The costs of prepared root file systems.
//!
//!     cargo bench --bench rootfs -- [RECIPE]...
//!
//! Builds each recipe (python and python-data when none is named) twice, in a
//! store and with a cache of its own: first with nothing there, so that the
//! network counts, then again from the cache. Then, from page cache: `verify`;
//! the start of a cell on the built tree beside one on the host's; and, where
//! pandas is, its import in a cell beside that by the same interpreter and the
//! same files without a cell.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

#[path = "common/stats.rs"]
mod stats;

use stats::Summary;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const STARTS: usize = 200;
const IMPORTS: usize = 15;
const READS: usize = 7;
/// Prints how long it takes, in seconds.
const IMPORT: &str =
    "import time; a = time.perf_counter(); import pandas; print(time.perf_counter() - a)";

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` runs this too; there is nothing to test.
    if !words.iter().any(|word| word == "--bench") {
        return Ok(());
    }
    let mut recipes: Vec<String> = words.into_iter().filter(|w| !w.starts_with('-')).collect();
    if recipes.is_empty() {
        recipes = ["python", "python-data"].map(str::to_owned).into();
    }
    let place = Place::new()?;
    println!("rootfs          cold  cached       size  files   verify");
    for recipe in &recipes {
        place.builds(recipe)?;
    }
    for recipe in &recipes {
        place.starts(recipe)?;
        if place.has_pandas(recipe) {
            place.imports(recipe)?;
        }
    }
    Ok(())
}

/// A store and a cache that nobody else uses.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        // On disk, as users have them.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        Ok(Self { dir })
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn cellblock(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellblock"));
        command
            .env("CELLBLOCK_STORE", self.store())
            .env("XDG_CACHE_HOME", self.dir.path().join("cache"))
            .stdin(Stdio::null());
        command
    }

    fn tree(&self, name: &str) -> Result<PathBuf> {
        Ok(fs::canonicalize(self.store().join(name))?)
    }

    fn manifest(&self, name: &str) -> Result<Value> {
        let text = fs::read(self.tree(name)?.join("manifest.json"))?;
        Ok(serde_json::from_slice(&text)?)
    }

    fn has_pandas(&self, name: &str) -> bool {
        self.packages(name)
            .is_ok_and(|dir| dir.join("pandas").is_dir())
    }

    /// Where the Python packages of a rootfs are.
    fn packages(&self, name: &str) -> Result<PathBuf> {
        let lib = self.tree(name)?.join("usr/local/lib");
        let entry = fs::read_dir(lib)?.next().ok_or("no python")??;
        Ok(entry.path().join("dist-packages"))
    }

    fn builds(&self, recipe: &str) -> Result<()> {
        let build = |fresh: bool| -> Result<f64> {
            let mut command = self.cellblock();
            command.args(["rootfs", "build", "--quiet", recipe]);
            if fresh {
                command.arg("--fresh");
            }
            Ok(timed(&mut command)?.1)
        };
        let (cold, cached) = (build(true)?, build(true)?);
        let manifest = self.manifest(recipe)?;
        let bytes = manifest["size_bytes"].as_f64().ok_or("no size")?;
        let mut reads = Vec::new();
        for _ in 0..READS {
            reads.push(timed(self.cellblock().args(["rootfs", "verify", recipe]))?.1);
        }
        println!(
            "{recipe:12} {cold:6.1} s {cached:5.1} s {:6.1} MiB {:6}  {:4.0} MB/s",
            bytes / f64::from(1 << 20),
            manifest["files"],
            bytes / 1e6 / stats::median(reads),
        );
        Ok(())
    }

    /// The start of a cell on the built tree, beside one on the host's.
    fn starts(&self, recipe: &str) -> Result<()> {
        let mut built = Vec::new();
        let mut host = Vec::new();
        for _ in 0..STARTS {
            for (rootfs, times) in [(recipe, &mut built), ("host", &mut host)] {
                let work = ["exec", "--rootfs", rootfs, "--", "/bin/true"];
                times.push(timed(self.cellblock().args(work))?.1 * 1e6);
            }
        }
        let (built, host) = (Summary::of(built), Summary::of(host));
        println!(
            "/bin/true on {recipe}: median {:.0} µs, p99 {:.0}; on host {:.0}, {:.0}; {:+.0} µs",
            built.median,
            built.p99,
            host.median,
            host.p99,
            built.median - host.median
        );
        Ok(())
    }

    /// Importing pandas in a cell, beside the same without one.
    fn imports(&self, recipe: &str) -> Result<()> {
        let tree = self.tree(recipe)?;
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for _ in 0..IMPORTS {
            let python = [
                "exec",
                "--rootfs",
                recipe,
                "--",
                "/usr/bin/python3",
                "-c",
                IMPORT,
            ];
            inside.push(printed(self.cellblock().args(python))?);
            outside.push(printed(&mut self.bare(&tree, recipe)?)?);
        }
        let (inside, outside) = (stats::median(inside), stats::median(outside));
        println!(
            "import pandas in a cell on {recipe}: {:.0} ms; without a cell {:.0} ms; {:.2} ×",
            inside * 1e3,
            outside * 1e3,
            inside / outside
        );
        Ok(())
    }

    /// The tree's own interpreter and packages, started from outside.
    fn bare(&self, tree: &Path, recipe: &str) -> Result<Command> {
        let machine = std::env::consts::ARCH;
        let (loader, libraries) = (
            tree.join("usr/lib64/ld-linux-x86-64.so.2"),
            tree.join(format!("usr/lib/{machine}-linux-gnu")),
        );
        let mut command = Command::new(loader);
        command
            .arg("--library-path")
            .arg(libraries)
            .arg(tree.join("usr/bin/python3"))
            .args(["-B", "-c", IMPORT])
            .env_clear()
            .env("PYTHONHOME", tree.join("usr"))
            .env("PYTHONPATH", self.packages(recipe)?);
        Ok(command)
    }
}

/// Runs a command that must succeed; what it wrote, and how long it took in
/// seconds.
fn timed(command: &mut Command) -> Result<(Vec<u8>, f64)> {
    let began = Instant::now();
    let output = command.output()?;
    let took = began.elapsed().as_secs_f64();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?}: {}: {stderr}", output.status).into());
    }
    Ok((output.stdout, took))
}

/// The number that a command prints.
fn printed(command: &mut Command) -> Result<f64> {
    let (text, _) = timed(command)?;
    Ok(String::from_utf8(text)?.trim().parse()?)
}
