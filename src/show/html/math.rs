//! Formulas: LaTeX, shown as its source.
//!
//! Browsers draw MathML by themselves, but no crate that translates LaTeX to it is made for hostile
//! input: a page with the source is worth more than a parser that may panic.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
