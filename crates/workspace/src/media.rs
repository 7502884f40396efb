//! The media type of a file that a run made.

/// How many of a file's first bytes decide its type.
pub(super) const START: usize = 8 << 10;

/// The media type, from the first bytes and the name.
///
/// The content decides, since a name can say anything; the name only chooses
/// between types that look alike.
pub(super) fn type_of(path: &[u8], start: &[u8]) -> &'static str {
    let extension = extension(path);
    if looks_like_text(start) {
        if start.starts_with(b"%PDF-") {
            return "application/pdf";
        }
        return by_extension(&TEXT, &extension)
            .or_else(|| infer::text::is_html(start).then_some("text/html"))
            .unwrap_or("text/plain");
    }
    match infer::get(start).map(|kind| kind.mime_type()) {
        // Many formats are archives inside, and their names say which.
        Some(archive @ ("application/zip" | "application/gzip")) => {
            by_extension(&ARCHIVES, &extension).unwrap_or(archive)
        }
        Some(known) => known,
        None => MAGIC
            .iter()
            .find(|(magic, _)| start.starts_with(magic))
            .map_or("application/octet-stream", |(_, kind)| kind),
    }
}

fn extension(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    match name.iter().rposition(|byte| *byte == b'.') {
        None | Some(0) => String::new(),
        Some(dot) => String::from_utf8_lossy(&name[dot + 1..]).to_lowercase(),
    }
}

fn by_extension(table: &[(&str, &'static str)], extension: &str) -> Option<&'static str> {
    table
        .iter()
        .find(|(known, _)| *known == extension)
        .map(|(_, kind)| *kind)
}

/// UTF-8, perhaps cut off at the end, without the control characters that no
/// text has.
fn looks_like_text(start: &[u8]) -> bool {
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && start.len() == START => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text
        .bytes()
        .any(|byte| byte < b' ' && !b"\t\n\r\x0c\x1b".contains(&byte))
}

/// Formats that are text, by extension.
const TEXT: [(&str, &str); 31] = [
    ("c", "text/x-c"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("geojson", "application/geo+json"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ics", "text/calendar"),
    ("ipynb", "application/x-ipynb+json"),
    ("java", "text/x-java"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("ndjson", "application/x-ndjson"),
    ("ps", "application/postscript"),
    ("py", "text/x-python"),
    ("r", "text/x-r"),
    ("rs", "text/x-rust"),
    ("rtf", "application/rtf"),
    ("sh", "application/x-sh"),
    ("sql", "application/sql"),
    ("svg", "image/svg+xml"),
    ("tex", "application/x-tex"),
    ("toml", "application/toml"),
    ("ts", "text/x-typescript"),
    ("tsv", "text/tab-separated-values"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// Formats that are a zip or gzip archive inside, by extension.
const ARCHIVES: [(&str, &str); 7] = [
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("jar", "application/java-archive"),
    ("npz", "application/x-npz"),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("rds", "application/x-r-data"),
    ("whl", "application/x-wheel+zip"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
];

/// Formats of data tools, by their first bytes.
const MAGIC: [(&[u8], &str); 4] = [
    (b"\x93NUMPY", "application/x-npy"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"ARROW1", "application/vnd.apache.arrow.file"),
    (b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn types() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        let zip = b"PK\x03\x04\x14\0\0\0\0\0";
        for (path, start, expected) in [
            ("growth.png", &png[..], "image/png"),
            ("growth.txt", png, "image/png"),
            ("growth", png, "image/png"),
            ("not.png", b"hello", "text/plain"),
            ("not.png", b"\x01\x02\x03", "application/octet-stream"),
            ("a/out.json", b"[1, 2]", "application/json"),
            ("OUT.CSV", b"BMW,3\n", "text/csv"),
            ("x.d/notes", b"BM is not a bitmap", "text/plain"),
            (".csv", b"a,b", "text/plain"),
            ("report", b"<html><body>", "text/html"),
            (
                "plot.svg",
                b"<?xml version=\"1.0\"?><svg/>",
                "image/svg+xml",
            ),
            ("paper.pdf", b"%PDF-1.7\n", "application/pdf"),
            (
                "paper.pdf",
                b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
                "application/pdf",
            ),
            (
                "book.xlsx",
                zip,
                "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            ),
            ("arrays.npz", zip, "application/x-npz"),
            ("archive.zip", zip, "application/zip"),
            ("a.npy", b"\x93NUMPY\x01\0", "application/x-npy"),
            (
                "data.parquet",
                b"PAR1\x15\x04",
                "application/vnd.apache.parquet",
            ),
            ("empty", b"", "text/plain"),
        ] {
            assert_eq!(
                type_of(path.as_bytes(), start),
                expected,
                "{path} {start:?}"
            );
        }
    }

    #[test]
    fn text_may_be_cut_off_where_reading_ended_only() {
        let mut cut = "é".repeat(START).into_bytes();
        cut.insert(0, b'x');
        cut.truncate(START);
        assert!(looks_like_text(&cut));
        assert!(!looks_like_text(b"caf\xc3"));
    }

    proptest! {
        /// The signatures are read from hostile bytes: none may panic.
        #[test]
        fn any_start_has_a_type(
            magic in proptest::sample::select(vec![
                &b"PK\x03\x04"[..], b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"RIFF", b"ftyp", b"\0\0\0\x18ftypmif1",
                b"\x1f\x8b", b"\x7fELF", b"MZ", b"OggS", b"ID3", b"II*\0", b"\xff\xd8\xff", b"AT&TFORM", b"",
            ]),
            rest in proptest::collection::vec(any::<u8>(), 0..600),
            length in 0usize..600,
        ) {
            let mut start = [magic, &rest].concat();
            start.truncate(length);
            prop_assert!(type_of(b"x.bin", &start).contains('/'));
        }
    }
}
