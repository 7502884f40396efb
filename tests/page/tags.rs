//! A reader of HTML as strict as the page is plain: quoted attributes only, no
//! comments, and text in which nothing looks like a tag.

/// A tag that opens an element.
#[derive(Debug)]
pub(crate) struct Tag {
    pub(crate) name: String,
    /// Names and values, these still escaped.
    pub(crate) attributes: Vec<(String, String)>,
}

/// The tags of a page.
///
/// # Panics
/// Something is no tag of that kind.
pub(crate) fn of(page: &str) -> Vec<Tag> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a bare > in {before:?}");
        let (tag, after) = read(after);
        // The style is the program's own, and the one raw text.
        rest = match tag.name.as_str() {
            "style" => after.split_once("</style>").unwrap().1,
            _ => after,
        };
        if !tag.name.starts_with('/') {
            found.push(tag);
        }
    }
    found
}

/// Reads what is behind a `<`; returns what is behind its `>`.
fn read(text: &str) -> (Tag, &str) {
    let end = text.find([' ', '>', '\n']).unwrap();
    let name = text[..end].to_owned();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "/!-".contains(c);
    assert!(name.chars().all(is_name), "no tag: {name:?}");
    let mut attributes = Vec::new();
    let mut rest = text[end..].trim_start();
    loop {
        if let Some(rest) = rest.strip_prefix('>') {
            return (Tag { name, attributes }, rest);
        }
        let end = rest.find(['=', ' ', '>']).unwrap();
        let attribute = rest[..end].to_owned();
        rest = &rest[end..];
        let mut value = String::new();
        if let Some(quoted) = rest.strip_prefix("=\"") {
            let (inside, after) = quoted.split_once('"').unwrap();
            value = inside.to_owned();
            rest = after;
        }
        assert!(!value.contains(['<', '>']), "{attribute}: {value:?}");
        attributes.push((attribute, value));
        rest = rest.trim_start();
    }
}

/// The page without its attributes.
pub(crate) fn without_attributes(page: &str) -> String {
    let pieces = page.split('"').enumerate();
    pieces
        .filter(|(index, _)| index % 2 == 0)
        .map(|(_, piece)| piece)
        .collect()
}
