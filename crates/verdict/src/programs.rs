//! Advice about a program that the code starts and the cell lacks.

use super::evidence::Place;
use super::explain::Advice;
use super::modules::{adding, rootfs_words, shown_rootfs};
use languages::Driver;
use record::CodeError;

/// The missing program that an exception names, if it does. Everything comes from
/// the cell; the name returned is safe in a command.
pub(super) fn missing(error: &CodeError, stderr: &str, driver: Option<&Driver>) -> Option<String> {
    let message = error.message.as_str();
    let is_shells = message.contains("status 127") || message.contains("error in running command");
    (in_shells_words(message))
        .or_else(|| is_shells.then(|| in_shells_words(stderr)).flatten())
        .or_else(|| (driver?.missing_program)(error))
        .and_then(plain)
}

/// The program that a shell, or env(1), did not find.
pub(super) fn not_found_by_shell(stderr: &str) -> Option<String> {
    in_shells_words(stderr).and_then(plain)
}

/// Whether a shell found a script or program, and not its interpreter or loader.
pub(super) fn lacks_interpreter(stderr: &str) -> bool {
    const WORDS: [&str; 2] = [
        ": cannot execute: required file not found",
        ": bad interpreter: No such file or directory",
    ];
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
    last.is_some_and(|last| WORDS.iter().any(|words| last.ends_with(words)))
}

/// What to do about a program that refuses to run as anybody but root, if its last words
/// say so.
pub(super) fn of_root(stderr: &str, place: &Place<'_>) -> Option<Advice> {
    const WORDS: [&str; 7] = [
        "must be root",
        "must be run as root",
        "run as root",
        "run this as root",
        "are you root",
        "root privileges",
        "superuser privileges",
    ];
    const NOT: [&str; 4] = [
        "not be run as root",
        "not run as root",
        "cannot be run as root",
        "n't run as root",
    ];
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty())?;
    let last = last.to_ascii_lowercase();
    let says = |all: &[&str]| all.iter().any(|words| last.contains(words));
    let asks = says(&WORDS) && !says(&NOT);
    (asks && !place.is_root).then(|| Advice {
        author: "it wants to be root, which it is not in this cell; install into a directory \
                 that you may write to, or say that it is needed"
            .to_owned(),
        operator: Some("`--uid 0` gives it that uid inside, without capabilities".to_owned()),
    })
}

/// What to do about apt or dpkg, which install nothing in a cell, if their last words are of that.
pub(super) fn of_package_manager(stderr: &str, place: &Place<'_>) -> Option<Advice> {
    const WORDS: [&str; 4] = [
        "dpkg frontend lock",
        "Unable to lock directory /var/lib/apt",
        "E: Unable to locate package",
        "has no installation candidate",
    ];
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty())?;
    let is_of_dpkg = last.starts_with("dpkg: error: ");
    if !is_of_dpkg && !WORDS.iter().any(|words| last.contains(words)) {
        return None;
    }
    let usual = place.driver.map_or("shell", |driver| driver.rootfs);
    let does = "adds a package of Debian's";
    Some(Advice {
        author: "packages are not installed within a cell; do without, or say which one is needed"
            .to_owned(),
        operator: Some(adding(
            shown_rootfs(place.rootfs),
            usual,
            "--apt PACKAGE",
            does,
        )),
    })
}

/// What to do about it.
pub(super) fn advice(program: &str, place: &Place<'_>) -> Advice {
    let rootfs = shown_rootfs(place.rootfs);
    let package = PACKAGES
        .iter()
        .find(|(name, _)| *name == program)
        .map(|(_, package)| *package);
    let lacks = format!(
        "there is no program `{program}` in {}",
        rootfs_words(rootfs)
    );
    let usual = place.driver.map_or("shell", |driver| driver.rootfs);
    let operator = match package {
        Some(package) => {
            let package = format!("--apt {package}");
            adding(rootfs, usual, &package, &format!("adds `{program}`"))
        }
        None => {
            let does = format!("adds `{program}`, if Debian has it");
            adding(rootfs, usual, "--apt PACKAGE", &does)
        }
    };
    Advice {
        author: format!("{lacks}; do without it, or say that it is needed"),
        operator: Some(operator),
    }
}

