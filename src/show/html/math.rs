//! LaTeX as MathML, which browsers draw by themselves.
//!
//! The crate that translates it is not written for hostile input: some commands come
//! through unescaped, and one can make it panic. So what defines commands or names
//! characters by number is not translated, formulas are bounded, and what comes out is
//! read again: only elements and attributes of the lists below are copied, the text
//! between them is escaped as everything else, and anything else leaves the source.

use std::convert::Infallible;

use pulldown_latex::config::{DisplayMode, RenderConfig};
use pulldown_latex::{Parser, Storage, push_mathml};
use record::terminal::escape;

use super::markup::Markup;

/// Bytes of a formula that is drawn.
const MOST: usize = 4096;
/// Groups, environments and delimiters in each other, at most: the work grows with the
/// square of that.
const NESTED: usize = 128;
/// Commands that define others, which could grow without bound, or that name a
/// character by its number.
const REFUSED: [&str; 7] = [
    "\\char",
    "\\def",
    "\\futurelet",
    "\\let",
    "\\newcommand",
    "\\providecommand",
    "\\renewcommand",
];
#[rustfmt::skip]
const ELEMENTS: [&str; 25] = [
    "math", "mfrac", "mi", "mmultiscripts", "mn", "mo", "mover", "mpadded", "mphantom",
    "mprescripts", "mroot", "mrow", "ms", "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup",
    "mtable", "mtd", "mtext", "mtr", "munder", "munderover",
];
#[rustfmt::skip]
const ATTRIBUTES: [&str; 17] = [
    "accent", "accentunder", "class", "columnspan", "depth", "display", "displaystyle", "height",
    "largeop", "linethickness", "mathvariant", "maxsize", "minsize", "movablelimits",
    "scriptlevel", "stretchy", "width",
];

/// Draws a formula, on lines of its own or within a text; its source if that is not
/// possible. Says whether it was.
pub(super) fn formula(page: &mut Markup, source: &str, is_block: bool) -> bool {
    let drawn = translated(source, is_block).and_then(|mathml| checked(&mathml));
    let is_drawn = drawn.is_some();
    match drawn {
        Some(drawn) if is_block => {
            page.raw("<div class=\"math\">");
            page.append(drawn);
            page.raw("</div>\n");
        }
        Some(drawn) => {
            page.raw("<span class=\"math\">");
            page.append(drawn);
            page.raw("</span>");
        }
        None => page.element("<code>", source, "</code>"),
    }
    is_drawn
}

/// The formula between the dollars or brackets of a `text/latex` form, if that is all
/// that it holds.
pub(super) fn only(latex: &str) -> Option<&str> {
    let text = latex.trim();
    let pairs = [("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$")];
    let inside = pairs.iter().find_map(|(opening, closing)| {
        let rest = text.strip_prefix(opening)?;
        rest.strip_suffix(closing)
    });
    let formula = inside.or_else(|| text.starts_with("\\begin{").then_some(text))?;
    (!formula.trim().is_empty() && !formula.replace("\\$", "").contains('$')).then_some(formula)
}

/// The formula as the crate writes it.
fn translated(source: &str, is_block: bool) -> Option<String> {
    let is_refused = REFUSED.iter().any(|name| source.contains(name));
    if source.len() > MOST || is_refused || nested(source) > NESTED {
        return None;
    }
    let storage = Storage::new();
    let events = Parser::new(source, &storage).collect::<Result<Vec<_>, _>>();
    let config = RenderConfig {
        display_mode: match is_block {
            true => DisplayMode::Block,
            false => DisplayMode::Inline,
        },
        ..RenderConfig::default()
    };
    let mut mathml = String::new();
    let events = events.ok()?.into_iter().map(Ok::<_, Infallible>);
    push_mathml(&mut mathml, events, config).ok()?;
    Some(mathml)
}

/// At least how deep something lies in others.
fn nested(source: &str) -> usize {
    let mut depth: usize = 0;
    let mut most = 0;
    for byte in source.bytes() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most + source.matches("\\left").count() + source.matches("\\begin").count()
}

/// The same MathML, of known elements and attributes; `None` if there are others.
fn checked(mathml: &str) -> Option<Markup> {
    let mut page = Markup::default();
    let mut open = Vec::new();
    let mut rest = mathml;
    while let Some((text, after)) = rest.split_once('<') {
        page.text(&shown(text)?);
        // The crate escapes no sign of relation.
        if !after.starts_with(|c: char| c == '/' || c.is_ascii_alphabetic()) {
            page.text("<");
            rest = after;
            continue;
        }
        let (tag, behind) = after.split_once('>')?;
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            let opened: &'static str = open.pop()?;
            if opened != name {
                return None;
            }
            page.raw("</");
            page.raw(opened);
        } else {
            let name = tag.split([' ', '/']).next()?;
            let known = *ELEMENTS.iter().find(|known| **known == name)?;
            page.raw("<");
            page.raw(known);
            attributes(&mut page, &tag[name.len()..])?;
            match tag.ends_with('/') {
                // Closed in full: a browser knows the short form in MathML, readers of
                // plain HTML do not.
                true => {
                    page.raw("></");
                    page.raw(known);
                }
                false => open.push(known),
            }
        }
        page.raw(">");
    }
    (open.is_empty() && rest.is_empty()).then_some(page)
}

