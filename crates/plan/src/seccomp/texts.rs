//! The built-in policies as they are written. A launch needs none of them.

/// Each by its name; build.rs lists them.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/policy_texts.rs"));

/// The text of the policy of this name.
pub(super) fn of(name: &str) -> Result<String, String> {
    let found = TEXTS.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or("it has no text")?;
    Ok((*text).to_owned())
}
