//! Where a module that the code wants can be had.

use super::verdict::Place;

/// What to do about the missing module that an exception's message names; the
/// end of a sentence. The message comes from the cell.
pub(super) fn advice(message: &str, place: &Place<'_>) -> Option<String> {
    let wanted = missing(message)?;
    let rootfs = shown_rootfs(place.rootfs);
    // A rootfs that is a directory is the host's: its path is not for models.
    let lacks = match rootfs.contains('/') {
        true => format!("the rootfs has no `{wanted}`"),
        false => format!("the rootfs `{rootfs}` has no `{wanted}`"),
    };
    let bring = match place.language {
        Some("python") => python(wanted, rootfs)?,
        Some("javascript" | "typescript") => {
            add(base(rootfs, "node"), "--npm", package_of_npm(wanted)?)
        }
        Some("r") => {
            let package = format!("r-cran-{}", wanted.to_lowercase());
            add(base(rootfs, "r"), "--apt", &package)
        }
        _ => return None,
    };
    Some(format!("{lacks}; {bring}"))
}

/// The module's name in the message, if it can stand in a command.
fn missing(message: &str) -> Option<&str> {
    const BEFORE: [&str; 4] = [
        "No module named ",
        "Cannot find module ",
        "Cannot find package ",
        "there is no package called ",
    ];
    const QUOTES: [char; 5] = ['\'', '"', '`', '\u{2018}', '\u{2019}'];
    let after = (BEFORE.iter()).find_map(|before| message.split_once(before).map(|(_, name)| name));
    let name = after?.trim_start_matches(QUOTES);
    let end = name.find(QUOTES);
    let name = &name[..end.unwrap_or(name.len())];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/@".contains(c);
    // Neither an option nor a path.
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@');
    (begins && name.len() <= 100 && name.chars().all(is_plain)).then_some(name)
}

fn python(module: &str, rootfs: &str) -> Option<String> {
    let top = module.split('.').next()?;
    if NOT_IN_CELLS.contains(&top) {
        return Some("do without it, as there is no window, sound or other system".to_owned());
    }
    if let Some((_, distribution)) = DISTRIBUTIONS.iter().find(|(module, _)| *module == top) {
        return Some(add(base(rootfs, "python"), "--pip", distribution));
    }
    if PYTHON_DATA.contains(&top) && rootfs != "python-data" {
        return Some(
            "use --rootfs python-data, which has it (cellblock rootfs build python-data makes it)"
                .to_owned(),
        );
    }
    // A module's name has no other characters; most distributions are called
    // like their module.
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (top.chars().all(is_name)).then(|| add(base(rootfs, "python"), "--pip", top))
}

/// `lodash` of `lodash/fp`, `@scope/name` of `@scope/name/part`.
fn package_of_npm(module: &str) -> Option<&str> {
    let parts = if module.starts_with('@') { 2 } else { 1 };
    let end = module.match_indices('/').nth(parts - 1);
    let package = end.map_or(module, |(end, _)| &module[..end]);
    (package.matches('/').count() == parts - 1).then_some(package)
}

fn add(rootfs: &str, option: &str, package: &str) -> String {
    format!("use another, or add it with `cellblock rootfs add {rootfs} {option} {package}`")
}

/// The rootfs that another can be derived from: this one, or the usual one.
pub(super) fn base<'a>(rootfs: &'a str, usual: &'a str) -> &'a str {
    match rootfs {
        "host" => usual,
        path if path.contains('/') => usual,
        name => name,
    }
}

/// A rootfs by its name, without the digest.
pub(super) fn shown_rootfs(label: &str) -> &str {
    label.split_once("@sha256:").map_or(label, |(name, _)| name)
}

/// Modules of Python's own, or of other systems, that cells are without.
const NOT_IN_CELLS: [&str; 8] = [
    "_tkinter", "idlelib", "msvcrt", "tkinter", "turtle", "win32api", "winreg", "winsound",
];

/// What the recipe `python-data` brings.
const PYTHON_DATA: [&str; 35] = [
    "PIL",
    "aiohttp",
    "attr",
    "attrs",
    "bs4",
    "certifi",
    "charset_normalizer",
    "contourpy",
    "cycler",
    "dateutil",
    "et_xmlfile",
    "fontTools",
    "idna",
    "joblib",
    "kiwisolver",
    "lxml",
    "matplotlib",
    "mpl_toolkits",
    "mpmath",
    "multidict",
    "networkx",
    "numpy",
    "openpyxl",
    "packaging",
    "pandas",
    "pylab",
    "pyparsing",
    "requests",
    "scipy",
    "seaborn",
    "sklearn",
    "sympy",
    "urllib3",
    "yaml",
    "yarl",
];

