//! The mirrors of package registries that this host is configured with.

use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use hosts::Rule;
use record::error::{Result, SetupError, Step};

/// A package manager's configuration.
struct Mirror {
    name: &'static str,
    /// Files, of which those with a `~` are below the caller's home directory. A
    /// directory stands for the files in it.
    files: &'static [&'static str],
    /// Variables that hold an address.
    variables: &'static [&'static str],
    /// Whether a line, in lower case, gives an address that packages come from.
    is_source: fn(&str) -> bool,
    /// Where packages come from when nothing is configured.
    usual: &'static [&'static str],
}

const MIRRORS: [Mirror; 3] = [
    Mirror {
        name: "pip",
        files: &["/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"],
        variables: &["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"],
        is_source: |line| line.starts_with("index-url") || line.starts_with("extra-index-url"),
        usual: &["https://pypi.org", "https://files.pythonhosted.org"],
    },
    Mirror {
        name: "npm",
        files: &["/etc/npmrc", "/usr/etc/npmrc", "~/.npmrc"],
        variables: &["NPM_CONFIG_REGISTRY", "npm_config_registry"],
        is_source: |line| line.starts_with("registry") || line.contains(":registry"),
        usual: &["https://registry.npmjs.org"],
    },
    Mirror {
        name: "apt",
        files: &["/etc/apt/sources.list", "/etc/apt/sources.list.d"],
        variables: &[],
        is_source: |line| line.starts_with("deb") || line.starts_with("uris:"),
        usual: &["http://deb.debian.org", "https://deb.debian.org"],
    },
];

/// The rules for where the package manager `name` of this host gets packages from: the
/// hosts that it is configured with or else its usual ones, and their addresses as far as
/// they are private, which counts as written out.
///
/// # Errors
/// The name is not one.
pub(super) fn find(name: &str) -> Result<Vec<String>> {
    let operand = format!("mirror:{name}");
    let Some(mirror) = MIRRORS.iter().find(|mirror| mirror.name == name) else {
        let names = MIRRORS.map(|mirror| mirror.name).join(", ");
        let message = format!("is not a mirror, but wants one of {names}");
        return Err(SetupError::new(Step::Spec, message).on(operand));
    };
    let mut hosts = BTreeSet::new();
    for text in texts(mirror) {
        hosts.extend(text.lines().filter_map(|line| host(mirror, line)));
    }
    for value in mirror
        .variables
        .iter()
        .filter_map(|name| std::env::var(name).ok())
    {
        hosts.extend(value.split_whitespace().filter_map(of_address));
    }
    if hosts.is_empty() {
        hosts.extend(mirror.usual.iter().filter_map(|url| of_address(url)));
    }
    Ok(hosts
        .into_iter()
        .flat_map(|(host, port)| rules(&host, port))
        .collect())
}

/// The rules for the hosts of these URLs: their names, and their addresses as far as they
/// are private or local, which counts as written out.
pub fn of_urls<'a>(urls: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let hosts: BTreeSet<(String, u16)> = urls.into_iter().filter_map(of_address).collect();
    (hosts.into_iter())
        .flat_map(|(host, port)| rules(&host, port))
        .collect()
}

/// The value of `key` in the configuration of the package manager `name`, of which the
/// last file counts: `key = value`, with more lines of it indented, as in pip.conf and
/// npmrc.
pub fn setting(name: &str, key: &str) -> Option<String> {
    let mirror = MIRRORS.iter().find(|mirror| mirror.name == name)?;
    let mut texts = texts(mirror).into_iter().rev();
    texts.find_map(|text| value(&text, key))
}

fn value(text: &str, key: &str) -> Option<String> {
    let mut found: Option<Vec<&str>> = None;
    let mut goes_on = false;
    for line in text.lines() {
        let is_indented = line.starts_with([' ', '\t']);
        if goes_on && is_indented {
            found.get_or_insert_default().push(line.trim());
            continue;
        }
        let given = line.split_once(['=', ':']);
        goes_on = given.is_some_and(|(name, _)| name.trim() == key);
        if let (true, Some((_, first))) = (goes_on, given) {
            found = Some(vec![first.trim().trim_matches('"')]);
        }
    }
    let value = found?.join(" ").trim().to_owned();
    (!value.is_empty()).then_some(value)
}

fn texts(mirror: &Mirror) -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut texts = Vec::new();
    for file in mirror.files {
        let path = match (file.strip_prefix("~/"), &home) {
            (Some(rest), Some(home)) => home.join(rest),
            (Some(_), None) => continue,
            (None, _) => PathBuf::from(file),
        };
        match std::fs::read_dir(&path) {
            Ok(entries) => {
                let paths = entries.flatten().map(|entry| entry.path());
                let is_list = |path: &PathBuf| {
                    path.extension()
                        .is_some_and(|kind| kind == "list" || kind == "sources")
                };
                texts.extend(paths.filter(is_list).filter_map(|path| read(&path)));
            }
            Err(_) => texts.extend(read(&path)),
        }
    }
    texts
}

