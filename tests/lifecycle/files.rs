//! Trees that are copied in, and contents that the record holds.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use record::{Change, FileChange};

use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::scratch::{Scratch, chmod, names};

pub(crate) const SUITE: Suite = Suite {
    name: "files",
    covers: &[33, 34],
    attacks: &[],
    scenes: &[
        python_scene("from-a-directory", from_a_directory),
        python_scene("from-an-archive", from_an_archive),
        python_scene("from-standard-input", from_standard_input),
        python_scene("hostile-archive", hostile_archive),
        python_scene("too-much", too_much),
        python_scene("thousands", thousands),
        python_scene("wrong-values", wrong_values),
        python_scene("inline", inline),
        python_scene("inline-in-the-spec", inline_in_the_spec),
    ],
    actors: &[],
};

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(crate) fn changes(run: &Run) -> Vec<(String, Change)> {
    let all = run.record.files.iter();
    all.map(|file| (file.path.to_string(), file.change))
        .collect()
}

pub(super) fn changed(pairs: &[(&str, Change)]) -> Vec<(String, Change)> {
    pairs
        .iter()
        .map(|(path, change)| ((*path).into(), *change))
        .collect()
}

/// A tree with a file of each sort, and its directory's name.
pub(super) fn tree(scratch: &Scratch) -> Check<PathBuf> {
    let top = scratch.dir("tree", 0o755)?;
    fs::create_dir_all(top.join("sub/empty"))?;
    fs::write(top.join("same"), "same")?;
    fs::write(top.join("changes"), "before")?;
    fs::write(top.join("goes"), "before")?;
    fs::write(top.join("sub/tool"), "#!/bin/sh\necho works\n")?;
    chmod(&top.join("sub/tool"), 0o6755)?;
    symlink("sub/tool", top.join("link"))?;
    symlink("/etc/passwd", top.join("passwd"))?;
    nix::unistd::mkfifo(&top.join("pipe"), nix::sys::stat::Mode::S_IRWXU)?;
    Ok(top)
}

const USE_THE_TREE: &str = r#"
import os, stat, subprocess
print(sorted(os.listdir('.')), os.listdir('sub/empty'), os.readlink('link'))
print(oct(stat.S_IMODE(os.stat('sub/tool').st_mode)))
print(subprocess.run(['./link'], capture_output=True, text=True).stdout, end='')
open('changes', 'w').write('behind')
os.remove('goes')
open('sub/new', 'w').write('new')
"#;

const SHOWN: &str = "['changes', 'goes', 'link', 'same', 'sub'] [] sub/tool\n0o755\nworks\n";

fn used(run: Run) -> Check<Run> {
    let run = run.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), SHOWN);
    assert_eq!(
        changes(&run),
        changed(&[
            ("changes", Change::Modified),
            ("goes", Change::Deleted),
            ("sub/new", Change::Created),
        ])
    );
    assert_eq!(run.record.files_skipped, []);
    let mut warnings: Vec<&String> = (run.record.warnings.iter())
        .filter(|warning| warning.starts_with("--files-from"))
        .collect();
    warnings.sort();
    assert_eq!(
        warnings,
        [
            "--files-from: passwd is left out: it is a link to an absolute path",
            "--files-from: pipe is left out: it is a named pipe",
        ]
    );
    Ok(run)
}

fn from_a_directory(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let tree = tree(&scratch)?;
    used(
        stage
            .python(USE_THE_TREE)
            .option(["--files-from", &text(&tree)])
            .run()?,
    )?;
    // The cell changed its own copy.
    assert_eq!(fs::read_to_string(tree.join("changes"))?, "before");
    // Files in the cell are no hard links to the host's files.
    let spec = scratch.file("spec.toml", format!("files_from = {:?}", text(&tree)))?;
    used(
        stage
            .python(USE_THE_TREE)
            .option(["--spec", &text(&spec)])
            .run()?,
    )?;
    Ok(())
}

/// The tree as an archive, by the tar crate: no tar(1) is needed.
fn packed(tree: &Path) -> Check<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    for name in ["sub", "sub/empty"] {
        builder.append_dir(name, tree.join(name))?;
    }
    for name in ["same", "changes", "goes", "sub/tool", "link"] {
        builder.append_path_with_name(tree.join(name), name)?;
    }
    raw_entry(
        &mut builder,
        "passwd",
        tar::EntryType::Symlink,
        "/etc/passwd",
    )?;
    raw_entry(&mut builder, "pipe", tar::EntryType::Fifo, "")?;
    Ok(builder.into_inner()?)
}

