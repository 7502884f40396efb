//! What Cargo cannot enforce between crates: `unsafe` stays where it belongs, and so does what runs
//! inside of a cell.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates that have `unsafe`: system calls; the clone, and what runs inside of a cell. All
/// others forbid it.
const UNSAFE: &[&str] = &["jail", "sys"];

/// The crates that `jail::child` uses: what runs inside knows the prepared plan and the types that
/// it is made of, and not what started it.
const INSIDE: &[&str] = &[
    "hosts",
    "languages",
    "plan",
    "record",
    "spec",
    "sys",
    "workspace",
];

type Checked = Result<(), Box<dyn Error>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folders in `crates/`, by name.
fn crates() -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        found.push(entry?.file_name().to_string_lossy().into_owned());
    }
    assert!(found.len() > 15, "{found:?}");
    Ok(found)
}

/// The Rust files beneath a directory.
fn sources(top: PathBuf) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let (mut found, mut todo) = (Vec::new(), vec![top]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty());
    Ok(found)
}

fn without_comments(text: &str) -> String {
    let code = |line: &str| line.split("//").next().unwrap_or("").to_owned();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// The first name of each path in `code`, such as `plan` of `plan::Plan`; of one that begins with
/// `crate`, the second one after it.
fn used(code: &str) -> Vec<(String, bool)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (end, _) in code.match_indices("::") {
        let before = &code[..end];
        let name = before.rsplit(|c| !is_name(c)).next().unwrap_or_default();
        let rest = &before[..before.len() - name.len()];
        match rest.strip_suffix("crate::") {
            Some(_) => found.push((name.to_owned(), true)),
            None if !rest.ends_with(':') => found.push((name.to_owned(), false)),
            None => {}
        }
    }
    found
}

#[test]
fn all_crates_but_two_forbid_unsafe() -> Checked {
    let mut files = vec![
        "src/lib.rs".to_owned(),
        "rootfs-builder/src/lib.rs".to_owned(),
    ];
    for name in crates()? {
        if !UNSAFE.contains(&name.as_str()) {
            files.push(format!("crates/{name}/src/lib.rs"));
        }
    }
    for file in files {
        let text = fs::read_to_string(root().join(&file))?;
        assert!(text.contains("#![forbid(unsafe_code)]"), "{file}");
    }
    Ok(())
}

#[test]
fn what_runs_inside_knows_nothing_of_what_started_it() -> Checked {
    let crates = crates()?;
    let mut wrong = Vec::new();
    for path in sources(root().join("crates/jail/src/child"))? {
        let code = without_comments(&fs::read_to_string(&path)?);
        for (name, is_own) in used(&code) {
            let is_outside = match is_own {
                true => name != "child",
                false => crates.contains(&name) && !INSIDE.contains(&name.as_str()),
            };
            if is_outside {
                wrong.push(format!("{}: `{name}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn uses_are_found() {
    let code = "use crate::one::Two;\nuse plan::{Plan, x::Y};\nfn f() { spec::nine::g() }";
    let expected = [
        ("crate", false),
        ("one", true),
        ("plan", false),
        ("x", false),
        ("spec", false),
    ];
    let expected = expected.map(|(name, is_own)| (name.to_owned(), is_own));
    assert_eq!(used(code), expected);
}

/// Doors and the protocol know of no cell.
#[test]
fn doors_depend_on_the_protocol_alone() -> Checked {
    let all = crates()?;
    for (name, wanted) in [
        ("doors", &["record", "sys", "wire"][..]),
        ("wire", &["record"]),
    ] {
        let text = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml"))?;
        let after = text.split("[dependencies]\n").nth(1).unwrap_or_default();
        let lines = after.lines().take_while(|line| !line.starts_with('['));
        let own: Vec<&str> = lines
            .filter_map(|line| line.split(['.', ' ']).next())
            .filter(|name| all.iter().any(|other| other == name))
            .collect();
        assert_eq!(own, wanted, "{name}");
    }
    Ok(())
}

/// A link gets lost where the tree travels as plain files.
#[test]
fn no_source_is_a_symbolic_link() -> Checked {
    let mut todo = vec![Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            assert!(!kind.is_symlink(), "{}: a link", entry.path().display());
            let name = entry.file_name();
            if kind.is_dir() && name != "target" && name != ".git" {
                todo.push(entry.path());
            }
        }
    }
    Ok(())
}

/// What reads or makes parsed values, or keeps them for a while before their type is known: they take
/// up to ninety times their text, and clippy.toml cannot name these where JsonSchema's derive uses
/// them.
const VALUES: &[&str] = &["json!(", "to_value(", "from_value("];
/// Buffers of serde, where the derive before has Deserialize.
const BUFFERS: &[&str] = &["serde(flatten", "untagged"];
/// Where these are: schemas of the program itself; ids and numbers, which are short.
const WITHOUT_BOMBS: &[&str] = &[
    "doors/src/mcp/tools/forms.rs",
    "doors/src/v1/openapi.rs",
    "record/src/document/measures.rs",
    "record/src/json.rs",
    "wire/src/answer.rs",
    "wire/src/call.rs",
];

/// The code of a file before its tests.
fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next();
    without_comments(code.unwrap_or_default())
}

#[test]
fn what_a_client_or_a_cell_says_stays_text() -> Checked {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut todo: Vec<PathBuf> = ["doors", "record", "serve", "wire"]
        .map(|name| root.join(name).join("src"))
        .into();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                todo.push(entry?.path());
            }
            continue;
        }
        let name = path.strip_prefix(&root)?.display().to_string();
        let is_test = ["tests", "fuzz.rs"].iter().any(|part| name.contains(part));
        if is_test || WITHOUT_BOMBS.contains(&name.as_str()) {
            continue;
        }
        seen += 1;
        let mut derived = "";
        let code = without_tests(&fs::read_to_string(&path)?);
        for line in code.lines() {
            if line.contains("#[derive(") {
                derived = line;
            }
            let has = |marks: &[&str]| marks.iter().any(|mark| line.contains(mark));
            if has(VALUES) || (has(BUFFERS) && derived.contains("Deserialize")) {
                wrong.push(format!("{name}: {}", line.trim()));
            }
        }
    }
    assert!(seen > 100, "{seen}");
    assert_eq!(wrong, [""; 0]);
    Ok(())
}
