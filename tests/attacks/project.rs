//! A project of the caller's, writable but for what programs outside would run or obey later
//! (`--protect`, the profile `agent`): each attack works in a directory without protection.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use record::Change;

use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::*;
use crate::cells::scratch::{Scratch, names};
use crate::lifecycle::files::{changes, refused, text};

pub(crate) const SUITE: Suite = Suite {
    name: "project",
    covers: &[33],
    attacks: &[],
    scenes: &[
        scene("attacks", attacks),
        scene("other-ways-in", other_ways_in),
        scene("anywhere", anywhere),
        scene("what-it-may-do", what_it_may_do),
        scene("a-new-repository", a_new_repository),
        scene("hidden-repositories", hidden_repositories),
        scene("unreadable-directories", unreadable_directories),
        scene("a-worktree", a_worktree),
        scene("without-a-repository", without_a_repository),
        scene("shared-by-two-cells", shared_by_two_cells),
        scene("after-a-kill", after_a_kill),
        scene("links", links),
        scene("replaced-from-outside", replaced_from_outside),
        scene("chosen-paths", chosen_paths),
        scene("kept-directories", kept_directories),
    ],
    actors: &[],
};

const EVIL: &str = "evil";

/// Names, and what a hostile program does in the project.
const ATTACKS: [(&str, &str); 26] = [
    ("a hook", "echo evil > .git/hooks/pre-commit"),
    ("settings", "echo evil >> .git/config"),
    (
        "settings, replaced",
        "echo evil > new; mv -f new .git/config",
    ),
    (
        "settings, removed",
        "rm -f .git/config; echo evil > .git/config",
    ),
    ("settings of a worktree", "echo evil > .git/config.worktree"),
    ("the place of settings", "echo evil > .git/commondir"),
    (
        "the repository moved away",
        "mv .git away; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit",
    ),
    (
        "hooks moved away",
        "mv .git/hooks away; mkdir .git/hooks; echo evil > .git/hooks/pre-commit",
    ),
    (
        "hooks elsewhere",
        "mkdir h; echo evil > h/pre-commit; rm -rf .git/hooks; ln -sT ../h .git/hooks",
    ),
    ("a hard link", "ln .git/config alias; echo evil >> alias"),
    ("a missing file", "echo evil > .mcp.json"),
    (
        "a missing file, renamed",
        "echo evil > new; rm -rf .mcp.json; mv -T new .mcp.json",
    ),
    (
        "a missing file, linked",
        "echo evil > new; rm -rf .envrc; ln -T new .envrc",
    ),
    (
        "a missing file, a link",
        "echo evil > new; rm -rf .envrc; ln -sT new .envrc",
    ),
    (
        "a missing directory",
        "chmod 777 .idea; mkdir -p .idea; echo evil > .idea/workspace.xml",
    ),
    (
        "a missing directory, renamed",
        "mkdir new; echo evil > new/workspace.xml; rmdir .idea; mv -T new .idea",
    ),
    ("an editor's tasks", "echo evil > .vscode/tasks.json"),
    ("a start file", "echo evil > .bashrc"),
    ("CI", "echo evil > .github/workflows/ci.yml"),
    (
        "CI moved away",
        "mv .github away; mkdir -p .github/workflows; echo evil > .github/workflows/ci.yml",
    ),
    ("CI of another host", "echo evil > .gitlab-ci.yml"),
    ("a repository within", "echo evil >> sub/.git/config"),
    (
        "a repository within, moved away",
        "mv sub away; mkdir -p sub/.git; echo evil > sub/.git/config",
    ),
    ("a bare repository", "echo evil >> bare/config"),
    ("a submodule", "echo evil >> .git/modules/mod/config"),
    (
        "the way to a submodule",
        "rm -f mod/.git; echo evil > mod/.git",
    ),
];