fn gzipped(bytes: &[u8]) -> Check<Vec<u8>> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn from_an_archive(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let plain = packed(&tree(&scratch)?)?;
    for (name, bytes) in [("a.tar", plain.clone()), ("a.tgz", gzipped(&plain)?)] {
        let path = scratch.file(name, bytes)?;
        used(
            stage
                .python(USE_THE_TREE)
                .option(["--files-from", &text(&path)])
                .run()?,
        )?;
    }
    Ok(())
}

fn from_standard_input(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let bytes = packed(&tree(&scratch)?)?;
    let code = scratch.file(
        "code.py",
        format!("{USE_THE_TREE}\nimport sys; assert not sys.stdin.read()"),
    )?;
    let code = text(&code);
    let run = stage
        .exec(["/usr/bin/env", "python3", "-c", &fs::read_to_string(code)?])
        .option(["--files-from", "-"])
        .stdin(bytes)
        .run()?;
    used(run)?;
    let run = stage.python("1").option(["--files-from", "-"]).run()?;
    let error = run.record.setup_error.ok_or_else(|| fail("it ran"))?;
    assert_eq!(
        error.to_string(),
        "read the request: standard input: the code (`-`) and the files (`files_from = \"-\"`, \
         --files-from -) both read standard input, but only one can"
    );
    Ok(())
}

fn raw_entry(
    builder: &mut tar::Builder<Vec<u8>>,
    name: &str,
    kind: tar::EntryType,
    link: &str,
) -> Check {
    let mut header = tar::Header::new_ustar();
    let bytes = header.as_mut_bytes();
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o4777);
    let content: &[u8] = if kind.is_file() { b"planted" } else { b"" };
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content)?;
    Ok(())
}

fn hostile_archive(stage: &Stage) -> Check {
    use tar::EntryType::{Char, Link, Regular, Symlink};
    let scratch = stage.scratch()?;
    let outside = scratch.dir("outside", 0o777)?;
    let mut builder = tar::Builder::new(Vec::new());
    let up = format!("{}{}", "../".repeat(20), &text(&outside)[1..]);
    for (name, kind, link) in [
        ("../planted", Regular, ""),
        (&*format!("{up}/planted"), Regular, ""),
        ("way", Symlink, &*text(&outside)),
        ("climb", Symlink, &up),
        ("self", Symlink, "/proc/self/root"),
        ("inner", Symlink, "."),
        ("inner/planted", Regular, ""),
        ("alias", Link, "/etc/passwd"),
        ("null", Char, ""),
        ("plain", Regular, ""),
    ] {
        raw_entry(&mut builder, name, kind, link)?;
    }
    let path = scratch.file("hostile.tar", builder.into_inner()?)?;
    let run = stage
        .python("import os\nprint(sorted(os.listdir('.')), oct(os.stat('plain').st_mode))")
        .option(["--files-from", &text(&path)])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "['inner', 'plain'] 0o100777\n");
    let left_out = run
        .record
        .warnings
        .iter()
        .filter(|w| w.contains("is left out"));
    assert_eq!(left_out.count(), 8, "{:?}", run.record.warnings);
    assert_eq!(names(&outside)?, [""; 0]);
    Ok(())
}

/// The error of a run that was not started.
pub(crate) fn refused(run: Run) -> Check<(String, String)> {
    let run = run.ended(Outcome::Setup)?;
    assert_eq!(run.record.exit_code, 125);
    let error = run.record.setup_error.ok_or_else(|| fail("no error"))?;
    let hint = error.hint.clone().unwrap_or_default();
    Ok((error.to_string(), hint))
}