/// Modules whose distribution has another name.
const DISTRIBUTIONS: [(&str, &str); 42] = [
    ("Bio", "biopython"),
    ("Crypto", "pycryptodome"),
    ("Levenshtein", "python-Levenshtein"),
    ("MySQLdb", "mysqlclient"),
    ("OpenSSL", "pyOpenSSL"),
    ("attrdict", "attrdict3"),
    ("binance", "python-binance"),
    ("community", "python-louvain"),
    ("cv2", "opencv-python-headless"),
    ("discord", "discord.py"),
    ("docx", "python-docx"),
    ("dotenv", "python-dotenv"),
    ("faiss", "faiss-cpu"),
    ("fitz", "PyMuPDF"),
    ("flask_cors", "Flask-Cors"),
    ("gi", "PyGObject"),
    ("git", "GitPython"),
    ("googleapiclient", "google-api-python-client"),
    ("igraph", "python-igraph"),
    ("jose", "python-jose"),
    ("jwt", "PyJWT"),
    ("kafka", "kafka-python"),
    ("ldap", "python-ldap"),
    ("magic", "python-magic"),
    ("markdown", "Markdown"),
    ("mpl_finance", "mplfinance"),
    ("multipart", "python-multipart"),
    ("mysql", "mysql-connector-python"),
    ("nacl", "PyNaCl"),
    ("osgeo", "GDAL"),
    ("pkg_resources", "setuptools"),
    ("pptx", "python-pptx"),
    ("psycopg2", "psycopg2-binary"),
    ("pymupdf", "PyMuPDF"),
    ("serial", "pyserial"),
    ("skimage", "scikit-image"),
    ("slugify", "python-slugify"),
    ("snappy", "python-snappy"),
    ("speech_recognition", "SpeechRecognition"),
    ("talib", "TA-Lib"),
    ("websocket", "websocket-client"),
    ("zmq", "pyzmq"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_rootfs(language: &'static str, rootfs: &'static str, message: &str) -> Option<String> {
        let place = Place {
            language: Some(language),
            rootfs,
            has_network: false,
        };
        advice(message, &place)
    }

    #[test]
    fn a_missing_module_names_what_brings_it() {
        for (language, rootfs, message, words) in [
            (
                "python",
                "host",
                "No module named 'pandas'",
                "the rootfs `host` has no `pandas`; use --rootfs python-data",
            ),
            (
                "python",
                "python@sha256:ab",
                "No module named 'PIL.Image'",
                "the rootfs `python` has no `PIL.Image`; use --rootfs python-data",
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
                "No module named 'polars'",
                "the rootfs has no `polars`; use another, or add it with `cellblock rootfs add python --pip polars`",
            ),
            (
                "python",
                "mine",
                "No module named 'x_y.z'",
                "rootfs add mine --pip x_y`",
            ),
            (
                "python",
                "host",
                "No module named 'tkinter'",
                "do without it",
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
            assert!(advice.contains(words), "{message}: {advice}");
        }
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
            assert_eq!(in_rootfs(language, "host", message), None, "{message}");
        }
    }

    #[test]
    fn the_tables_are_in_order() {
        assert!(PYTHON_DATA.is_sorted() && NOT_IN_CELLS.is_sorted());
        assert!(DISTRIBUTIONS.is_sorted());
        assert!(
            DISTRIBUTIONS
                .iter()
                .all(|(module, _)| !PYTHON_DATA.contains(module))
        );
    }

    proptest! {
        #[test]
        fn what_stands_in_a_command_is_a_word(name in any::<String>()) {
            for language in ["python", "javascript", "r"] {
                for message in ["No module named '", "Cannot find module \"", "there is no package called "] {
                    if let Some(advice) = in_rootfs(language, "host", &format!("{message}{name}")) {
                        prop_assert!(advice.len() < 400);
                        prop_assert!(advice.chars().all(|c| c.is_ascii_alphanumeric() || "`._-/@ ;,()".contains(c)), "{}", advice);
                    }
                }
            }
        }
    }
}