/// The program in the last line like `sh: 1: git: not found`, `line 1: git: command not
/// found` or `env: 'git': No such file or directory`.
fn in_shells_words(text: &str) -> Option<&str> {
    text.lines().rev().find_map(|line| {
        let line = line.trim_end();
        let named =
            (line.strip_suffix(": command not found")).or_else(|| line.strip_suffix(": not found"));
        if let Some(named) = named {
            return named.rsplit(": ").next();
        }
        let named = line.strip_prefix("env: ")?;
        let named = named.strip_suffix(": No such file or directory")?;
        Some(named.trim_matches(['\'', '\u{2018}', '\u{2019}']))
    })
}

/// A plain name. A path with `/` is a file of the code's own.
fn plain(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    (begins && name.len() <= 64 && name.chars().all(is_plain)).then(|| name.to_owned())
}

/// Programs that models often call, and the Debian package of each.
const PACKAGES: [(&str, &str); 26] = [
    ("convert", "imagemagick"),
    ("curl", "curl"),
    ("dot", "graphviz"),
    ("ffmpeg", "ffmpeg"),
    ("ffprobe", "ffmpeg"),
    ("file", "file"),
    ("g++", "g++"),
    ("gcc", "gcc"),
    ("gdal_translate", "gdal-bin"),
    ("git", "git"),
    ("jq", "jq"),
    ("libreoffice", "libreoffice"),
    ("magick", "imagemagick"),
    ("make", "make"),
    ("pandoc", "pandoc"),
    ("pdflatex", "texlive-latex-base"),
    ("pdftoppm", "poppler-utils"),
    ("pdftotext", "poppler-utils"),
    ("rg", "ripgrep"),
    ("soffice", "libreoffice"),
    ("sqlite3", "sqlite3"),
    ("tesseract", "tesseract-ocr"),
    ("unzip", "unzip"),
    ("wget", "wget"),
    ("xxd", "xxd"),
    ("zip", "zip"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use languages::find;

    fn error(name: &str, message: &str, errno: Option<i32>, traceback: &str) -> CodeError {
        CodeError {
            name: name.into(),
            message: message.into(),
            traceback: vec![traceback.into()],
            line: None,
            errno,
        }
    }

    #[test]
    fn a_program_that_wants_to_be_root_gets_the_option_for_it() {
        let place = |is_root| Place {
            is_root,
            ..Place::default()
        };
        for (stderr, asks) in [
            (
                "E: could not open lock\nE: Unable to lock, are you root?\n",
                true,
            ),
            ("This script must be run as root.\n\n", true),
            ("must be run as root\nlater\n", false),
            ("initdb: error: cannot be run as root\n", false),
            ("This must not be run as root.\n", false),
            ("Do not run as root!\n", false),
            ("You shouldn't run as root\n", false),
            ("", false),
        ] {
            let advice = of_root(stderr, &place(false));
            let operator = advice.and_then(|advice| advice.operator);
            assert_eq!(operator.is_some_and(|text| text.contains("--uid 0")), asks);
            assert!(of_root(stderr, &place(true)).is_none());
        }
    }

    #[test]
    fn a_package_manager_gets_the_command_that_adds_packages() {
        let place = Place {
            rootfs: "python",
            driver: find("python"),
            ..Place::default()
        };
        for (stderr, is_of_one) in [
            (
                "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?\n",
                true,
            ),
            ("E: Unable to locate package jq\n\n", true),
            (
                "dpkg: error: requested operation requires superuser privilege\n",
                true,
            ),
            ("E: Unable to locate package jq\nlater\n", false),
            ("make: *** no rule\n", false),
        ] {
            let advice = of_package_manager(stderr, &place);
            let operator = advice.and_then(|advice| advice.operator);
            let expected = "`cellblock rootfs add python --apt PACKAGE` adds a package of Debian's";
            assert_eq!(
                operator.as_deref(),
                is_of_one.then_some(expected),
                "{stderr}"
            );
        }
    }

    #[test]
    fn a_missing_interpreter_is_no_missing_program() {
        for (stderr, lacks) in [
            (
                "main.sh: line 1: ./s.sh: cannot execute: required file not found\n",
                true,
            ),
            (
                "sh: ./s.sh: /no/such: bad interpreter: No such file or directory\n\n",
                true,
            ),
            ("sh: 1: ./s.sh: not found\n", false),
            ("bad interpreter: No such file or directory\nlater\n", false),
        ] {
            assert_eq!(lacks_interpreter(stderr), lacks, "{stderr}");
        }
    }

    #[test]
    fn each_language_has_its_words() {
        let none = "";
        #[rustfmt::skip]
        let rows = [
            ("python", error("FileNotFoundError", "[Errno 2] No such file or directory: 'git'", Some(2), "in _execute_child"), none, Some("git")),
            ("python", error("FileNotFoundError", "[Errno 2] No such file or directory: 'git'", Some(2), "open('git')"), none, None),
            ("python", error("FileNotFoundError", "[Errno 2] No such file or directory: './git'", Some(2), "in _execute_child"), none, None),
            ("python", error("CalledProcessError", "Command 'ffmpeg -i x' returned non-zero exit status 127.", None, none), "/bin/sh: 1: ffmpeg: not found\n", Some("ffmpeg")),
            ("python", error("CalledProcessError", "Command 'ffmpeg' returned non-zero exit status 1.", None, none), "/bin/sh: 1: ffmpeg: not found\n", None),
            ("javascript", error("Error", "spawn ffmpeg ENOENT", Some(-2), none), none, Some("ffmpeg")),
            ("javascript", error("Error", "spawnSync ffmpeg ENOENT", Some(-2), none), none, Some("ffmpeg")),
            ("javascript", error("Error", "Command failed: ffmpeg\n/bin/sh: 1: ffmpeg: not found\n", None, none), none, Some("ffmpeg")),
            ("java", error("java.io.IOException", "Cannot run program \"ffmpeg\": error=2, No such file or directory", None, none), none, Some("ffmpeg")),
            ("r", error("simpleError", "error in running command", None, none), "sh: 1: ffmpeg: not found\n", Some("ffmpeg")),
            ("python", error("ValueError", "the key was not found", None, none), none, None),
        ];
        for (language, error, stderr, program) in rows {
            let found = missing(&error, stderr, find(language));
            assert_eq!(found.as_deref(), program, "{error:?}");
        }
    }

    #[test]
    fn shells_name_what_they_did_not_find() {
        for (stderr, program) in [
            (
                "/run/cellblock/main.sh: line 1: git: command not found\n",
                Some("git"),
            ),
            (
                "env: \u{2018}git\u{2019}: No such file or directory\n",
                Some("git"),
            ),
            ("env: 'git': No such file or directory", Some("git")),
            ("sh: 1: ./x: not found", None),
            ("x: `rm -rf`: not found", None),
            ("fine", None),
        ] {
            assert_eq!(not_found_by_shell(stderr).as_deref(), program, "{stderr}");
        }
    }

    #[test]
    fn advice_names_a_package_and_no_path() {
        let place = |rootfs| Place {
            driver: find("python"),
            rootfs,
            reach: crate::evidence::Reach::Nothing,
            is_root: false,
        };
        let of = |program, rootfs| advice(program, &place(rootfs));
        let operator = |program, rootfs| of(program, rootfs).operator.unwrap();
        assert!(of("git", "host").author.contains("rootfs `host`"));
        assert!(operator("git", "host").contains("&& cellblock rootfs add python --apt git`"));
        assert!(operator("pdftotext", "mine@sha256:1").contains("add mine --apt poppler-utils"));
        let advice = of("git", "/srv/tree");
        assert!(!(advice.author + &advice.operator.unwrap()).contains("/srv"));
        assert!(operator("own-tool", "host").contains("--apt PACKAGE"));
        assert!(PACKAGES.is_sorted());
    }
}