fn too_much(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let tree = scratch.dir("tree", 0o755)?;
    fs::write(tree.join("large"), vec![1; 2 << 20])?;
    let (error, hint) = refused(
        stage
            .exec(["/bin/true"])
            .option(["--files-from", &text(&tree)])
            .limit("workspace-size", "1M")
            .run()?,
    )?;
    assert!(
        error.ends_with("the files put in take 2097152 bytes, but /workspace has room for 1M"),
        "{error}"
    );
    assert!(hint.starts_with("raise --workspace-size"), "{hint}");
    // Within the limit when bytes are counted, beyond it when pages are.
    fs::write(tree.join("large"), vec![1; 1 << 20])?;
    fs::write(tree.join("small"), "x")?;
    let (error, _) = refused(
        stage
            .exec(["/bin/true"])
            .option(["--files-from", &text(&tree)])
            .limit("workspace-size", "1028K")
            .run()
            .and_then(|run| run.ended(Outcome::Ok))
            .and_then(|_| {
                stage
                    .exec(["/bin/true"])
                    .option(["--files-from", &text(&tree)])
                    .limit("workspace-size", "1025K")
                    .run()
            })?,
    )?;
    assert!(
        error.contains("the files put in take 1052672 bytes"),
        "{error}"
    );
    let many = scratch.dir("many", 0o755)?;
    for number in 0..20 {
        fs::write(many.join(number.to_string()), "")?;
    }
    let spec = scratch.file("spec.toml", "limits.workspace.inodes = 20")?;
    let (error, hint) = refused(
        stage
            .exec(["/bin/true"])
            .option(["--spec", &text(&spec), "--files-from", &text(&many)])
            .run()?,
    )?;
    assert!(
        error.contains("more files and directories are put in than the 20"),
        "{error}"
    );
    assert!(hint.contains("limits.workspace.inodes"), "{hint}");
    Ok(())
}

fn thousands(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let tree = scratch.dir("tree", 0o755)?;
    for number in 0..1500 {
        let dir = tree.join(format!("{}", number % 30));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("{number}")), format!("{number}"))?;
    }
    let kept = scratch.join("kept");
    let options = ["--files-from", &text(&tree), "--workspace", &text(&kept)];
    let run = stage
        .python("import os\nprint(sum(len(f) for _, _, f in os.walk('.')))")
        .option(options)
        // This depends on the speed of the file system that the tests are on.
        .deadline(60_000)
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "1500\n");
    assert_eq!(run.record.files, []);
    let mut files = 0;
    for dir in names(&kept)? {
        files += names(&kept.join(dir))?.len();
    }
    assert_eq!(files, 1500);
    Ok(())
}

fn wrong_values(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let text_file = scratch.file("no.tar", "x".repeat(2000))?;
    let zip = scratch.file("a.zip", "PK\x03\x04 and so on")?;
    let missing = scratch.join("missing");
    for (option, value, wanted) in [
        ("--files-from", text(&missing), "ENOENT"),
        (
            "--files-from",
            "/dev/null".to_owned(),
            "neither a directory nor a file",
        ),
        (
            "--files-from",
            text(&text_file),
            "the archive cannot be read",
        ),
        (
            "--files-from",
            text(&zip),
            "it is zip; tar archives may be plain, or in gzip or zstd",
        ),
        ("--workspace", text(&text_file), "EEXIST"),
        ("--workspace", "/proc/none".to_owned(), "/proc/none"),
        (
            "--inline-files=2G",
            String::new(),
            "is 2G, but wants at most 1G",
        ),
    ] {
        let cell = stage.exec(["/bin/true"]);
        let cell = match value.is_empty() && option.contains('=') {
            true => cell.option([option]),
            false => cell.option([option, &value]),
        };
        let (error, _) = refused(cell.run()?)?;
        assert!(error.contains(wanted), "{option} {value}: {error}");
    }
    for (spec, wanted) in [
        (
            "workspace = ''",
            "workspace: is empty or holds a NUL byte, but wants a path",
        ),
        (
            "files_from = ''",
            "files_from: is empty or holds a NUL byte, but wants a path",
        ),
        ("files_from = 3", "files_from: is 3, but wants text"),
        ("inline_files = '1Q'", "inline_files: "),
        (
            "inline_files = '2G'",
            "inline_files: is 2G, but wants at most 1G",
        ),
        (
            "inline_file = 1",
            "inline_file: there is no such field; did you mean `inline_files`?",
        ),
    ] {
        let spec = scratch.file("bad.toml", spec)?;
        let run = stage
            .exec(["/bin/true"])
            .option(["--spec", &text(&spec)])
            .run()?;
        let (error, _) = refused(run)?;
        assert!(error.contains(wanted), "{error}");
    }
    let file = scratch.file("f", "x")?;
    for (target, wanted) in [
        ("sub", "a directory of this name is put in"),
        (
            "same/x",
            "its path leads through a file or link that is put in",
        ),
    ] {
        let tree = match scratch.join("tree") {
            tree if tree.exists() => tree,
            _ => tree(&scratch)?,
        };
        let pair = format!("{}:{target}", text(&file));
        let cell = stage.exec(["/bin/true"]);
        let run = cell
            .option(["--files-from", &text(&tree), "--file", &pair])
            .run()?;
        let (error, _) = refused(run)?;
        assert!(error.contains(wanted), "{error}");
    }
    Ok(())
}

