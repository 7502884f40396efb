//! Dependencies point down the flow, and `unsafe` stays where it belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of crates/cell from the bottom up: each may use those before it. Cargo
/// keeps the order between crates. A new module gets its line where the flow has it.
const FLOW: &[&str] = &[
    "drivers",
    "spec",
    "probe",
    "rootfs",
    "plan",
    "workspace",
    "carry",
    "hints",
    "child",
    "launch",
    "supervise",
    "run",
    "context",
    "server",
    "doctor",
];

/// All that these may use, whatever stands below them.
const CONFINED: &[(&str, &[&str])] = &[
    // The table of languages, from which specs and plans derive what they need.
    ("drivers", &[]),
    ("spec", &["drivers"]),
    ("workspace", &["plan", "spec"]),
    // It knows processes, not cells.
    ("carry", &[]),
    // What runs inside knows the prepared plan and the types that it is made of.
    ("child", &["drivers", "plan", "rootfs", "spec", "workspace"]),
    // A plan is pure: it holds facts about the host, and asks for none.
    ("plan", &["drivers", "probe", "rootfs", "spec"]),
];

/// Where `unsafe` may stand in crates/cell: inside a cell, and at the one call that
/// clones. Besides that, only crates/sys has any: all other crates forbid it.
const UNSAFE: &[&str] = &["child", "launch"];

type Checked = Result<(), Box<dyn Error>>;

struct Source {
    module: String,
    path: PathBuf,
    /// Without comments.
    code: String,
}

fn sources() -> Result<Vec<Source>, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/cell/src");
    let mut found = Vec::new();
    let mut todo = vec![root.clone()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(&root)?.with_extension("");
                let module = inside.components().next().ok_or("no name")?;
                found.push(Source {
                    module: module.as_os_str().to_string_lossy().into_owned(),
                    code: without_comments(&fs::read_to_string(&path)?),
                    path,
                });
            }
        }
    }
    Ok(found)
}

fn without_comments(text: &str) -> String {
    let code = |line: &str| line.split("//").next().unwrap_or("").to_owned();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// The crate's modules that `code` names: `crate::one::…` and `crate::{one, two}`.
fn used(code: &str) -> BTreeSet<String> {
    let root = "crate::";
    let mut found = BTreeSet::new();
    for (start, _) in code.match_indices(root) {
        let rest = &code[start + root.len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(names_in_group(group)),
            None => found.extend(first_name(rest)),
        }
    }
    found.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    found
}

fn first_name(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

fn names_in_group(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut items = vec![String::new()];
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => items.push(String::new()),
            _ => {}
        }
        if let Some(item) = items.last_mut()
            && (c != ',' || depth > 0)
        {
            item.push(c);
        }
    }
    items
        .iter()
        .filter_map(|item| first_name(item.trim()))
        .collect()
}

#[test]
fn dependencies_point_down_the_flow() -> Checked {
    let rank: BTreeMap<&str, usize> = FLOW.iter().copied().zip(0..).collect();
    let confined: BTreeMap<&str, &[&str]> = CONFINED.iter().copied().collect();
    let mut wrong = Vec::new();
    for source in sources()? {
        let module = source.module.as_str();
        if module == "lib" {
            continue;
        }
        let Some(own) = rank.get(module) else {
            wrong.push(format!(
                "{}: `{module}` has no place in FLOW",
                source.path.display()
            ));
            continue;
        };
        for name in used(&source.code) {
            let allowed = name == module
                || match confined.get(module) {
                    Some(names) => names.contains(&name.as_str()),
                    None => rank.get(name.as_str()).is_some_and(|other| other < own),
                };
            if !allowed {
                wrong.push(format!(
                    "{}: `{module}` uses `{name}`",
                    source.path.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn unsafe_stays_where_it_belongs() -> Checked {
    for source in sources()? {
        let has = source
            .code
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .any(|word| word == "unsafe");
        let may = UNSAFE.contains(&source.module.as_str());
        assert!(may || !has, "{}: unsafe", source.path.display());
    }
    Ok(())
}

#[test]
fn other_crates_forbid_unsafe() -> Checked {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in [
        "src/lib.rs",
        "crates/archive/src/lib.rs",
        "crates/doors/src/lib.rs",
        "crates/record/src/lib.rs",
        "crates/serve/src/lib.rs",
        "crates/wire/src/lib.rs",
        "rootfs-builder/src/lib.rs",
    ] {
        let text = fs::read_to_string(root.join(file))?;
        assert!(text.contains("#![forbid(unsafe_code)]"), "{file}");
    }
    Ok(())
}

/// Doors and the protocol know of no cell.
#[test]
fn doors_depend_on_the_protocol_alone() -> Checked {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(&root)? {
        all.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    for (name, wanted) in [
        ("doors", &["record", "sys", "wire"][..]),
        ("wire", &["record"]),
    ] {
        let text = fs::read_to_string(root.join(name).join("Cargo.toml"))?;
        let after = text.split("[dependencies]\n").nth(1).unwrap_or_default();
        let lines = after.lines().take_while(|line| !line.starts_with('['));
        let own: Vec<&str> = lines
            .filter_map(|line| line.split(['.', ' ']).next())
            .filter(|name| all.contains(*name))
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

#[test]
fn the_flow_names_what_is_there() -> Checked {
    let there: BTreeSet<String> = sources()?.into_iter().map(|source| source.module).collect();
    for module in FLOW {
        assert!(
            there.contains(*module),
            "FLOW has `{module}`, which is not in crates/cell/src"
        );
    }
    Ok(())
}

#[test]
fn uses_are_found() {
    let code = "use crate::one::Two;\nuse crate::{three, four::{Five, six}, seven as eight};\nfn f() { crate::nine::g() }";
    let found: Vec<String> = used(code).into_iter().collect();
    assert_eq!(found, ["four", "nine", "one", "seven", "three"]);
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
