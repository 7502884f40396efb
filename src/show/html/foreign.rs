//! HTML that the code made, in a page that does not trust it.
//!
//! The frame has no right at all (`sandbox=""`): no scripts, no forms, no way out
//! of it. It inherits the page's policy, so that it loads nothing. Yet browsers
//! look up or connect to hosts ahead of what they then refuse: for hints (`link`),
//! and for frames within the frame. That alone would show such a host that the
//! page was read, and could carry data in a name. So only elements that show
//! something keep their names; with another one they have no meaning. No element
//! comes into being whose tag is not spelled out, so this needs no parser.

use super::markup::Markup;

/// Bytes that are shown.
const MOST: usize = 1 << 20;
/// Elements that are shown.
#[rustfmt::skip]
const SHOWN: &[&str] = &[
    "abbr", "article", "aside", "b", "blockquote", "br", "caption", "center", "cite", "code", "col",
    "colgroup", "dd", "del", "details", "div", "dl", "dt", "em", "figcaption", "figure", "font",
    "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "i", "img", "ins", "kbd", "li",
    "main", "mark", "meter", "ol", "p", "pre", "progress", "q", "s", "samp", "section", "small",
    "span", "strike", "strong", "style", "sub", "summary", "sup", "table", "tbody", "td", "tfoot",
    "th", "thead", "tr", "tt", "u", "ul", "var",
    "circle", "clippath", "defs", "ellipse", "g", "line", "lineargradient", "path", "polygon",
    "polyline", "radialgradient", "rect", "stop", "svg", "text", "tspan",
];

/// Shows `html` in a frame of its own.
pub(super) fn frame(page: &mut Markup, html: &str) {
    if html.len() > MOST {
        page.raw("<p class=\"note\">Left out: text/html, too large for a page</p>\n");
        return;
    }
    page.raw(
        "<iframe sandbox=\"\" title=\"HTML that the code made\" referrerpolicy=\"no-referrer\"",
    );
    let rows = html.matches("<tr").count();
    if rows > 0 {
        // No taller than a table needs: the frame cannot say how tall that is.
        let height = (rows * 2 + 2).clamp(8, 32);
        page.attribute("style", &format!("height: {height}rem"));
    }
    page.attribute("srcdoc", &tamed(html));
    page.raw("></iframe>\n");
}

/// The same, but elements that do more than show something are of no kind that a
/// browser knows. What a script contains is not shown.
fn tamed(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start + 1);
        let slash = usize::from(tag.starts_with('/'));
        let (slash, tag) = tag.split_at(slash);
        let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>');
        let name = &tag[..tag.find(is_end).unwrap_or(tag.len())];
        text.push_str(before);
        text.push_str(slash);
        if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            text.push_str(&known(name));
            rest = &tag[name.len()..];
        } else {
            rest = tag;
        }
    }
    text.push_str(rest);
    text
}

/// The name under which an element is let through.
fn known(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "script" => "template".to_owned(),
        _ if SHOWN.contains(&lower.as_str()) => name.to_owned(),
        // A `<` in it would begin a tag of its own elsewhere.
        _ => format!("x-{}", lower.replace('<', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_more_than_show_has_no_meaning() {
        for (html, shown) in [
            ("<b>x</b> < y <3 </>", "<b>x</b> < y <3 </>"),
            ("<LiNk rel=preconnect>", "<x-link rel=preconnect>"),
            ("<meta/http-equiv=refresh>", "<x-meta/http-equiv=refresh>"),
            ("<iframe\nsrc=x></IFRAME>", "<x-iframe\nsrc=x></x-iframe>"),
            ("<<base href=x><p<a b>", "<<x-base href=x><x-p-a b>"),
            ("<script>a < b</script>", "<template>a < b</template>"),
            (
                "<template><img></template>",
                "<x-template><img></x-template>",
            ),
            ("<clipPath><é<object", "<clipPath><é<x-object"),
            ("<!-- <embed> --><?php <a>", "<!-- <x-embed> --><?php <x-a>"),
        ] {
            assert_eq!(tamed(html), shown);
        }
    }

    #[test]
    fn a_frame_has_no_rights() {
        let mut page = Markup::default();
        frame(&mut page, "<p>\"x\"");
        let html = page.into_text();
        assert!(html.starts_with("<iframe sandbox=\"\" "), "{html}");
        assert!(
            html.ends_with(" srcdoc=\"&lt;p&gt;&quot;x&quot;\"></iframe>\n"),
            "{html}"
        );
        let mut page = Markup::default();
        frame(&mut page, &"x".repeat(MOST + 1));
        assert!(!page.into_text().contains("iframe"));
    }
}
