//! Policy profiles: the built-in ones, and chains of files that extend them.

use std::path::{Path, PathBuf};

use super::partial::{Partial, PartialLimits};
use super::read::{Format, did_you_mean, listed, parse, parse_all};
use super::resolve::{Origin, SpecLayer};
use languages::{self, Profile, profile};
use record::error::{Result, SetupError, Step};

/// The profile on which every other builds.
pub const BASE: &str = "default";

/// Longer chains of `extends` are refused. That also ends a circle through `..`
/// that never spells a path the same way twice.
const DEEPEST: usize = 16;

/// The profiles that are not a language's, the base first.
static GENERAL: [Profile; 3] = [
    profile!("default", "../../../policies/profiles/default.toml"),
    profile!("strict", "../../../policies/profiles/strict.toml"),
    profile!("agent", "../../../policies/profiles/agent.toml"),
];

/// All built-in profiles, the base first. Languages may share one.
pub fn built_in() -> Vec<&'static Profile> {
    let mut all: Vec<&Profile> = GENERAL.iter().collect();
    for profile in languages::TABLE
        .iter()
        .filter_map(|driver| driver.profile.as_ref())
    {
        if !all.iter().any(|known| known.name == profile.name) {
            all.push(profile);
        }
    }
    all
}

/// What a profile is for, in one line.
pub fn description(profile: &Profile) -> Option<String> {
    partial(profile).ok()?.description
}

fn partial(profile: &Profile) -> Result<Partial> {
    serde_json::from_str(profile.json)
        .map_err(|error| SetupError::new(Step::Spec, error.to_string()).on(profile.name))
}

/// The limits of the profile that every other builds on.
///
/// # Errors
/// It is not what this version writes.
pub fn base_limits() -> Result<PartialLimits> {
    Ok(partial(find_built_in(BASE)?)?.limits)
}

/// The limits that the profiles of languages set, each with its name.
///
/// # Errors
/// One of them is not what this version writes.
pub fn limits_of_languages() -> Result<Vec<(&'static str, PartialLimits)>> {
    let profiles = languages::TABLE
        .iter()
        .filter_map(|driver| driver.profile.as_ref());
    let mut all: Vec<(&str, PartialLimits)> = Vec::new();
    for profile in profiles {
        if !all.iter().any(|(name, _)| *name == profile.name) {
            all.push((profile.name, partial(profile)?.limits));
        }
    }
    Ok(all)
}

/// The built-in profile of this name.
///
/// # Errors
/// There is no such profile; the error lists the names.
pub fn find_built_in(name: &str) -> Result<&'static Profile> {
    let all = built_in();
    let found = all.iter().copied().find(|profile| profile.name == name);
    found.ok_or_else(|| {
        let names = || all.iter().map(|profile| profile.name);
        let near = did_you_mean(name, names());
        SetupError::new(Step::Spec, format!("there is no profile `{name}`{near}")).hint(format!(
            "built in: {}; a file of your own has a `/` in its path or ends in .toml",
            listed(names())
        ))
    })
}

/// Whether this is a file, not the name of a built-in profile.
pub fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

/// The profile and all the profiles on which it builds, the base first. `read` returns
/// the text of a file. A relative path starts at `cwd`, or for `extends` at the directory
/// of the file with that field.
///
/// # Errors
/// A name that is unknown, a file that cannot be read or is wrong, a cycle.
pub fn chain(
    name: &str,
    cwd: &Path,
    read: &dyn Fn(&Path) -> Result<String>,
) -> Result<Vec<SpecLayer>> {
    let mut layers: Vec<SpecLayer> = Vec::new();
    let mut next = Some(find(name, cwd, read)?);
    while let Some(layer) = next {
        if layers.iter().any(|seen| seen.origin == layer.origin) {
            let way = layers.iter().map(|l| &l.origin).chain([&layer.origin]);
            let way: Vec<String> = way.map(ToString::to_string).collect();
            return Err(SetupError::new(Step::Spec, "extends itself")
                .on(layer.origin.field("extends"))
                .hint(format!("break this circle: {}", way.join(" -> "))));
        }
        let base = match (&layer.partial.extends, &layer.origin) {
            (Some(base), _) => Some(base.clone()),
            (None, Origin::BuiltIn(name)) if name == BASE => None,
            (None, _) => Some(BASE.to_owned()),
        };
        if layers.len() == DEEPEST {
            let message = format!("builds on more than {DEEPEST} profiles");
            return Err(SetupError::new(Step::Spec, message).on(layer.origin.field("extends")));
        }
        let next_layer = base.map(|base| {
            find(&base, layer.origin.folder(cwd), read)
                .map_err(|error| layer.origin.extends_error(error))
        });
        next = next_layer.transpose()?;
        layers.push(layer);
    }
    layers.reverse();
    Ok(layers)
}

fn find(name: &str, folder: &Path, read: &dyn Fn(&Path) -> Result<String>) -> Result<SpecLayer> {
    if !is_path(name) {
        let profile = find_built_in(name)?;
        return Ok(SpecLayer {
            origin: Origin::BuiltIn(name.to_owned()),
            partial: partial(profile)?,
        });
    }
    let path: PathBuf = folder.join(name).components().collect();
    let text = read(&path)?;
    let origin = Origin::File(path);
    let partial: Partial = parse(&text, Format::Toml).map_err(|error| located(error, &origin))?;
    let foreign = partial.call_fields().next();
    match foreign {
        Some(field) => Err(misplaced(&origin, field)),
        None => Ok(SpecLayer { origin, partial }),
    }
}

/// Reads a profile and lists all its errors, except values out of range
/// ([`SpecLayer::faults`]).
pub fn check(text: &str, origin: &Origin) -> (Partial, Vec<SetupError>) {
    let (partial, problems) = parse_all(text, Format::Toml);
    let mut problems: Vec<SetupError> = problems
        .into_iter()
        .map(|error| located(error, origin))
        .collect();
    problems.extend(partial.call_fields().map(|field| misplaced(origin, field)));
    (partial, problems)
}

/// The error for a profile with a field that belongs to one call.
fn misplaced(origin: &Origin, field: &str) -> SetupError {
    SetupError::new(
        Step::Spec,
        "belongs in a spec file (--spec): a profile describes how to run, not what",
    )
    .on(origin.field(field))
}

/// The error with its file before its field.
pub fn located(mut error: SetupError, origin: &Origin) -> SetupError {
    error.operand = Some(match error.operand {
        Some(field) => origin.field(&field),
        None => origin.to_string(),
    });
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_profiles_are_those_of_the_files() {
        for profile in built_in() {
            let json = |partial| serde_json::to_value::<Partial>(partial).unwrap();
            let source = json(parse(profile.source, Format::Toml).unwrap());
            assert_eq!(json(partial(profile).unwrap()), source, "{}", profile.name);
        }
    }

    #[test]
    fn every_value_of_a_profile_stands_below_its_reason() {
        for profile in built_in() {
            let mut explained = false;
            for line in profile.source.lines() {
                if line.starts_with('#') {
                    explained = true;
                } else if line.is_empty() {
                    explained = false;
                } else if let Some((key, _)) = line.split_once(" = ") {
                    let exempt = ["description", "extends"].contains(&key);
                    assert!(explained || exempt, "{}: {line}", profile.name);
                }
            }
        }
    }
}