/// What they are after.
const HARMED: [&str; 14] = [
    ".git/hooks/pre-commit",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".mcp.json",
    ".envrc",
    ".idea/workspace.xml",
    ".vscode/tasks.json",
    ".bashrc",
    ".github/workflows/ci.yml",
    ".gitlab-ci.yml",
    "sub/.git/config",
    "bare/config",
    ".git/modules/mod/config",
];

fn is_harmed(project: &Path) -> bool {
    let holds = |path: &str| {
        let content = fs::read_to_string(project.join(path)).unwrap_or_default();
        content.contains(EVIL)
    };
    HARMED.into_iter().chain(["mod/.git"]).any(holds)
}

/// A project with a repository, others in it, and some of what is protected.
fn project(scratch: &Scratch, name: &str) -> Check<PathBuf> {
    let top = scratch.dir(name, 0o777)?;
    for git in [".git", "sub/.git", "bare", ".git/modules/mod"] {
        let git = top.join(git);
        fs::create_dir_all(git.join("objects"))?;
        fs::create_dir_all(git.join("hooks"))?;
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
        fs::write(git.join("config"), "[core]\n")?;
    }
    for (path, content) in [
        ("mod/.git", "gitdir: ../.git/modules/mod\n"),
        (".vscode/tasks.json", "{}"),
        (".github/workflows/ci.yml", "jobs: {}\n"),
        (".github/labels", "labels"),
        ("main.c", "int main() {}\n"),
        ("old.c", ""),
    ] {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&top))?;
        fs::write(path, content)?;
    }
    Ok(top)
}

fn cell<'s>(stage: &'s Stage, project: &Path, script: &str) -> Cell<'s> {
    stage
        .exec(["/bin/sh", "-c", script])
        .rw(project, Path::new("/workspace"))
}

fn agent<'s>(stage: &'s Stage, project: &Path, script: &str) -> Cell<'s> {
    cell(stage, project, script).option(["--policy", "agent"])
}

fn attacks(stage: &Stage) -> Check {
    for (name, script) in ATTACKS {
        let scratch = stage.scratch()?;
        let open = project(&scratch, "open")?;
        cell(stage, &open, script).run()?.ended(Outcome::Ok)?;
        assert!(is_harmed(&open), "{name} does nothing without protection");
        let closed = project(&scratch, "closed")?;
        agent(stage, &closed, script).run()?;
        assert!(!is_harmed(&closed), "{name}");
        // Neither is anything left that stood for a missing path.
        for missing in [".mcp.json", ".envrc", ".idea", ".git/commondir"] {
            assert!(!closed.join(missing).exists(), "{name}: {missing}");
        }
    }
    Ok(())
}

/// By another path that shows the same files.
fn other_ways_in(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = project(&scratch, "project")?;
    let again = ["--workspace-at", "/mnt/data", "--cwd", "/mnt/data"];
    let evil = "echo evil > .git/config; echo evil > .mcp.json; mv .git away; echo x > file";
    let open = project(&scratch, "open")?;
    cell(stage, &open, evil).option(again).run()?;
    assert!(is_harmed(&open), "it does nothing without protection");
    agent(stage, &top, evil)
        .option(again)
        .run()?
        .ended(Outcome::Ok)?;
    assert!(!is_harmed(&top));
    assert_eq!(fs::read_to_string(top.join("file"))?, "x\n");
    agent(stage, &top, &format!("cd /data; {evil}"))
        .rw(&top, Path::new("/data"))
        .run()?
        .ended(Outcome::Ok)?;
    assert!(!is_harmed(&top));
    let above = format!("cd /data/project; {evil}");
    agent(stage, &top, &above)
        .rw(scratch.path(), Path::new("/data"))
        .run()?
        .ended(Outcome::Ok)?;
    assert!(!is_harmed(&top));
    // Of a directory within another one of the same cell, too, nothing is left.
    assert!(!top.join(".circleci").exists());
    Ok(())
}

