//! Names of images.

/// Whether both names mean the same image. Docker writes `docker.io/library/a:1` where its
/// users write `a:1`.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one == other || in_full(one) == in_full(other)
}

/// A name with its registry, its folder there, and its tag.
fn in_full(name: &str) -> String {
    let first = name
        .split('/')
        .next()
        .filter(|first| first.len() < name.len());
    let has_registry =
        first.is_some_and(|first| first.contains(['.', ':']) || first == "localhost");
    let place = match (has_registry, first.is_some()) {
        (true, _) => "",
        (false, true) => "docker.io/",
        (false, false) => "docker.io/library/",
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = match last.contains([':', '@']) {
        true => "",
        false => ":latest",
    };
    format!("{place}{name}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_mean_those_of_docker() {
        for (one, other, wanted) in [
            ("a:1", "docker.io/library/a:1", true),
            ("a", "docker.io/library/a:latest", true),
            ("a:latest", "a", true),
            ("me/a:1", "docker.io/me/a:1", true),
            ("localhost/a", "localhost/a:latest", true),
            ("host:5000/a", "host:5000/a:latest", true),
            ("1", "1", true),
            ("a:1", "1", false),
            ("a:1", "ghcr.io/library/a:1", false),
            ("a:1", "docker.io/me/a:1", false),
            ("a:1", "docker.io/library/a:2", false),
            ("", "a", false),
        ] {
            assert_eq!(is_same(one, other), wanted, "{one} {other}");
        }
    }
}
