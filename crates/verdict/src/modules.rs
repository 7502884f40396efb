//! Advice about a module that the code imports and the cell lacks.

use super::evidence::Place;
use super::explain::Advice;
use languages::Provider;

/// What to do about the missing module that an exception's message names. The message
/// comes from the cell.
pub(super) fn advice(message: &str, place: &Place<'_>) -> Option<Advice> {
    let driver = place.driver?;
    let modules = driver.modules?;
    let module = named_after(modules.missing, message)?;
    let rootfs = shown_rootfs(place.rootfs);
    let lacks = format!("{} has no `{module}`", rootfs_words(rootfs));
    let operator = match (modules.provider)(module, rootfs)? {
        Provider::Package(option, package) => {
            let added = format!("{option} {package}");
            adding(rootfs, driver.rootfs, &added, &format!("adds `{module}`"))
        }
        Provider::Rootfs(name) => format!(
            "`cellblock rootfs build {name}` makes a rootfs with `{module}`, for --rootfs {name} \
             or `cellblock rootfs default {} {name}`",
            driver.name
        ),
        Provider::Jar => format!(
            "the jar with `{module}` can be put into the workspace, for example by --file x.jar \
             --env CLASSPATH=/workspace/x.jar"
        ),
        Provider::Nothing(what) => {
            return Some(format!("{lacks}; do without it, as there is no {what}").into());
        }
    };
    Some(Advice {
        author: format!(
            "{lacks}; write it with what the language and the rootfs have, or say that it is needed"
        ),
        operator: Some(operator),
    })
}

/// The same for a module that a program which the code started did not find: an interpreter of the
/// code's language, or of another one.
pub(super) fn of_a_child(stderr: &str, place: &Place<'_>) -> Option<Advice> {
    // The last word of Rscript says nothing.
    let says = |line: &&str| !line.trim().is_empty() && *line != "Execution halted";
    let last = stderr.lines().rev().find(says)?;
    let others = languages::TABLE.iter().map(|driver| Place {
        driver: Some(*driver),
        ..*place
    });
    [*place]
        .into_iter()
        .chain(others)
        .find_map(|place| advice(last, &place))
}

/// The same for a module whose lack the interpreter has only warned of, as R does for `require`.
pub(super) fn warned_of(stderr: &str, place: &Place<'_>) -> Option<Advice> {
    stderr.lines().rev().find_map(|line| advice(line, place))
}

/// The module's name in the message, if it can stand in a command.
fn named_after<'a>(words: &[&str], message: &'a str) -> Option<&'a str> {
    const QUOTES: [char; 5] = ['\'', '"', '`', '\u{2018}', '\u{2019}'];
    let (_, rest) = words.iter().find_map(|words| message.split_once(words))?;
    let rest = rest.trim_start_matches(QUOTES);
    let name = rest.split(QUOTES).next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/@".contains(c);
    // Neither an option nor a path.
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@');
    (begins && name.len() <= 100 && name.chars().all(is_plain)).then_some(name)
}

/// The command that adds a package, with what it does: to this rootfs, or to the usual one, which may
/// have to be made first.
pub(super) fn adding(rootfs: &str, usual: &str, package: &str, does: &str) -> String {
    if rootfs != "host" && !rootfs.contains('/') {
        return format!("`cellblock rootfs add {rootfs} {package}` {does}");
    }
    format!(
        "`cellblock rootfs build {usual} && cellblock rootfs add {usual} {package}` {does}, for --rootfs {usual}"
    )
}

/// The name of a rootfs without its digest.
pub(super) fn shown_rootfs(label: &str) -> &str {
    label.split_once("@sha256:").map_or(label, |(name, _)| name)
}