/// Wherever the project is shown, and also what is shown beside it; but not the home.
fn anywhere(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let evil = "cd /data; echo evil > .git/config; echo evil > .mcp.json; mv .git away";
    let shown = |project: &Path, options: &[&str]| {
        let cell = stage.exec(["/bin/sh", "-c", &format!("{evil}; exit 0")]);
        let cell = cell.rw(project, Path::new("/data"));
        let cell = options.iter().fold(cell, |cell, word| cell.option([*word]));
        cell.run()?.ended(Outcome::Ok)
    };
    let (open, top) = (project(&scratch, "open")?, project(&scratch, "project")?);
    shown(&open, &[])?;
    assert!(is_harmed(&open), "it does nothing without protection");
    shown(&top, &["--policy", "agent"])?;
    assert!(!is_harmed(&top));
    let beside = text(&project(&scratch, "beside")?);
    shown(
        &top,
        &["--policy", "agent", "--rw", &format!("{beside}:/workspace")],
    )?;
    assert!(!is_harmed(&top));
    let home = scratch.dir("home", 0o777)?;
    let script = "echo mine > .bashrc && mkdir .claude && echo {} > .claude/settings.json";
    stage
        .exec(["/bin/sh", "-c", &format!("cd && {script}")])
        .rw(&home, Path::new("/home/agent"))
        .option(["--policy", "agent", "--env", "HOME=/home/agent"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(fs::read_to_string(home.join(".bashrc"))?, "mine\n");
    Ok(())
}

fn what_it_may_do(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = project(&scratch, "project")?;
    let script = "set -e
        echo more >> main.c; rm old.c; mkdir -p src; echo x > src/new.c
        echo ref > .git/HEAD.lock; mv .git/HEAD.lock .git/HEAD
        echo object > .git/objects/x; echo labels > .github/labels
        echo cache > $HOME/.cache";
    let run = agent(stage, &top, script).run()?.ended(Outcome::Ok)?;
    let expected = [
        (".github/labels", Change::Modified),
        ("main.c", Change::Modified),
        ("old.c", Change::Deleted),
        ("src/new.c", Change::Created),
    ];
    assert_eq!(
        changes(&run),
        expected.map(|(path, change)| (path.to_owned(), change))
    );
    let is_about_files = |warning: &&String| warning.contains("/workspace is a bind");
    assert_eq!(run.record.warnings.iter().find(is_about_files), None);
    let created = run
        .record
        .files
        .iter()
        .find(|file| file.path == "src/new.c".into());
    let created = created.ok_or_else(|| fail("not listed"))?;
    assert_eq!((created.size, created.sha256.is_some()), (Some(2), true));
    assert_eq!(fs::read_to_string(top.join(".git/HEAD"))?, "ref\n");
    Ok(())
}

fn warning<'r>(run: &'r Run, part: &str) -> Option<&'r String> {
    run.record.warnings.iter().find(|w| w.contains(part))
}

/// One cannot be kept from being made, since it may have any name; the record names it.
fn a_new_repository(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = project(&scratch, "project")?;
    let script = "mkdir -p new/.git/objects new/.git/hooks && cd new/.git &&
        echo x > HEAD && echo evil > config && echo evil > hooks/post-checkout";
    let run = agent(stage, &top, script).run()?.ended(Outcome::Ok)?;
    let listed: Vec<String> = changes(&run).into_iter().map(|(path, _)| path).collect();
    assert_eq!(listed, ["new/.git/config", "new/.git/hooks/post-checkout"]);
    assert!(
        warning(&run, "new/.git").is_some(),
        "{:?}",
        run.record.warnings
    );
    // From the next run on, it is protected as well.
    let run = agent(stage, &top, "echo more >> new/.git/config").run()?;
    assert_ne!(run.record.outcome, Outcome::Ok);
    assert_eq!(warning(&run, "new/.git"), None);
    Ok(())
}