/// Copies the known attributes of a tag and leaves the others out.
fn attributes(page: &mut Markup, mut rest: &str) -> Option<()> {
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest == "/" {
            return Some(());
        }
        let (name, value) = rest.split_once("=\"")?;
        let (value, behind) = value.split_once('"')?;
        rest = behind;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " .%+-".contains(c);
        let known = ATTRIBUTES.iter().find(|known| **known == name);
        if let Some(name) = known.filter(|_| value.chars().all(is_plain)) {
            page.attribute(name, value);
        }
    }
}

/// The characters of an escaped text that are seen; `None` with one that changes how
/// others are.
fn shown(text: &str) -> Option<String> {
    // Invisible operators say something to readers of MathML, and show nothing.
    let text: String = text
        .chars()
        .filter(|c| !('\u{2061}'..='\u{2064}').contains(c))
        .collect();
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"");
    let text = text.replace("&#39;", "'").replace("&amp;", "&");
    let is_seen = |c: char| escape(c).is_none();
    text.chars().all(is_seen).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawn(source: &str) -> Option<String> {
        let mut page = Markup::default();
        formula(&mut page, source, true).then(|| page.into_text())
    }

    #[test]
    fn formulas_become_mathml() {
        assert_eq!(
            drawn("\\frac{x^{2}}{2} < \\alpha").unwrap(),
            "<div class=\"math\"><math display=\"block\"><mfrac><mrow><msup><mi>x</mi><mrow><mn>2</mn></mrow></msup></mrow>\
             <mrow><mn>2</mn></mrow></mfrac><mo>&lt;</mo><mi>α</mi></math></div>\n"
        );
        for source in [
            "\\displaystyle \\int_{0}^{\\infty} e^{- x^{2}}\\, dx",
            "\\left[\\begin{matrix}1 & 2\\\\3 & 4\\end{matrix}\\right]",
            "\\begin{cases} x & \\text{for}\\: x > 0 \\\\ 0 & \\text{otherwise} \\end{cases}",
            "\\begin{align} a &= b \\\\ c &= d \\end{align}",
            "\\hat{y} = \\sum_{i=1}^{n} \\sqrt[3]{\\mathbf{x}_i} \\quad \\text{a b}",
        ] {
            assert_eq!(
                drawn(source).is_some(),
                !source.contains("a & b"),
                "{source}"
            );
        }
    }

    #[test]
    fn what_is_not_drawn_is_shown_as_written() {
        for source in [
            "\\operatorname{<b onclick=x>}",
            "\\operatorname{<img src=x onerror=alert(1)>}",
            "\\operatorname{</math><script>}",
            "\\href{javascript:alert(1)}{x}",
            "\\def\\a{\\a\\a}\\a",
            "\\char é",
            "\\text{\u{202e}}",
            "\\frac{",
            &"x".repeat(MOST + 1),
            &format!("{}{}", "{".repeat(NESTED + 1), "}".repeat(NESTED + 1)),
            &"\\left(".repeat(NESTED + 1),
        ] {
            assert_eq!(drawn(source), None, "{source}");
        }
        let mut page = Markup::default();
        formula(&mut page, "\\operatorname{<b>}", false);
        assert_eq!(page.into_text(), "<code>\\operatorname{&lt;b&gt;}</code>");
    }

    /// The check is needed: without it, the crate's text would hold a tag.
    #[test]
    fn the_crate_lets_tags_through() {
        let mathml = translated("\\operatorname{<b>}", false).unwrap();
        assert!(mathml.contains("<b>"), "{mathml}");
    }

    #[test]
    fn only_whole_formulas_are_taken() {
        for (latex, formula) in [
            ("$\\displaystyle x$", Some("\\displaystyle x")),
            ("$$x$$", Some("x")),
            (" \\[x\\]\n", Some("x")),
            (
                "\\begin{align}x\\end{align}",
                Some("\\begin{align}x\\end{align}"),
            ),
            ("$5 and $6", None),
            ("$a$ and $b$", None),
            ("text", None),
            ("$$", None),
        ] {
            assert_eq!(only(latex), formula, "{latex}");
        }
    }

    proptest! {
        #[test]
        fn no_formula_ends_its_element(words in proptest::collection::vec(
            prop_oneof![
                "[a-z0-9{}^_&<>\"'=/ \\\\-]{0,6}",
                Just("\\operatorname{".to_owned()), Just("\\text{".to_owned()),
                Just("\\begin{matrix}".to_owned()), Just("\\end{matrix}".to_owned()),
                Just("\\frac".to_owned()), Just("\\left(".to_owned()), Just("\\right)".to_owned()),
                Just("<script>".to_owned()), Just("\\kern1em".to_owned()), any::<String>(),
            ],
            0..12,
        )) {
            if let Some(html) = drawn(&words.concat()) {
                let inside = html.strip_prefix("<div class=\"math\"><math display=\"block\"").unwrap();
                let inside = inside.strip_suffix("</math></div>\n").unwrap();
                for tag in inside.split('<').skip(1) {
                    let name = tag.trim_start_matches('/');
                    let end = name.find([' ', '>']).unwrap();
                    prop_assert!(ELEMENTS.contains(&&name[..end]), "{}", html);
                }
            }
        }
    }
}
