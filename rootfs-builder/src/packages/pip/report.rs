//! The output of `pip install --report`.

use crate::errors::store_error;
use serde_json::Value;

use crate::recipe::{Wheel, is_sha256};
use record::error::Result;

/// The wheels, sorted by name: pip's own order changes with its cache and the index.
///
/// # Errors
/// It is not a report of a known version, or a package is not a wheel with a
/// SHA-256.
pub(super) fn parse(printed: &str) -> Result<Vec<Wheel>> {
    let wrong = |why: String| store_error(why).on("pip install --report");
    let report: Value =
        serde_json::from_str(printed).map_err(|e| wrong(format!("cannot be parsed: {e}")))?;
    if report["version"] != "1" {
        return Err(wrong(format!("version {} is unknown", report["version"])));
    }
    let packages = report["install"].as_array();
    let packages = packages.ok_or_else(|| wrong("has no list of packages".to_owned()))?;
    let mut wheels: Vec<Wheel> = packages
        .iter()
        .map(|package| {
            let name = &package["metadata"]["name"];
            wheel(package).ok_or_else(|| wrong(format!("{name} is not a wheel with a SHA-256")))
        })
        .collect::<Result<_>>()?;
    wheels.sort_by_key(|wheel| wheel.name.to_lowercase());
    Ok(wheels)
}

fn wheel(package: &Value) -> Option<Wheel> {
    let text = |pointer: &str| package.pointer(pointer)?.as_str();
    let is_plain = |text: &str| {
        let letter = |c: char| c.is_ascii_alphanumeric() || "-._+!".contains(c);
        !text.is_empty() && !text.starts_with(['-', '.']) && text.chars().all(letter)
    };
    let path = text("/download_info/url")?.split(['#', '?']).next()?;
    let wheel = Wheel {
        name: text("/metadata/name")?.to_owned(),
        version: text("/metadata/version")?.to_owned(),
        file: decoded(path.rsplit('/').next()?)?,
        size: 0,
        sha256: text("/download_info/archive_info/hashes/sha256")?.to_owned(),
    };
    let is_valid = wheel.file.ends_with(".whl")
        && [&wheel.name, &wheel.version, &wheel.file]
            .into_iter()
            .all(|text| is_plain(text))
        && is_sha256(&wheel.sha256);
    is_valid.then_some(wheel)
}

/// Decodes `%2B` and the like.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut decoded = parts.next()?.to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        decoded.push(char::from(u8::from_str_radix(digits, 16).ok()?));
        decoded.push_str(rest);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = include_str!("report.json");

    #[test]
    fn a_recorded_report_is_parsed() {
        let wheels = parse(RECORDED).unwrap();
        let names: Vec<&str> = wheels.iter().map(|wheel| wheel.name.as_str()).collect();
        assert_eq!(names, ["numpy", "PyYAML", "requests"]);
        assert_eq!(wheels[0].version, "2.5.5");
        assert!(
            wheels[0]
                .file
                .starts_with("numpy-2.5.5-cp313-cp313-manylinux")
        );
        assert!(wheels[0].sha256.starts_with("824025655df92926"));
    }

    #[test]
    fn anything_but_a_wheel_is_refused() {
        for (from, to) in [
            (".whl\"", ".tar.gz\""),
            ("\"sha256\": \"824", "\"sha256\": \"/24"),
            ("\"name\": \"numpy\"", "\"name\": \"--index-url=x\""),
            ("\"version\": \"1\"", "\"version\": \"2\""),
            ("numpy-2.5.5", "..%2Fnumpy-2.5.5"),
        ] {
            assert!(RECORDED.contains(from), "{from}");
            assert!(
                parse(&RECORDED.replace(from, to)).is_err(),
                "{from} -> {to}"
            );
        }
    }
}
