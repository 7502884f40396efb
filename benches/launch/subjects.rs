//! The measured sandboxes and their command lines.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::mounts::{What, mounts};
use crate::oci;
use crate::scene::Scene;
use crate::worker::{Job, Output, SERIAL};

/// The work: a small dynamic program.
const WORK: &str = "/bin/true";

/// One way to launch the work.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) job: Job,
    /// The path of each launch's record, for cellblock.
    pub(crate) record: Option<PathBuf>,
    /// Whether it wants cgroup v2 alone at `/sys/fs/cgroup`.
    pub(crate) unified: bool,
}

/// The names that results are looked up by.
pub(crate) const BARE: &str = "bare";
pub(crate) const CELLBLOCK: &str = "cellblock";
pub(crate) const BWRAP: &str = "bwrap";
pub(crate) const BWRAP_FEW: &str = "bwrap, few";
pub(crate) const CRUN: &str = "crun";
pub(crate) const RUNC: &str = "runc";

/// All whose program is installed; the others are named on stderr.
pub(crate) fn all(scene: &Scene) -> Result<Vec<Subject>> {
    let record = scene.path("record.json");
    let mut subjects = vec![
        Subject {
            name: BARE,
            about: "posix_spawn, no sandbox",
            job: job(scene, vec![WORK.to_owned()]),
            record: None,
            unified: false,
        },
        Subject {
            name: CELLBLOCK,
            about: "exec --record FILE, every layer",
            job: job(scene, exec(scene, &record, &[WORK])),
            record: Some(record),
            unified: false,
        },
    ];
    if let Some(bwrap) = installed("bwrap") {
        let same = Subject {
            name: BWRAP,
            about: "--unshare-all, the same mounts, no filter",
            job: job(scene, bwrap_same(&bwrap, scene)?),
            record: None,
            unified: false,
        };
        let few = Subject {
            name: BWRAP_FEW,
            about: "--unshare-all, only /usr, /proc, /dev, /tmp",
            job: job(scene, bwrap_few(&bwrap)),
            record: None,
            unified: false,
        };
        subjects.extend([same, few]);
    }
    let bundle = oci::bundle(scene, WORK)?;
    let bundle = bundle.to_string_lossy();
    if let Some(crun) = installed("crun") {
        let root = scene.path("crun");
        let words = format!(
            "{crun} --root {} --cgroup-manager=disabled run -b {bundle} c{SERIAL}",
            root.display()
        );
        subjects.push(oci_runtime(CRUN, scene, &words));
    }
    if let Some(runc) = installed("runc") {
        let root = scene.path("runc");
        let words = format!(
            "{runc} --root {} --rootless true run -b {bundle} r{SERIAL}",
            root.display()
        );
        subjects.push(oci_runtime(RUNC, scene, &words));
    }
    Ok(subjects)
}

fn oci_runtime(name: &'static str, scene: &Scene, words: &str) -> Subject {
    Subject {
        name,
        about: "rootless, the same mounts, a filter, no cgroup",
        job: job(scene, words.split(' ').map(str::to_owned).collect()),
        record: None,
        unified: true,
    }
}

/// `cellblock exec` of `work`, with its record in a file.
pub(crate) fn exec(scene: &Scene, record: &Path, work: &[&str]) -> Vec<String> {
    let head = [&scene.cellblock.to_string_lossy(), "exec", "--record"].map(str::to_owned);
    let record = record.to_string_lossy().into_owned();
    let tail = ["--"].iter().chain(work).map(|word| (*word).to_owned());
    head.into_iter().chain([record]).chain(tail).collect()
}

/// A job that runs `argv` once and drops its output.
pub(crate) fn job(scene: &Scene, argv: Vec<String>) -> Job {
    let runtime = scene.scratch.path().to_string_lossy().into_owned();
    Job {
        argv,
        env: vec![
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("XDG_RUNTIME_DIR".to_owned(), runtime),
        ],
        output: Output::Null,
        count: 1,
        peak: false,
    }
}

/// The path of the program `name`; absent ones are named on stderr.
fn installed(name: &str) -> Option<String> {
    let found = ["/usr/bin", "/usr/sbin"]
        .iter()
        .map(|directory| format!("{directory}/{name}"))
        .find(|path| Path::new(path).exists());
    if found.is_none() {
        eprintln!("launch: {name} is not installed and left out");
    }
    found
}

fn bwrap_few(bwrap: &str) -> Vec<String> {
    let words = "--unshare-all --die-with-parent --ro-bind /usr /usr \
                 --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
                 --proc /proc --dev /dev --tmpfs /tmp --";
    let words = words.split_whitespace().chain([WORK]);
    [bwrap]
        .into_iter()
        .chain(words)
        .map(str::to_owned)
        .collect()
}

/// bwrap with the mounts of cellblock's plan. Its own `--dev` stands for what
/// the plan puts below `/dev`.
fn bwrap_same(bwrap: &str, scene: &Scene) -> Result<Vec<String>> {
    let mut argv = vec![bwrap.to_owned()];
    let mut add = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["--unshare-all", "--die-with-parent", "--hostname", "cell"]);
    add(&["--uid", "1000", "--gid", "1000"]);
    for mount in mounts(scene)? {
        let target = mount.target.as_str();
        match &mount.what {
            What::Tmpfs { .. } if target == "/" => {}
            What::Tmpfs { .. } if target == "/dev" => add(&["--dev", "/dev"]),
            What::Tmpfs { size } => add(&["--size", &size.to_string(), "--tmpfs", target]),
            _ if target.starts_with("/dev/") => {}
            What::Bind { source } => add(&["--ro-bind", source, target]),
            What::Symlink { to } => add(&["--symlink", to, target]),
            What::Proc => add(&["--proc", target]),
            What::Directory => add(&["--dir", target]),
            What::Devpts => {}
        }
    }
    add(&["--chdir", "/workspace", "--", WORK]);
    Ok(argv)
}