const WRITE: &str = r#"
open('a.txt', 'w').write('text é')
open('b.bin', 'wb').write(b'\xff\x00')
open('c.txt', 'w').write('x' * 2000)
"#;

fn held(run: &Run) -> Vec<(String, Option<String>, Option<String>)> {
    let held = |file: &FileChange| {
        let content = file.content.as_ref().map(ToString::to_string);
        let base64 = file.content_base64.as_ref().map(ToString::to_string);
        (file.path.to_string(), content, base64)
    };
    run.record.files.iter().map(held).collect()
}

fn inline(stage: &Stage) -> Check {
    let run = stage.python(WRITE).run()?.ended(Outcome::Ok)?;
    assert!(
        held(&run)
            .iter()
            .all(|(_, text, bytes)| text.is_none() && bytes.is_none())
    );
    assert!(run.record.truncated.is_empty());

    let run = stage
        .python(WRITE)
        .option(["--inline-files"])
        .run()?
        .ended(Outcome::Ok)?;
    let all = [
        ("a.txt".to_owned(), Some("text é".to_owned()), None),
        ("b.bin".to_owned(), None, Some("/wA=".to_owned())),
        ("c.txt".to_owned(), Some("x".repeat(2000)), None),
    ];
    assert_eq!(held(&run), all);
    assert!(run.record.truncated.is_empty());

    let run = stage
        .python(WRITE)
        .option(["--inline-files=1K"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(held(&run)[..2], all[..2]);
    assert_eq!(held(&run)[2], ("c.txt".to_owned(), None, None));
    let cut = &run.record.truncated["inline_files"];
    assert_eq!((cut.total, cut.kept, cut.part.as_str()), (3, 2, "whole"));
    Ok(())
}

fn inline_in_the_spec(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let toml = r#"
inline_files = "1M"
[[files]]
path = "t"
text = "text"
[[files]]
path = "d/b"
base64 = "/wA="
"#;
    let json = r#"{"inline_files": 1048576, "files": [{"path": "t", "text": "text"},
        {"path": "d/b", "base64": "/wA="}]}"#;
    for (name, spec) in [("s.toml", toml), ("s.json", json)] {
        let spec = scratch.file(name, spec)?;
        let run = stage
            .python("print(open('t').read(), open('d/b', 'rb').read())\nopen('t', 'a').write('+')")
            .option(["--spec", &text(&spec)])
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "text b'\\xff\\x00'\n");
        assert_eq!(
            held(&run),
            [("t".to_owned(), Some("text+".to_owned()), None)]
        );
        assert_eq!(changes(&run), changed(&[("t", Change::Modified)]));
    }
    for (file, wanted) in [
        (
            r#"{"path": "x", "base64": "?"}"#,
            "files[0].base64: is not base64: invalid symbol 63, offset 0",
        ),
        (
            r#"{"path": "x", "base64": "YQ"}"#,
            "files[0].base64: is not base64: invalid padding",
        ),
        (
            r#"{"path": "x"}"#,
            "files[0]: wants exactly one of text, base64 and source",
        ),
        (
            r#"{"path": "x", "text": "", "base64": ""}"#,
            "files[0]: wants exactly one of text, base64 and source",
        ),
        (
            r#"{"path": "../x", "text": ""}"#,
            "files[0].path: is `../x`, but wants a path relative to /workspace",
        ),
        (
            r#"{"path": "x", "text": 1}"#,
            "files[0].text: is 1, but wants text",
        ),
        (r#"{"text": "x"}"#, "files[0].path: is missing"),
    ] {
        let spec = scratch.file("bad.json", format!("{{\"files\": [{file}]}}"))?;
        let run = stage
            .exec(["/bin/true"])
            .option(["--spec", &text(&spec)])
            .run()?;
        let (error, _) = refused(run)?;
        assert!(error.contains(wanted), "{error}");
    }
    Ok(())
}