/// The rootfs in a sentence. A directory is a path of the host's, which a model is
/// not to see.
pub(super) fn rootfs_words(rootfs: &str) -> String {
    match rootfs.contains('/') || rootfs.is_empty() {
        true => "the rootfs".to_owned(),
        false => format!("the rootfs `{rootfs}`"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use languages::find;

    fn in_rootfs(language: &'static str, rootfs: &'static str, message: &str) -> Option<Advice> {
        let place = Place {
            driver: find(language),
            rootfs,
            reach: crate::evidence::Reach::Nothing,
            is_root: false,
        };
        advice(message, &place)
    }

    #[test]
    fn a_module_that_a_child_lacks_is_its_last_word() {
        let place = Place {
            driver: find("python"),
            rootfs: "python",
            reach: crate::evidence::Reach::Nothing,
            is_root: false,
        };
        let advice = |stderr| of_a_child(stderr, &place).and_then(|advice| advice.operator);
        let pip = advice("x\n/usr/bin/python3: No module named pip\n\n");
        assert_eq!(
            pip.unwrap(),
            "`cellblock rootfs add python --pip pip` adds `pip`"
        );
        assert_eq!(advice("No module named pip\nlater"), None);
        assert_eq!(advice(""), None);
        // Of another language.
        let r = "Error in library(foo) : there is no package called \u{2018}foo\u{2019}\n\
                 Execution halted\n";
        let foo = "`cellblock rootfs add python --apt r-cran-foo` adds `foo`";
        assert_eq!(advice(r).unwrap(), foo);
        let shell = Place {
            driver: find("bash"),
            ..place
        };
        let advice = of_a_child(r, &shell).unwrap();
        assert_eq!(advice.operator.unwrap(), foo);
    }

    #[test]
    fn a_package_that_r_only_warned_of_is_named() {
        let place = Place {
            driver: find("r"),
            rootfs: "r",
            ..Place::default()
        };
        let stderr = "Loading required package: foo\nWarning in library(package) :\n  \
                      there is no package called \u{2018}foo\u{2019}\nlater\n";
        let advice = warned_of(stderr, &place).unwrap();
        let adds = "`cellblock rootfs add r --apt r-cran-foo` adds `foo`";
        assert_eq!(advice.operator.unwrap(), adds);
        assert!(warned_of("fine\n", &place).is_none());
    }

    #[test]
    fn a_missing_module_names_what_brings_it() {
        for (language, rootfs, message, words) in [
            (
                "python",
                "host",
                "No module named 'pandas'",
                "`cellblock rootfs build python-data` makes a rootfs with `pandas`, for --rootfs python-data or `cellblock rootfs default python python-data`",
            ),
            (
                "python",
                "python@sha256:ab",
                "No module named 'PIL.Image'",
                "a rootfs with `PIL.Image`, for --rootfs python-data",
            ),
            (
                "python",
                "host",
                "No module named 'cv2'",
                "rootfs add python --pip opencv-python-headless`",
            ),
            (
                "python",
                "python-data@sha256:ab",
                "No module named 'skimage.io'; 'skimage' is not a package",
                "rootfs add python-data --pip scikit-image`",
            ),
            (
                "python",
                "/srv/tree",
                "No module named 'wand'",
                "`cellblock rootfs build python && cellblock rootfs add python --pip wand` adds `wand`, for --rootfs python",
            ),
            (
                "python",
                "mine",
                "No module named 'x_y.z'",
                "rootfs add mine --pip x_y`",
            ),
            (
                "python",
                "full@sha256:ab",
                "No module named 'docx'",
                "rootfs add full --pip python-docx`",
            ),
            (
                "javascript",
                "host",
                "Cannot find module 'lodash/fp'\nRequire stack:",
                "rootfs add node --npm lodash`",
            ),
            (
                "typescript",
                "node@sha256:1",
                "Cannot find package '@a/b/c' imported from /x",
                "rootfs add node --npm @a/b`",
            ),
            (
                "java",
                "java@sha256:1",
                "cannot find package 'org.json'",
                "the jar with `org.json` can be put into the workspace",
            ),
            (
                "r",
                "host",
                "there is no package called \u{2018}ggplot2\u{2019}",
                "rootfs add r --apt r-cran-ggplot2`",
            ),
            (
                "r",
                "r",
                "there is no package called 'Rcpp'",
                "--apt r-cran-rcpp`",
            ),
        ] {
            let advice = in_rootfs(language, rootfs, message).unwrap();
            let operator = advice.operator.unwrap();
            assert!(operator.contains(words), "{message}: {operator}");
            // The author cannot run a command of the host's.
            let author = advice.author;
            assert!(
                author.contains(" has no `") && !author.contains("cellblock"),
                "{author}"
            );
        }
        let advice = in_rootfs("python", "host", "No module named 'tkinter'").unwrap();
        assert!(advice.author.contains("do without it") && advice.operator.is_none());
        for (language, message) in [
            ("python", "cannot import name 'x' from 'y'"),
            ("python", "No module named '--index-url=http://x'"),
            ("python", "No module named 'a b'"),
            ("python", "No module named 'a/b'"),
            ("python", "No module named 'a$(b)'"),
            ("python", "No module named ''"),
            ("javascript", "Cannot find module './mine.js'"),
            ("javascript", "Cannot find module '/workspace/mine.js'"),
            ("javascript", "Cannot find module '@scope'"),
            ("java", "No module named 'x'"),
        ] {
            assert!(in_rootfs(language, "host", message).is_none(), "{message}");
        }
    }

    proptest! {
        #[test]
        fn what_stands_in_a_command_is_a_word(name in any::<String>()) {
            for language in ["python", "javascript", "r"] {
                for message in ["No module named '", "Cannot find module \"", "there is no package called "] {
                    if let Some(advice) = in_rootfs(language, "host", &format!("{message}{name}")) {
                        let advice = advice.author + &advice.operator.unwrap_or_default();
                        prop_assert!(advice.len() < 600);
                        prop_assert!(advice.chars().all(|c| c.is_ascii_alphanumeric() || "`._-/@ ;,()&".contains(c)), "{}", advice);
                    }
                }
            }
        }
    }
}
