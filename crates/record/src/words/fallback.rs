//! The warning that something weaker than a cgroup limits a cell.

const BEGINNING: &str = "no cgroup limits ";

/// The warning that no cgroup has the limits `missing`, and `why`.
pub fn of_fallback(missing: &[&str], why: &str) -> String {
    let missing = missing.join(", ");
    format!(
        "{BEGINNING}{missing}, so a fallback does: {why}; `cellblock doctor` says how to get one"
    )
}

/// Whether a warning of a record is this one.
pub fn is_of_fallback(warning: &str) -> bool {
    warning.starts_with(BEGINNING)
}
