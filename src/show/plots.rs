//! The pictures of a record as files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::chart::{self, Shown};
use record::json::Form;
use record::{Record, ResultItem, picture};

/// A name and the content of a file for each result that is a picture, or a chart that can
/// be drawn: `result-1.png`, by the result's number.
pub fn plots(record: &Record) -> impl Iterator<Item = (String, Vec<u8>)> {
    let results = record.results.iter().enumerate();
    results.filter_map(|(index, item)| {
        let (extension, content) = plot(item)?;
        Some((format!("result-{}.{extension}", index + 1), content))
    })
}

fn plot(item: &ResultItem) -> Option<(&'static str, Vec<u8>)> {
    if let (Some(picture), _) = picture::of(item) {
        let extension = match picture.media_type {
            "image/jpeg" => "jpg",
            "image/webp" => "webp",
            "image/gif" => "gif",
            _ => "png",
        };
        let content = BASE64.decode(picture.base64.as_bytes()).ok()?;
        return Some((extension, content));
    }
    if let Some(svg) = item.formats.get("image/svg+xml").and_then(Form::as_str) {
        return Some(("svg", svg.into()));
    }
    match chart::of(item)? {
        Shown::Picture { svg, .. } => Some(("svg", svg.into())),
        Shown::Values { .. } => None,
    }
}
