//! Rules by the names of package registries, from `policies/network/presets.toml`.

use super::{Rule, RuleError};

const TEXT: &str = include_str!("../../../policies/network/presets.toml");

fn table() -> toml::Table {
    // A test reads the same text.
    TEXT.parse().unwrap_or_default()
}

/// The names of the presets, in alphabetical order.
pub fn preset_names() -> Vec<String> {
    table().keys().cloned().collect()
}

/// The rules of the preset with this name.
///
/// # Errors
/// That no preset has this name, with the names that there are.
pub fn preset(name: &str) -> Result<Vec<Rule>, RuleError> {
    let table = table();
    let hosts = table
        .get(name)
        .and_then(|preset| preset.get("hosts")?.as_array())
        .ok_or_else(|| {
            let names: Vec<&str> = table.keys().map(String::as_str).collect();
            RuleError::new(name, format!("is not a preset: {}", names.join(", ")))
        })?;
    hosts
        .iter()
        .filter_map(|host| host.as_str())
        .map(str::parse)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_readable() {
        let names = preset_names();
        for name in ["pypi", "npm", "debian", "crates", "cran", "maven", "github"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        for name in names {
            assert!(!preset(&name).unwrap().is_empty(), "{name}");
        }
        let error = preset("pip").unwrap_err().to_string();
        assert!(error.contains("pypi"), "{error}");
    }
}
