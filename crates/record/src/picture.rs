//! Pictures among the results.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::ResultItem;
use super::json::Form;

/// Media types that every API accepts, the best first.
const MEDIA_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// A picture whose bytes match its media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    /// `image/png`, `image/jpeg`, `image/webp` or `image/gif`.
    pub media_type: &'static str,
    /// Its bytes, without white space between.
    pub base64: Cow<'a, str>,
    /// Its size in bytes.
    pub size: u64,
    /// Its width and height in pixels, where its header has them.
    pub pixels: Option<(usize, usize)>,
}

impl Picture<'_> {
    /// The longer of its sides in pixels.
    pub fn longest_side(&self) -> Option<usize> {
        self.pixels.map(|(width, height)| width.max(height))
    }
}

/// Whether forms of this media type are pictures that every API accepts.
pub fn is_one(media_type: &str) -> bool {
    MEDIA_TYPES.contains(&media_type)
}

/// The best picture of a result, and why other forms were rejected.
pub fn of(item: &ResultItem) -> (Option<Picture<'_>>, Vec<String>) {
    let mut complaints = Vec::new();
    for media_type in MEDIA_TYPES {
        match item
            .formats
            .get(media_type)
            .map(|form| read(media_type, form))
        {
            Some(Ok(picture)) => return (Some(picture), complaints),
            Some(Err(complaint)) => complaints.push(complaint),
            None => {}
        }
    }
    (None, complaints)
}

/// A form of one of these media types as a picture.
///
/// # Errors
/// Why the form is not a picture of its media type.
pub fn read<'a>(media_type: &str, form: &'a Form) -> Result<Picture<'a>, String> {
    let known = MEDIA_TYPES.into_iter().find(|known| *known == media_type);
    let media_type = known.ok_or_else(|| format!("{media_type}: it is no picture for all"))?;
    let text = form
        .as_str()
        .ok_or_else(|| format!("{media_type}: it is no base64 text"))?;
    let base64 = match text.contains(|c: char| c.is_ascii_whitespace()) {
        true => Cow::Owned(text.split_ascii_whitespace().collect()),
        false => Cow::Borrowed(text),
    };
    let bytes = BASE64
        .decode(base64.as_bytes())
        .map_err(|_| format!("{media_type}: it is not valid base64"))?;
    match infer::get(&bytes).is_some_and(|kind| kind.mime_type() == media_type) {
        true => Ok(Picture {
            media_type,
            base64,
            size: bytes.len() as u64,
            pixels: imagesize::blob_size(&bytes)
                .ok()
                .map(|size| (size.width, size.height)),
        }),
        false => Err(format!("{media_type}: its bytes have another format")),
    }
}

/// The media type of bytes that are a picture which every API accepts.
pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
    let kind = infer::get(bytes)?.mime_type();
    MEDIA_TYPES.into_iter().find(|known| *known == kind)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn item(forms: &[(&str, Value)]) -> ResultItem {
        let forms = forms
            .iter()
            .map(|(name, form)| ((*name).to_owned(), form.clone().into()));
        ResultItem {
            formats: forms.collect(),
            ..ResultItem::default()
        }
    }

    #[test]
    fn the_first_picture_that_is_one_is_taken() {
        let item = item(&[
            ("image/png", json!("iVBORw0KGgo=")),
            ("image/jpeg", json!("/9j/4AAQ\n")),
            ("text/plain", json!("x")),
        ]);
        let (picture, complaints) = of(&item);
        let picture = picture.unwrap();
        assert_eq!((picture.media_type, picture.size), ("image/png", 8));
        assert_eq!(complaints, [""; 0]);
    }

    #[test]
    fn what_only_claims_to_be_a_picture_is_none() {
        let item = item(&[
            ("image/png", json!("<script>")),
            ("image/jpeg", json!("iVBORw0KGgo=")),
            ("image/webp", json!({"a": 1})),
            ("image/gif", json!("R0lGODlh\nAQAB AA==\n")),
        ]);
        let (picture, complaints) = of(&item);
        assert_eq!(picture.unwrap().base64, "R0lGODlhAQABAA==");
        assert_eq!(
            complaints,
            [
                "image/png: it is not valid base64",
                "image/jpeg: its bytes have another format",
                "image/webp: it is no base64 text",
            ]
        );
    }
}
