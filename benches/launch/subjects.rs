//! The calls that are measured, and who does the same work.

use std::path::Path;

use crate::Result;
use crate::mounts::{What, mounts};
use crate::oci;
use crate::record::every_layer;
use crate::scene::Scene;
use crate::worker::{Job, Output, SERIAL};

/// One call of cellblock, and its peers.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// The first is the build that is measured.
    pub(crate) subjects: Vec<Subject>,
}

/// One way to have the work done.
pub(crate) struct Subject {
    pub(crate) by: String,
    pub(crate) job: Job,
    /// Whether it wants cgroup v2 alone at `/sys/fs/cgroup`.
    pub(crate) unified: bool,
}

/// The build that is measured.
pub(crate) const THIS: &str = "this build";
const REFERENCE: &str = "the reference";

/// The small dynamic program of the first calls.
const TRUE: &str = "/bin/true";

/// A language: its interpreter, the argument before code, the code, and how else the bare
/// interpreter is started.
struct Language {
    call: &'static str,
    interpreter: &'static str,
    bare: &'static [&'static [&'static str]],
    name: &'static str,
    code: &'static str,
}

const LANGUAGES: [Language; 3] = [
    Language {
        call: "`run -c 'print(1)'`",
        interpreter: "/usr/bin/python3",
        bare: &[&["-I", "-c"], &["-I", "-S", "-c"]],
        name: "python",
        code: "print(1)",
    },
    Language {
        call: "`run --lang bash -c 'echo 1'`",
        interpreter: "/usr/bin/bash",
        bare: &[&["-c"]],
        name: "bash",
        code: "echo 1",
    },
    Language {
        call: "`run --lang javascript -c 'console.log(1)'`",
        interpreter: "/usr/bin/node",
        bare: &[&["-e"]],
        name: "javascript",
        code: "console.log(1)",
    },
];

/// All calls whose program is installed; what is not is named on stderr.
pub(crate) fn all(scene: &mut Scene) -> Result<Vec<Call>> {
    check_layers(scene)?;
    let bwrap = installed("bwrap").map(|bwrap| bwrap_same(&bwrap, scene));
    let bwrap = bwrap.transpose()?;
    let mut version = own(scene, &["--version"]);
    version.push(bare(scene, &[TRUE]));
    let mut exec = own(scene, &["exec", "--", TRUE]);
    exec.extend(bwrap.iter().map(|bwrap| by_bwrap(scene, bwrap, &[TRUE])));
    exec.push(bare(scene, &[TRUE]));
    exec.extend(oci_runtimes(scene)?);
    let mut calls = vec![
        Call {
            name: "`--version`",
            subjects: version,
        },
        Call {
            name: "`exec -- /bin/true`",
            subjects: exec,
        },
    ];
    for language in LANGUAGES {
        if !Path::new(language.interpreter).exists() {
            eprintln!("launch: {} is not there", language.interpreter);
            continue;
        }
        let run = ["run", "--lang", language.name, "-c", language.code];
        let mut subjects = own(scene, &run);
        for arguments in language.bare {
            let work = [&[language.interpreter], *arguments, &[language.code]].concat();
            subjects.push(bare(scene, &work));
        }
        let work = [&[language.interpreter], language.bare[0], &[language.code]].concat();
        let exec = [&["exec", "--"], &*work].concat();
        subjects.push(cellblock(
            scene,
            "`exec` of the interpreter",
            &scene.cellblock,
            &exec,
        ));
        subjects.extend(bwrap.iter().map(|bwrap| by_bwrap(scene, bwrap, &work)));
        for subject in &mut subjects {
            subject.job.output = Output::Read;
        }
        let name = language.call;
        calls.push(Call { name, subjects });
    }
    Ok(calls)
}

/// Only whole cells are worth measuring.
fn check_layers(scene: &mut Scene) -> Result<()> {
    let argv = [
        &*scene.cellblock.to_string_lossy(),
        "exec",
        "--json",
        "--",
        TRUE,
    ];
    let mut job = job(scene, argv.map(str::to_owned).into());
    job.output = Output::Read;
    every_layer(&scene.workers[0].call(&job)?.output).map(drop)
}

/// This build and the reference.
fn own(scene: &Scene, arguments: &[&str]) -> Vec<Subject> {
    vec![
        cellblock(scene, THIS, &scene.cellblock, arguments),
        cellblock(scene, REFERENCE, &scene.reference, arguments),
    ]
}

fn cellblock(scene: &Scene, by: &str, executable: &Path, arguments: &[&str]) -> Subject {
    subject(
        scene,
        by,
        &[&[&*executable.to_string_lossy()], arguments].concat(),
    )
}

fn bare(scene: &Scene, work: &[&str]) -> Subject {
    // Without the code, which is the last.
    let shown = &work[..work.len().max(2) - 1];
    subject(scene, &format!("bare `{}`", shown.join(" ")), work)
}

fn by_bwrap(scene: &Scene, bwrap: &[String], work: &[&str]) -> Subject {
    let bwrap = bwrap.iter().map(String::as_str);
    let words: Vec<&str> = bwrap.chain(work.iter().copied()).collect();
    subject(scene, "bwrap, the same mounts, no filter", &words)
}

fn subject(scene: &Scene, by: &str, words: &[&str]) -> Subject {
    Subject {
        by: by.to_owned(),
        job: job(scene, words.iter().map(|word| (*word).to_owned()).collect()),
        unified: false,
    }
}

fn oci_runtimes(scene: &Scene) -> Result<Vec<Subject>> {
    let bundle = oci::bundle(scene, TRUE)?;
    let bundle = bundle.to_string_lossy();
    let mut subjects = Vec::new();
    for (name, options) in [
        ("crun", "--cgroup-manager=disabled"),
        ("runc", "--rootless true"),
    ] {
        let Some(runtime) = installed(name) else {
            continue;
        };
        let root = scene.path(name);
        let root = root.display();
        let words = format!("{runtime} --root {root} {options} run -b {bundle} c{SERIAL}");
        let words: Vec<&str> = words.split(' ').collect();
        let by = format!("{name}, rootless, the same mounts, no cgroup");
        subjects.push(Subject {
            unified: true,
            ..subject(scene, &by, &words)
        });
    }
    Ok(subjects)
}

/// A job that runs `argv` once and drops its output.
pub(crate) fn job(scene: &Scene, argv: Vec<String>) -> Job {
    let runtime = scene.scratch.path().to_string_lossy().into_owned();
    Job {
        argv,
        env: vec![
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), runtime.clone()),
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
    add(&["--chdir", "/workspace", "--"]);
    Ok(argv)
}