/// `.git` is a file there.
/// A repository where git keeps its own, and a file that leads to it; and the project itself as a
/// repository.
fn hidden_repositories(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = project(&scratch, "project")?;
    let evil = "mkdir -p .git/objects/evil/objects docs && echo x > .git/objects/evil/HEAD &&
        echo evil > .git/objects/evil/config &&
        echo 'gitdir: ../.git/objects/evil' > docs/.git";
    let run = agent(stage, &top, evil).run()?.ended(Outcome::Ok)?;
    for part in [
        "repository of git, .git/objects/evil",
        "docs/.git, which leads",
    ] {
        assert!(warning(&run, part).is_some(), "{:?}", run.record.warnings);
    }
    let again = "echo more >> .git/objects/evil/config; echo x > docs/.git; exit 0";
    let run = agent(stage, &top, again).run()?.ended(Outcome::Ok)?;
    let config = fs::read_to_string(top.join(".git/objects/evil/config"))?;
    assert_eq!(config, "evil\n", "{:?}", run.record.warnings);
    assert!(fs::read_to_string(top.join("docs/.git"))?.starts_with("gitdir"));
    let bare = "mkdir objects && echo x > HEAD";
    let run = agent(stage, &top, bare).run()?.ended(Outcome::Ok)?;
    assert!(
        warning(&run, "repository of git, .:").is_some(),
        "{:?}",
        run.record.warnings
    );
    Ok(())
}

