//! `cellblock policy`: the profiles and system call policies there are, what
//! they say, and whether one of the caller's own is sound.

use std::fmt::{Display, Write as _};
use std::path::Path;

use serde::Serialize;
use toml::{Table, Value};

use crate::cli::PolicyAction;
use plan::seccomp::{self, Held, Policy, Rule};
use record::error::{Result, SetupError, Step};
use record::terminal;
use spec::load::read_text;
use spec::partial::Partial;
use spec::profiles::{self, built_in};
use spec::read::{Format, parse_all, quoted_key};
use spec::resolve::{Origin, SpecLayer};

/// Exit status of `policy check` when something is wrong.
const UNSOUND: u8 = 1;

/// Executes `cellblock policy`; returns the exit status.
///
/// # Errors
/// An unknown name, a file that cannot be read, or no room for the answer.
#[inline(never)]
pub(super) fn run(action: &PolicyAction) -> Result<u8> {
    let cwd =
        std::env::current_dir().map_err(|error| SetupError::io(Step::Spec, "getcwd", &error))?;
    let (text, status) = match action {
        PolicyAction::List => (list(seccomp::BUILTIN), 0),
        PolicyAction::Show {
            name,
            source,
            seccomp,
        } => {
            let text = match (seccomp, source) {
                (true, _) => show_seccomp(name)?,
                (false, true) => source_of(name, &cwd)?,
                (false, false) => show(name, &cwd)?,
            };
            (text, 0)
        }
        PolicyAction::Check { path } => {
            let problems = check(path, &cwd)?;
            let status = if problems.is_empty() { 0 } else { UNSOUND };
            (report(path, &problems), status)
        }
    };
    super::print(terminal::for_stdout(text).as_bytes())?;
    Ok(status)
}

/// The built-in profiles, and the system call policies given by name and
/// description.
pub(super) fn list(seccomp: &[(&str, &str)]) -> String {
    let profiles: Vec<(&str, String)> = built_in()
        .iter()
        .map(|profile| {
            (
                profile.name,
                profiles::description(profile).unwrap_or_default(),
            )
        })
        .collect();
    let mut text = section("profiles (--policy)", &profiles);
    text.push('\n');
    text + &section("system call policies (--seccomp)", seccomp)
}

fn section(title: &str, entries: &[(&str, impl Display)]) -> String {
    let width = entries.iter().map(|(name, _)| name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = format!("{title}:\n");
    for (name, description) in entries {
        let _ = writeln!(text, "  {name:width$}  {description}");
    }
    text
}

/// A profile with all that it inherits, as TOML, and beside each value the
/// profile that it comes from.
///
/// # Errors
/// An unknown name, or a file that cannot be read or is wrong.
pub(super) fn show(name: &str, cwd: &Path) -> Result<String> {
    let layers = profiles::chain(name, cwd, &read_text)?;
    let mut tables = Vec::new();
    let mut merged = Partial::default();
    for layer in &layers {
        tables.push((&layer.origin, table(&layer.partial)?));
        merged = merged.merge(layer.partial.clone());
    }
    // What is shown is complete, so it builds on nothing more.
    merged.extends = None;
    let mut text = String::new();
    if let Some(top) = layers.last() {
        let bases = layers.iter().rev().skip(1);
        let bases: Vec<String> = bases.map(|layer| layer.origin.to_string()).collect();
        let _ = write!(text, "# {}", whence(&top.origin));
        if !bases.is_empty() {
            let _ = write!(text, ", on top of {}", bases.join(", "));
        }
        text.push_str("\n# beside each value: the profile it comes from\n\n");
    }
    write_table(&mut text, &mut Vec::new(), &table(&merged)?, &tables);
    Ok(text)
}

fn whence(origin: &Origin) -> String {
    match origin {
        Origin::BuiltIn(name) => format!("built-in profile {name}"),
        other => format!("profile {other}"),
    }
}

fn table(partial: &Partial) -> Result<Table> {
    Table::try_from(partial).map_err(|error| SetupError::new(Step::Spec, error.to_string()))
}

/// The column of the comments that say where a value comes from.
const COMMENTS: usize = 44;

fn write_table<'a>(
    text: &mut String,
    path: &mut Vec<&'a str>,
    table: &'a Table,
    layers: &[(&Origin, Table)],
) {
    let is_table = |value: &Value| matches!(value, Value::Table(_));
    for (key, value) in table.iter().filter(|(_, value)| !is_table(value)) {
        path.push(key);
        let line = format!("{} = {value}", quoted_key(key));
        let from = layers.iter().rev().find(|(_, table)| has(table, path));
        let from = from.map(|(origin, _)| origin.to_string());
        let _ = writeln!(text, "{line:COMMENTS$} # {}", from.unwrap_or_default());
        path.pop();
    }
    for (key, value) in table {
        if let Value::Table(inner) = value {
            path.push(key);
            let keys: Vec<String> = path.iter().map(|key| quoted_key(key)).collect();
            let _ = writeln!(text, "\n[{}]", keys.join("."));
            write_table(text, path, inner, layers);
            path.pop();
        }
    }
}