fn read(path: &Path) -> Option<String> {
    /// No configuration is longer.
    const LONGEST: u64 = 1 << 20;
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The host and port of a line that gives an address.
fn host(mirror: &Mirror, line: &str) -> Option<(String, u16)> {
    let line = line.trim();
    if !(mirror.is_source)(&line.to_ascii_lowercase()) {
        return None;
    }
    line.split(|c: char| c.is_whitespace() || c == '=')
        .find_map(of_address)
}

/// The host and port of a URL.
fn of_address(word: &str) -> Option<(String, u16)> {
    let word = word.trim_matches(['"', '\'']);
    let (rest, usual) = match (word.strip_prefix("https://"), word.strip_prefix("http://")) {
        (Some(rest), _) => (rest, 443),
        (None, Some(rest)) => (rest, 80),
        (None, None) => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let rule: Rule = authority.parse().ok()?;
    let port = rule.port.unwrap_or(usual);
    let host = match authority.rsplit_once(':') {
        Some((host, _)) if rule.port.is_some() => host,
        _ => authority,
    };
    Some((host.to_owned(), port))
}

/// The host, and its private addresses.
fn rules(host: &str, port: u16) -> Vec<String> {
    let name = format!("{host}:{port}");
    let found = name.to_socket_addrs().into_iter().flatten();
    let private = found.map(|address| address.ip()).filter(is_private);
    let addresses = private.map(|address| match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    });
    let addresses: BTreeSet<String> = addresses.collect();
    std::iter::once(name.clone())
        .chain(addresses.into_iter().filter(|rule| *rule != name))
        .collect()
}

fn is_private(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let is_shared = a == 100 && b & 0xc0 == 64;
            v4.is_private() || v4.is_loopback() || v4.is_documentation() || is_shared
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_configurations() {
        for (index, line, wanted) in [
            (
                0,
                "index-url = https://user:word@mirror.example/simple",
                Some(("mirror.example", 443)),
            ),
            (
                0,
                "extra-index-url=http://mirror.example:8080/simple",
                Some(("mirror.example", 8080)),
            ),
            (0, "# index-url = https://other.example", None),
            (0, "cert = https://other.example", None),
            (
                1,
                "registry=https://npm.example/",
                Some(("npm.example", 443)),
            ),
            (
                1,
                "@scope:registry=https://npm.example:4873/",
                Some(("npm.example", 4873)),
            ),
            (1, "cafile=/etc/ssl/x.pem", None),
            (
                2,
                "deb [signed-by=/x.gpg] http://deb.example/debian stable main",
                Some(("deb.example", 80)),
            ),
            (
                2,
                "URIs: http://deb.example/debian",
                Some(("deb.example", 80)),
            ),
            (2, "deb cdrom:[x]/ stable main", None),
        ] {
            let wanted = wanted.map(|(host, port): (&str, u16)| (host.to_owned(), port));
            assert_eq!(host(&MIRRORS[index], line), wanted, "{line}");
        }
    }

    #[test]
    fn a_url_stands_for_its_host_and_a_local_address() {
        let rules = of_urls(["http://localhost:4873/a", "https://192.0.2.7/b", "/a/path"]);
        assert!(rules.contains(&"localhost:4873".to_owned()), "{rules:?}");
        assert!(rules.contains(&"127.0.0.1:4873".to_owned()), "{rules:?}");
        assert!(rules.contains(&"192.0.2.7:443".to_owned()), "{rules:?}");
    }

    #[test]
    fn values_are_found_in_configurations() {
        let pip = "[global]\n# index-url = https://no.example\nindex-url = https://a.example/simple\n\
                   extra-index-url =\n    https://b.example\n    https://c.example\ncert = /x\n";
        for (key, wanted) in [
            ("index-url", Some("https://a.example/simple")),
            (
                "extra-index-url",
                Some("https://b.example https://c.example"),
            ),
            ("trusted-host", None),
        ] {
            assert_eq!(value(pip, key).as_deref(), wanted, "{key}");
        }
        let npm = "fund=false\nregistry=https://npm.example/\n@s:registry=https://other.example\n";
        assert_eq!(
            value(npm, "registry").as_deref(),
            Some("https://npm.example/")
        );
    }

    #[test]
    fn without_a_configuration_the_usual_hosts_count() {
        for mirror in MIRRORS {
            let rules = find(mirror.name).unwrap();
            assert!(!rules.is_empty(), "{}", mirror.name);
        }
    }

    #[test]
    fn a_mirror_has_a_known_name() {
        let error = find("cargo").unwrap_err();
        assert!(error.message.contains("pip, npm, apt"), "{error}");
    }
}
