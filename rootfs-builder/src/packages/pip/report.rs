//! The output of `pip install --report`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::recipe::{Wheel, is_sha256};
use record::error::{Result, SetupError, Step};

#[derive(Deserialize)]
struct Report {
    version: String,
    install: Vec<Install>,
}

#[derive(Deserialize)]
struct Install {
    metadata: Metadata,
    download_info: Download,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Download {
    url: String,
    archive_info: Archive,
}

#[derive(Deserialize)]
struct Archive {
    hashes: BTreeMap<String, String>,
}

/// The wheels, sorted by name: pip's own order changes with its cache and the index.
///
/// # Errors
/// It is not a report of a known version, or a package is not a wheel with a
/// SHA-256.
pub(super) fn parse(printed: &str) -> Result<Vec<Wheel>> {
    let wrong = |why: String| SetupError::new(Step::Store, why).on("pip install --report");
    let report: Report =
        serde_json::from_str(printed).map_err(|e| wrong(format!("cannot be parsed: {e}")))?;
    if report.version != "1" {
        return Err(wrong(format!("version {:?} is unknown", report.version)));
    }
    let mut wheels: Vec<Wheel> = report
        .install
        .into_iter()
        .map(|install| {
            let name = install.metadata.name.clone();
            wheel(install).ok_or_else(|| wrong(format!("{name} is not a wheel with a SHA-256")))
        })
        .collect::<Result<_>>()?;
    wheels.sort_by_key(|wheel| wheel.name.to_lowercase());
    Ok(wheels)
}

fn wheel(install: Install) -> Option<Wheel> {
    let url = install.download_info.url;
    let path = url.split(['#', '?']).next()?;
    let file = decoded(path.rsplit('/').next()?)?;
    let sha256 = install.download_info.archive_info.hashes.get("sha256")?;
    let plain = |text: &str| {
        let letter = |c: char| c.is_ascii_alphanumeric() || "-._+!".contains(c);
        !text.is_empty() && !text.starts_with(['-', '.']) && text.chars().all(letter)
    };
    let Metadata { name, version } = install.metadata;
    let good = file.ends_with(".whl")
        && [&name, &version, &file].into_iter().all(|text| plain(text))
        && is_sha256(sha256);
    good.then(|| Wheel {
        name,
        version,
        file,
        size: 0,
        sha256: sha256.clone(),
    })
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
