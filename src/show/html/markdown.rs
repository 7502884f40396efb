//! Markdown, drawn with the page's own elements: no HTML in it means anything.
//!
//! Links and pictures stay as they are written, so that an address is seen before
//! anybody follows it. Formulas stand between dollars, as in notebooks.

use minimad::{Composite, CompositeStyle, Compound, Line, Options, TableRow};

use super::markup::Markup;

/// Bytes of a text that is drawn.
const MOST: usize = 256 << 10;
/// Cells of a table's row: the crate's work grows with the square of that.
const CELLS: usize = 256;
/// Bytes of a formula within a line.
const INLINE: usize = 400;
const HEADINGS: [(&str, &str); 4] = [
    ("<h3>", "</h3>\n"),
    ("<h4>", "</h4>\n"),
    ("<h5>", "</h5>\n"),
    ("<h6>", "</h6>\n"),
];

/// Draws a text, unless it is too long for that; says whether it did.
pub(super) fn draw(page: &mut Markup, source: &str) -> bool {
    let is_wide = |line: &str| line.matches('|').count() > CELLS;
    if source.len() > MOST || source.lines().any(is_wide) {
        return false;
    }
    page.raw("<div class=\"prose\">\n");
    // Formulas on lines of their own; in code, dollars are dollars.
    let pieces: Vec<&str> = source.split("$$").collect();
    if pieces.len() % 2 == 1 && !source.contains("```") {
        for (index, piece) in pieces.into_iter().enumerate() {
            match index % 2 {
                0 => blocks(page, piece),
                _ => page.block("formula", piece.trim()),
            }
        }
    } else {
        blocks(page, source);
    }
    page.raw("</div>\n");
    true
}

/// What a line belongs to: lines of one kind that follow each other are one block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blank,
    Text,
    Heading,
    Bullets,
    Numbers,
    Code,
    Quote,
    Table,
    Rule,
}

fn kind(line: &Line<'_>) -> Kind {
    match line {
        Line::Normal(composite) => match composite.style {
            CompositeStyle::Paragraph if composite.compounds.is_empty() => Kind::Blank,
            CompositeStyle::Paragraph => Kind::Text,
            CompositeStyle::Header(_) => Kind::Heading,
            CompositeStyle::ListItem(_) => Kind::Bullets,
            CompositeStyle::OrderedListItem { .. } => Kind::Numbers,
            CompositeStyle::Code => Kind::Code,
            CompositeStyle::Quote => Kind::Quote,
        },
        Line::TableRow(_) | Line::TableRule(_) => Kind::Table,
        Line::HorizontalRule => Kind::Rule,
        Line::CodeFence(_) => Kind::Blank,
    }
}

fn blocks(page: &mut Markup, source: &str) {
    let text = minimad::parse_text(source, Options::default());
    for lines in text.lines.chunk_by(|one, next| kind(one) == kind(next)) {
        match lines.first().map_or(Kind::Blank, kind) {
            Kind::Blank => {}
            Kind::Text => enclosed(page, "<p>", lines, "</p>\n"),
            Kind::Quote => enclosed(page, "<blockquote>", lines, "</blockquote>\n"),
            Kind::Heading => composites(lines).for_each(|line| heading(page, line)),
            Kind::Bullets => items(page, "<ul>\n", lines, "</ul>\n"),
            Kind::Numbers => items(page, "<ol>\n", lines, "</ol>\n"),
            Kind::Code => {
                let code: Vec<String> = composites(lines).map(plain).collect();
                page.block("Code", &code.join("\n"));
            }
            Kind::Table => table(page, lines),
            Kind::Rule => page.raw("<hr>\n"),
        }
    }
}

fn composites<'a>(lines: &'a [Line<'a>]) -> impl Iterator<Item = &'a Composite<'a>> {
    lines.iter().filter_map(|line| match line {
        Line::Normal(composite) => Some(composite),
        _ => None,
    })
}

fn enclosed(page: &mut Markup, open: &'static str, lines: &[Line<'_>], close: &'static str) {
    page.raw(open);
    for (index, line) in composites(lines).enumerate() {
        if index > 0 {
            page.raw("\n");
        }
        words(page, line);
    }
    page.raw(close);
}

fn heading(page: &mut Markup, line: &Composite<'_>) {
    let level = match line.style {
        CompositeStyle::Header(level) => usize::from(level),
        _ => 1,
    };
    // The page has two levels of its own above.
    let (open, close) = HEADINGS[level.clamp(1, HEADINGS.len()) - 1];
    page.raw(open);
    words(page, line);
    page.raw(close);
}

fn items(page: &mut Markup, open: &'static str, lines: &[Line<'_>], close: &'static str) {
    page.raw(open);
    for line in composites(lines) {
        page.raw("<li");
        let (indent, number) = match line.style {
            CompositeStyle::OrderedListItem { level, index } => (level, Some(index)),
            CompositeStyle::ListItem(level) => (level, None),
            _ => (0, None),
        };
        if let Some(number) = number {
            page.attribute("value", &number.to_string());
        }
        if indent > 0 {
            let indent = format!("margin-left: {}rem", indent.min(16));
            page.attribute("style", &indent);
        }
        page.raw(">");
        words(page, line);
        page.raw("</li>\n");
    }
    page.raw(close);
}