/// What its owner can make readable again is not passed over.
fn unreadable_directories(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = project(&scratch, "project")?;
    let script = "mkdir -p build/evil/objects && echo x > build/evil/HEAD && chmod 0311 build";
    let run = agent(stage, &top, script).run()?.ended(Outcome::Ok)?;
    let is_named = |part| warning(&run, part).is_some();
    assert!(
        is_named("build cannot be read any more") || is_named("build/evil"),
        "{:?}",
        run.record.warnings
    );
    let next = agent(stage, &top, "exit 0").run()?;
    // Root reads all directories.
    if is_named("build cannot be read any more") {
        let (error, hint) = refused(next)?;
        assert!(
            error.contains("build") && hint.contains("chmod"),
            "{error}: {hint}"
        );
    }
    fs::set_permissions(top.join("build"), fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn a_worktree(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = scratch.dir("project", 0o777)?;
    let git = "gitdir: /elsewhere/.git/worktrees/project\n";
    fs::write(top.join(".git"), git)?;
    let script = "echo evil > .git; rm -f .git; mv .git away; mkdir -p .git/hooks";
    agent(stage, &top, script).run()?;
    assert_eq!(fs::read_to_string(top.join(".git"))?, git);
    assert_eq!(names(&top)?, [".git"]);
    Ok(())
}

fn without_a_repository(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = scratch.dir("project", 0o777)?;
    let script = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo x > file";
    agent(stage, &top, script).run()?.ended(Outcome::Ok)?;
    assert_eq!(names(&top)?, ["file"]);
    Ok(())
}

fn shared_by_two_cells(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = project(&scratch, "project")?;
    let script = "touch began; until [ -e go ]; do sleep 0.05; done; echo evil > .mcp.json; exit 0";
    let mut first = agent(stage, &top, script).spawn()?;
    first.until_exists(&top.join("began"), stage.patience())?;
    agent(stage, &top, "true").run()?.ended(Outcome::Ok)?;
    assert!(top.join(".mcp.json").is_dir(), "the first cell needs it");
    fs::write(top.join("go"), "")?;
    Run::of(first.until_end(stage.patience())?)?.ended(Outcome::Ok)?;
    assert!(!is_harmed(&top));
    assert!(!top.join(".mcp.json").exists());
    Ok(())
}

fn after_a_kill(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let with = project(&scratch, "with-a-repository")?;
    let without = scratch.dir("without", 0o777)?;
    for top in [with, without] {
        let before = names(&top)?;
        let mut killed = agent(stage, &top, "touch began; sleep 1000").spawn()?;
        killed.until_exists(&top.join("began"), stage.patience())?;
        killed.signal(Signal::SIGKILL)?;
        killed.until_end(stage.patience())?;
        assert!(top.join(".mcp.json").is_dir());
        let script = "rm began; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; exit 0";
        agent(stage, &top, script).run()?.ended(Outcome::Ok)?;
        assert!(!is_harmed(&top));
        assert_eq!(names(&top)?, before);
        assert!(!top.join(".git/commondir").exists());
    }
    Ok(())
}

/// A link cannot be covered, and what it leads to may be anywhere.
fn links(stage: &Stage) -> Check {
    for link in [".envrc", ".github"] {
        let scratch = stage.scratch()?;
        let top = project(&scratch, "project")?;
        let _ = fs::remove_dir_all(top.join(link));
        symlink("main.c", top.join(link))?;
        let (error, hint) = refused(agent(stage, &top, "true").run()?)?;
        assert!(error.contains(link), "{error}");
        assert!(hint.contains("--unprotect"), "{hint}");
        assert!(!top.join(".mcp.json").exists());
        let unprotected = match link {
            ".github" => [".github/workflows", ".github/actions"],
            link => [link, link],
        };
        unprotected
            .into_iter()
            .fold(agent(stage, &top, "true"), |cell, path| {
                cell.option(["--unprotect", path])
            })
            .run()?
            .ended(Outcome::Ok)?;
    }
    Ok(())
}

/// The kernel takes a mount away where its mount point is replaced in another namespace.
fn replaced_from_outside(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = project(&scratch, "project")?;
    let script = "touch began; until [ -e go ]; do sleep 0.05; done; exit 0";
    let mut run = agent(stage, &top, script).spawn()?;
    run.until_exists(&top.join("began"), stage.patience())?;
    fs::write(top.join("new"), "[core]\n")?;
    fs::rename(top.join("new"), top.join(".git/config"))?;
    // As git clean does with an empty directory, and the program then with what is missing.
    fs::remove_dir(top.join(".circleci"))?;
    fs::create_dir(top.join(".circleci"))?;
    fs::write(top.join("go"), "")?;
    let run = Run::of(run.until_end(stage.patience())?)?.ended(Outcome::Ok)?;
    for path in [".git/config", ".circleci"] {
        let changed = format!("{path} is protected and was changed from outside");
        assert!(
            warning(&run, &changed).is_some(),
            "{:?}",
            run.record.warnings
        );
    }
    Ok(())
}

fn chosen_paths(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = project(&scratch, "project")?;
    let write = "echo evil > Makefile; echo evil > .bashrc; exit 0";
    let options = ["--protect", "Makefile", "--unprotect", ".bashrc"];
    agent(stage, &top, write)
        .option(options)
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(fs::read_to_string(top.join(".bashrc"))?, "evil\n");
    assert!(!top.join("Makefile").exists());
    // By another way in, and without the profile.
    let other = project(&scratch, "other")?;
    stage
        .exec(["/bin/sh", "-c", "echo evil > /data/main.c; exit 0"])
        .rw(&other, Path::new("/data"))
        .option(["--protect", "/data/main.c"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(fs::read_to_string(other.join("main.c"))?, "int main() {}\n");
    let itself = stage
        .exec(["/bin/true"])
        .rw(&other, Path::new("/data"))
        .option(["--protect", "/data"]);
    let (error, hint) = refused(itself.run()?)?;
    assert!(
        error.contains("--protect /data") && hint.contains("--ro"),
        "{error}: {hint}"
    );
    Ok(())
}

fn kept_directories(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = text(&scratch.dir("kept", 0o777)?);
    let cell = stage
        .exec(["/bin/true"])
        .option(["--policy", "agent", "--workspace", &kept]);
    let (error, hint) = refused(cell.run()?)?;
    assert!(error.contains("--workspace writes back"), "{error}");
    assert!(hint.contains("--rw"), "{hint}");
    Ok(())
}