fn has(table: &Table, path: &[&str]) -> bool {
    match path {
        [] => false,
        [key] => table.contains_key(*key),
        [key, rest @ ..] => match table.get(*key) {
            Some(Value::Table(inner)) => has(inner, rest),
            _ => false,
        },
    }
}

/// A profile's own file, with its comments.
fn source_of(name: &str, cwd: &Path) -> Result<String> {
    if profiles::is_path(name) {
        return read_text(&cwd.join(name));
    }
    Ok(profiles::find_built_in(name)?.source.to_owned())
}

/// A system call policy with all that it inherits, as JSON that `--seccomp` and `policy check` take.
fn show_seccomp(name: &str) -> Result<String> {
    let policy = match name.contains('/') || name.ends_with(".json") {
        true => Policy::parse(&read_text(Path::new(name))?)?,
        false => Policy::builtin(name)?,
    };
    let document = Document {
        name: &policy.name,
        description: &policy.description,
        rules: groups(&policy),
    };
    let text = serde_json::to_string_pretty(&document);
    let text = text.map_err(|error| SetupError::new(Step::Outputs, error.to_string()))?;
    Ok(text + "\n")
}

#[derive(Serialize)]
struct Document<'a> {
    name: &'a str,
    description: &'a str,
    rules: Vec<Group<'a>>,
}

/// Calls with one rule.
#[derive(Serialize)]
struct Group<'a> {
    #[serde(flatten)]
    rule: &'a Rule,
    #[serde(skip_serializing_if = "Option::is_none")]
    unless: Option<Held>,
    calls: Vec<&'static str>,
}

fn groups(policy: &Policy) -> Vec<Group<'_>> {
    let usual = policy.rules.iter().map(|(call, rule)| (*call, None, rule));
    let fallbacks = policy.fallbacks.iter();
    let fallbacks = fallbacks.map(|(call, (held, rule))| (*call, Some(*held), rule));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (call, unless, rule) in usual.chain(fallbacks) {
        let same = groups
            .iter_mut()
            .find(|group| group.rule == rule && group.unless == unless);
        match same {
            Some(group) => group.calls.push(call),
            None => groups.push(Group {
                rule,
                unless,
                calls: vec![call],
            }),
        }
    }
    groups
}

/// Everything that is wrong with a policy of the caller's: a profile, or a
/// system call policy when its name ends in `.json`.
///
/// # Errors
/// The file cannot be read.
pub(super) fn check(path: &Path, cwd: &Path) -> Result<Vec<SetupError>> {
    let text = read_text(&cwd.join(path))?;
    let origin = Origin::File(path.to_path_buf());
    if path.extension().is_some_and(|ending| ending == "json") {
        if let Some(problem) = spec_instead(path, &text, Format::Json) {
            return Ok(vec![problem]);
        }
        let problem = Policy::parse(&text).err().into_iter();
        return Ok(problem.map(|e| profiles::located(e, &origin)).collect());
    }
    let (partial, mut problems) = profiles::check(&text, &origin);
    let mut layer = SpecLayer { origin, partial };
    layer.partial.root_at(cwd);
    problems.extend(layer.faults());
    if let Some(base) = layer.partial.extends.clone() {
        let own = cwd.join(path);
        let folder = own.parent().unwrap_or(cwd);
        let problem = profiles::chain(&base, folder, &read_text).err();
        problems.extend(problem.map(|error| layer.origin.extends_error(error)));
    }
    problems.extend(unknown_seccomp(&layer));
    // With nothing else wrong, it is meant as it is.
    if problems.len() == layer.partial.call_fields().count()
        && let Some(problem) = spec_instead(path, &text, Format::Toml)
    {
        return Ok(vec![problem]);
    }
    Ok(problems)
}

/// The problem with a file that is neither a profile nor a system call policy, but says what to run.
fn spec_instead(path: &Path, text: &str, format: Format) -> Option<SetupError> {
    let (partial, _) = parse_all(text, format);
    let of_a_call = ["argv", "code", "code_file"];
    let field = partial
        .call_fields()
        .find(|field| of_a_call.contains(field))?;
    let message = format!("is a spec file, not a policy: its `{field}` is of one call");
    let hint = format!(
        "`cellblock plan run --spec {path}`, or `plan exec`, checks it and shows what it does",
        path = path.display()
    );
    let error = SetupError::new(Step::Spec, message).on(path.display());
    Some(error.hint(hint))
}

/// The problem with a system call policy that a profile names.
fn unknown_seccomp(layer: &SpecLayer) -> Option<SetupError> {
    let name = layer.partial.seccomp.as_deref()?;
    if name.contains('/') || name.ends_with(".json") {
        return None;
    }
    let mut error = Policy::builtin(name).err()?;
    error.operand = Some(layer.origin.field("seccomp"));
    Some(error)
}