fn table(page: &mut Markup, lines: &[Line<'_>]) {
    let cells = |row: &TableRow<'_>| row.cells.iter().map(plain).collect::<Vec<String>>();
    let mut rows: Vec<Vec<String>> = (lines.iter())
        .filter_map(|line| match line {
            Line::TableRow(row) => Some(cells(row)),
            _ => None,
        })
        .collect();
    let has_header = matches!(lines, [Line::TableRow(_), Line::TableRule(_), ..]);
    let header = match has_header {
        true => rows.remove(0),
        false => Vec::new(),
    };
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    page.table("Table", &header, &rows);
}

/// A line's text without its marks.
fn plain(line: &Composite<'_>) -> String {
    line.compounds.iter().map(|part| part.src).collect()
}

fn words(page: &mut Markup, line: &Composite<'_>) {
    for part in &line.compounds {
        let marks = [
            (part.bold, "<b>", "</b>"),
            (part.italic, "<em>", "</em>"),
            (part.strikeout, "<del>", "</del>"),
        ];
        let marks = || marks.iter().filter(|(is_set, ..)| *is_set);
        marks().for_each(|(_, open, _)| page.raw(open));
        match part.code {
            true => page.element("<code>", part.src, "</code>"),
            false => with_formulas(page, part),
        }
        marks().rev().for_each(|(_, _, close)| page.raw(close));
    }
}

/// A text and the formulas in it: a dollar opens one before anything but a space, and
/// closes it behind anything but a space, as pandoc has it.
fn with_formulas(page: &mut Markup, part: &Compound<'_>) {
    let mut rest = part.src;
    while let Some((before, after)) = rest.split_once('$') {
        page.text(before);
        let formula = after.split_once('$').filter(|(formula, behind)| {
            let is_edge = |c: char| c.is_whitespace();
            !formula.is_empty()
                && formula.len() <= INLINE
                && !formula.starts_with(is_edge)
                && !formula.ends_with(is_edge)
                && !behind.starts_with(|c: char| c.is_ascii_digit())
        });
        match formula {
            Some((formula, behind)) => {
                page.element("<code>", formula, "</code>");
                rest = behind;
            }
            None => {
                page.text("$");
                rest = after;
            }
        }
    }
    page.text(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(source: &str) -> String {
        let mut page = Markup::default();
        assert!(draw(&mut page, source));
        let html = page.into_text();
        let html = html.strip_prefix("<div class=\"prose\">\n").unwrap();
        html.strip_suffix("</div>\n").unwrap().to_owned()
    }

    #[test]
    fn blocks_have_elements() {
        assert_eq!(
            drawn("# T *i*\n\none **b**\ntwo `<c>`\n\n- x\n  - y\n\n3. z\n> q\n\n---\n"),
            "<h3>T <em>i</em></h3>\n<p>one <b>b</b>\ntwo <code>&lt;c&gt;</code></p>\n\
             <ul>\n<li>x</li>\n<li style=\"margin-left: 2rem\">y</li>\n</ul>\n\
             <ol>\n<li value=\"3\">z</li>\n</ol>\n<blockquote>q</blockquote>\n<hr>\n"
        );
        let code = drawn("```py\na $x$ *b*\n```\n");
        assert!(code.contains(">\na $x$ *b*</pre>"), "{code}");
        let table = drawn("|a|b|\n|-|-|\n|x|1|\n");
        assert!(table.contains("<th scope=\"col\">a</th>"), "{table}");
        assert!(table.contains("<td class=\"number\">1</td>"), "{table}");
    }

    #[test]
    fn formulas_stand_between_dollars() {
        assert_eq!(
            drawn("it costs $5 or $6, $x < 2$\n\n$$\n\\frac{1}{2}\n$$\n"),
            "<p>it costs $5 or $6, <code>x &lt; 2</code></p>\n\
             <pre tabindex=\"0\" role=\"region\" aria-label=\"formula\">\n\\frac{1}{2}</pre>\n"
        );
    }

    #[test]
    fn no_markdown_is_a_link_a_picture_or_html() {
        let html = drawn(
            "[x](javascript:alert(1)) <a href=x> ![p](http://h/p.png) <http://h> <script>x</script>",
        );
        assert_eq!(
            html,
            "<p>[x](javascript:alert(1)) &lt;a href=x&gt; ![p](http://h/p.png) \
             &lt;http://h&gt; &lt;script&gt;x&lt;/script&gt;</p>\n"
        );
    }

    /// Text that makes parsers slow or deep is drawn all the same.
    #[test]
    fn repetitions_are_drawn() {
        let units = [
            ">", "[", "*", "**a*", "- ", "`", "$", "$x$", "  ", "#", "1. ", "|-|\n",
        ];
        for unit in units {
            let html = drawn(&unit.repeat(MOST / 16 / unit.len()));
            assert!(html.len() < 32 << 20, "{unit}: {}", html.len());
        }
        let mut page = Markup::default();
        assert!(!draw(&mut page, &"x".repeat(MOST + 1)));
        assert!(!draw(&mut page, &"|".repeat(CELLS + 1)));
    }
}
