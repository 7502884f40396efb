//! The built-in policies as they are written. A launch needs none of them.

/// Each by its name, packed by build.rs.
const PACKED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/policy_texts.rs"));

/// The text of the policy of this name.
pub(super) fn of(name: &str) -> Result<String, String> {
    let found = PACKED.iter().find(|(known, _)| *known == name);
    let packed = found.ok_or("it has no text")?.1;
    let text = packed::unpack(packed).map_err(|error| error.to_string())?;
    String::from_utf8(text).map_err(|error| error.to_string())
}