fn report(path: &Path, problems: &[SetupError]) -> String {
    if problems.is_empty() {
        return format!("{}: sound\n", path.display());
    }
    let mut text = String::new();
    for problem in problems {
        let operand = problem.operand.as_deref().unwrap_or_default();
        let _ = writeln!(text, "{operand}: {}", problem.message);
        if let Some(hint) = &problem.hint {
            let _ = writeln!(text, "  hint: {hint}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_every_policy() {
        let text = list(&[("default", "most programs"), ("x", "few")]);
        let (profiles, seccomp) = text.split_once("\n\n").unwrap();
        let lines: Vec<&str> = profiles.lines().collect();
        assert_eq!(lines[0], "profiles (--policy):");
        for (line, profile) in lines[1..].iter().zip(built_in()) {
            let (name, description) = line.trim_start().split_once(' ').unwrap();
            assert_eq!(name, profile.name);
            let description = Some(description.trim_start().to_owned());
            assert_eq!(description, profiles::description(profile));
        }
        assert_eq!(lines.len(), 1 + built_in().len());
        assert_eq!(
            seccomp,
            "system call policies (--seccomp):\n  \
               default  most programs\n  \
               x        few\n"
        );
    }

    #[test]
    fn a_profile_is_shown_complete_with_the_origin_of_each_value() {
        let text = show("shell", Path::new("/")).unwrap();
        let first: Vec<&str> = text.lines().take(2).collect();
        assert_eq!(
            first,
            [
                "# built-in profile shell, on top of default",
                "# beside each value: the profile it comes from",
            ]
        );
        let line = |wanted: &str| {
            let line = text.lines().find(|line| line.starts_with(wanted));
            line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(line("memory").unwrap(), "memory = \"256M\" # shell");
        assert_eq!(line("wall").unwrap(), "wall = \"30s\" # default");
    }

    #[test]
    fn what_is_shown_is_a_profile_that_means_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for profile in built_in() {
            let shown = show(profile.name, folder.path()).unwrap();
            let copy = folder.path().join("copy.toml");
            std::fs::write(&copy, &shown).unwrap();
            assert_eq!(check(&copy, folder.path()).unwrap(), [], "{shown}");
            let values = |text: &str| {
                let values = text.lines().map(|line| line.split(" # ").next());
                let values = values.map(|line| line.unwrap_or_default().trim().to_owned());
                values
                    .filter(|line| !line.starts_with('#'))
                    .collect::<Vec<_>>()
            };
            let again = show(&copy.to_string_lossy(), folder.path()).unwrap();
            assert_eq!(values(&again), values(&shown));
        }
    }

    /// What a check of a file with this name and text reports.
    fn checked(name: &str, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        let problems = check(Path::new(name), folder.path()).unwrap();
        report(Path::new(name), &problems)
    }

    #[test]
    fn a_check_names_every_problem() {
        for profile in built_in() {
            assert_eq!(checked("p.toml", profile.source), "p.toml: sound\n");
        }
        let names: Vec<&str> = built_in().iter().map(|profile| profile.name).collect();
        assert_eq!(
            checked(
                "p.toml",
                "extends = \"pyhton\"
                 seccomp = \"defualt\"
                 argv = [\"ls\"]
                 out = \"x\"
                 cwd = \"../x\"
                 limits = { memory = 1, wall = \"soon\" }"
            ),
            format!(
                "p.toml:limits.wall: `soon` is not a duration above zero: write seconds, or a number \
             with ms, s, m or h, such as 500ms or 1m 30s, or none for no limit\n\
             p.toml:argv: belongs in a spec file (--spec): a profile describes how to run, not what\n\
             p.toml:out: belongs in a spec file (--spec): a profile describes how to run, not what\n\
             p.toml:cwd: is `/workspace/../x`, but wants an absolute path without `..` or NUL\n\
             p.toml:limits.memory: is 1, but wants 4M or more, or none\n\
             p.toml:extends: there is no profile `pyhton`; did you mean `python`?\n  \
               hint: built in: {}; a file of your own has a `/` in \
             its path or ends in .toml\n\
             p.toml:seccomp: there is no such seccomp policy\n  \
               hint: one of: default, debug, no-unix-sockets, strict\n",
                names.join(", ")
            )
        );
        assert!(checked("p.json", "{").starts_with("p.json"));
    }

    #[test]
    fn a_system_call_policy_that_is_shown_is_the_same_policy() {
        for (name, _) in seccomp::BUILTIN {
            let shown = Policy::parse(&show_seccomp(name).unwrap()).unwrap();
            let built_in = Policy::builtin(name).unwrap();
            assert_eq!(shown.rules, built_in.rules, "{name}");
            assert_eq!(shown.fallbacks, built_in.fallbacks, "{name}");
        }
    }

    #[test]
    fn a_spec_file_is_named_as_one() {
        let top = tempfile::tempdir().unwrap();
        for (name, text, is_spec) in [
            ("a.toml", "argv = [\"ls\"]", true),
            ("b.json", "{\"code\": \"1\"}", true),
            ("c.toml", "workspace = \"x\"", false),
        ] {
            std::fs::write(top.path().join(name), text).unwrap();
            let problems = check(Path::new(name), top.path()).unwrap();
            let says = problems[0].message.starts_with("is a spec file");
            assert_eq!(says, is_spec, "{problems:?}");
        }
    }
}
