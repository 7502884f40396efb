//! Text of doc comments and of the pages' own sections to roff.

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// A line of text; what stands between backquotes becomes bold.
pub(crate) fn words(roff: &mut Roff, text: &str) {
    roff.text(inlines(text));
}

pub(crate) fn inlines(text: &str) -> Vec<Inline> {
    // Links of the source's documentation have no meaning in a manual page.
    let text = text.replace("[`", "`").replace("`]", "`");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let pieces = text
        .split('`')
        .enumerate()
        .filter(|(_, piece)| !piece.is_empty());
    pieces
        .map(|(index, piece)| match index % 2 {
            0 => roman(piece),
            _ => bold(piece),
        })
        .collect()
}

/// Paragraphs between empty lines; one whose lines are indented is shown as it
/// stands.
pub(crate) fn paragraphs(roff: &mut Roff, text: &str) {
    for (index, paragraph) in text.trim_end().split("\n\n").enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        if paragraph.starts_with("    ") {
            roff.control("RS", ["4"]).control("nf", []);
            for line in paragraph.lines() {
                let line = line.strip_prefix("    ").unwrap_or(line);
                roff.text([roman(line)]);
            }
            roff.control("fi", []).control("RE", []);
        } else {
            words(roff, paragraph);
        }
    }
}
