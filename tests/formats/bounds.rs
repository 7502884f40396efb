//! No record, however it was made, exceeds the bound of a shape.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use record::format::{Format, Shape};
use record::json::Json;
use record::{Record, ResultItem, Truncation};
use serde_json::{Value, json};

use super::{PNG, complaints, sample, shaped};

/// The JSON of a shape with this bound.
fn written(shape: Shape, record: &Record, max: Option<usize>) -> String {
    let mut text = Vec::new();
    let call_id = "\"call\"".repeat(40);
    let format = Format {
        shape,
        call_id,
        max,
    };
    format.write(record, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Text of any size, which may take up to six times as much in JSON.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[a-z \"\\\\\\x00\\n`€😀]{1,8}",
        Just("\u{1}".to_owned()),
    ];
    let times = prop_oneof![0..3_usize, 0..3_000_usize, 0..60_000_usize];
    (piece, times).prop_map(|(piece, times)| {
        let most = 100_000 / piece.len().max(1);
        piece.repeat(times.min(most))
    })
}

fn picture() -> impl Strategy<Value = String> {
    prop_oneof![0..100_usize, 0..40_000_usize, 0..200_000_usize].prop_map(|size| {
        let mut bytes = BASE64.decode(PNG).unwrap();
        bytes.resize(8 + size, size.to_le_bytes()[0]);
        BASE64.encode(bytes)
    })
}

prop_compose! {
    fn item()(
        text in proptest::option::of(text()),
        html in proptest::option::of(text()),
        picture in proptest::option::of(picture()),
        name in text(),
        is_main_result in any::<bool>(),
        notes in vec("[a-z\"]{0,600}", 0..4),
    ) -> ResultItem {
        let json = |text: &String| Json::of(&json!({"type": "line", "title": text, "columns": [text], "rows": [[text]]}));
        let mut formats = BTreeMap::new();
        formats.extend(html.as_ref().map(|html| ("text/html".to_owned(), html.as_str().into())));
        formats.extend(picture.map(|picture| ("image/png".to_owned(), picture.as_str().into())));
        formats.extend(html.as_ref().map(|html| (name, html.as_str().into())));
        ResultItem {
            is_main_result,
            chart: text.as_ref().map(json),
            data: html.as_ref().map(json),
            metadata: html.as_ref().map(json),
            display_id: text.clone(),
            text,
            formats,
            notes,
        }
    }
}

prop_compose! {
    /// A sample with parts of any size.
    fn record()(
        base in prop_oneof![Just("rich"), Just("error"), Just("cut"), Just("hostile"), Just("setup")],
        [stdout, stderr, context, name, reason] in [text(), text(), text(), text(), text()],
        items in vec(item(), 0..6),
        times in prop_oneof![Just(1_usize), 1..300_usize],
        is_error in any::<bool>(),
    ) -> Record {
        let mut record = sample(base);
        let many = |text: &String| vec![text.clone(); times.min(200_000 / (text.len() + 1))];
        record.is_error = is_error;
        record.stdout = Some(stdout.into());
        record.stderr = Some(stderr.into());
        record.context = Some(context.clone());
        record.operator_hint = Some(context.clone());
        record.signal = Some(name.clone());
        record.id = name.clone();
        record.argv = Some(many(&name).into_iter().map(Into::into).collect());
        record.warnings = many(&reason);
        record.error = sample("error").error;
        if let Some(error) = &mut record.error {
            error.name = name.clone();
            error.message = reason.clone();
            error.traceback = many(&reason);
        }
        for list in [&mut record.denied, &mut record.denied_to_interpreter] {
            *list = vec![sample("error").denied[0].clone(); times];
            for denied in list.iter_mut().take(3) {
                denied.kind = name.clone();
                denied.reason = Some(reason.clone());
            }
        }
        record.files = vec![sample("hostile").files[0].clone(); times];
        if let Some(file) = record.files.first_mut() {
            file.path = name.clone().into();
            file.content = Some(context.into());
            file.sha256 = Some(reason.clone());
        }
        for key in many(&name).into_iter().enumerate().map(|(n, name)| format!("{n}{name}")) {
            let cut = Truncation { total: 9, kept: 1, part: reason.clone(), head: None };
            record.truncated.insert(key.clone(), cut);
            record.timing.steps.insert(key, 1.0);
        }
        if let Some(isolation) = &mut record.isolation {
            isolation.namespaces = many(&name);
        }
        if let Some(error) = &mut record.setup_error {
            error.message = reason.clone();
            error.hint = Some(name);
        }
        record.usage.by = reason;
        record.results = items.into_iter().cycle().take(times.min(40)).collect();
        record
    }
}

/// Each case takes seconds. Without the macro, in which PROPTEST_CASES overrides what is chosen here.
#[test]
fn no_record_exceeds_the_bound_of_a_shape() {
    let usual = ProptestConfig::default();
    let config = ProptestConfig {
        cases: (usual.cases / 256).max(1),
        ..usual
    };
    let more = prop_oneof![0..1_000_usize, 0..100_000_usize];
    let run = TestRunner::new(config).run(&(record(), more), |(record, more)| {
        for shape in Shape::ALL {
            let Some(default) = shape.default_max() else {
                continue;
            };
            for max in [
                None,
                Some(Format::LEAST_MAX),
                Some(Format::LEAST_MAX + more),
            ] {
                is_within(shape, &record, max, default)?;
            }
        }
        Ok(())
    });
    run.unwrap();
}

fn is_within(
    shape: Shape,
    record: &Record,
    max: Option<usize>,
    default: usize,
) -> Result<(), TestCaseError> {
    let text = written(shape, record, max);
    let most = max.unwrap_or(default);
    prop_assert!(
        text.len() <= most,
        "{}: {} of {most}",
        shape.name(),
        text.len()
    );
    let value: Value = serde_json::from_str(&text).unwrap();
    if let Some(text) = value["content"][0]["text"]
        .as_str()
        .or(value["output"].as_str())
    {
        let is_mcp_error = shape == Shape::Mcp && record.is_error;
        let most = if is_mcp_error { 11_000 } else { 50_000 };
        prop_assert!(text.chars().count() <= most);
    }
    if shape == Shape::Mcp {
        let structured = value["structuredContent"].to_string();
        prop_assert!(structured.len() <= 50_000, "{}", structured.len());
        prop_assert!(!structured.contains("\"image/png\":"));
    }
    Ok(())
}

/// With room for all of it, nothing is cut; with less, most of the room is used.
#[test]
fn a_bound_cuts_no_more_than_it_must() {
    let mut record = sample("ok");
    record.stdout = Some("x".repeat(60_000).into());
    let value = shaped(Shape::Tool, &record);
    let kept = value["stdout"].as_str().unwrap();
    assert!(
        kept.contains("x[… 10.") && kept.contains(" left out …]x"),
        "{}",
        &kept[..40]
    );
    assert!(kept.len() > 49_000, "{}", kept.len());
    for shape in [Shape::Tool, Shape::E2b] {
        let text = written(shape, &record, Some(100_000));
        assert!(text.contains(&"x".repeat(60_000)), "{}", shape.name());
    }
    let text = written(Shape::E2b, &record, Some(20_000));
    assert!(text.len() > 19_000, "{}", text.len());
    assert_eq!(
        complaints(Shape::E2b, &serde_json::from_str(&text).unwrap()),
        [""; 0]
    );
}

#[test]
fn a_picture_is_there_once() {
    let mut record = sample("rich");
    record.results.truncate(1);
    record.results.push(record.results[0].clone());
    for shape in [Shape::Mcp, Shape::Anthropic, Shape::Openai] {
        let text = shaped(shape, &record).to_string();
        assert_eq!(text.matches(PNG).count(), 1, "{}", shape.name());
        let said = "- result 2: image/png, 8 bytes: the same as that of result 1";
        assert!(text.contains(said), "{text}");
    }
    let structured = &shaped(Shape::Mcp, &record)["structuredContent"];
    let notes = json!(["image/png: in content"]);
    assert_eq!(structured["results"][0]["notes"], notes);
}

/// The Messages API refuses such a picture, and with it the whole request.
#[test]
fn pictures_with_too_many_pixels_are_left_out() {
    let header = |width: u32| {
        let mut bytes = BASE64.decode(PNG).unwrap();
        bytes.extend(*b"\0\0\0\rIHDR");
        bytes.extend(width.to_be_bytes());
        bytes.extend([0, 0, 0, 9, 8, 6, 0, 0, 0]);
        BASE64.encode(bytes)
    };
    for (width, count) in [(8000, 2), (8001, 1)] {
        let mut record = sample("rich");
        record.results.truncate(1);
        let form = header(width).as_str().into();
        record.results[0]
            .formats
            .insert("image/png".to_owned(), form);
        let value = shaped(Shape::Anthropic, &record);
        assert_eq!(value["content"].as_array().unwrap().len(), count);
        let text = value["content"][0]["text"].as_str().unwrap();
        assert_eq!(
            text.contains("8001 pixels on a side: too large"),
            width > 8000,
            "{text}"
        );
    }
}

/// What a small record lacks is listed in its own fields.
#[test]
fn a_record_for_programs_shows_what_it_lacks() {
    let mut record = sample("error");
    record.results = vec![sample("rich").results[1].clone(); 3000];
    record.stderr = Some("e".repeat(80_000).into());
    let value = shaped(Shape::Mcp, &record);
    let structured = &value["structuredContent"];
    assert_eq!(structured["truncated"]["results"]["total"], 3000);
    assert_eq!(structured["truncated"]["stderr"]["total"], 80_000);
    let kept = structured["results"].as_array().unwrap().len();
    assert_eq!(structured["truncated"]["results"]["kept"], kept);
    assert!(kept > 20, "{kept}");
    let text = written(Shape::E2b, &record, Some(Format::LEAST_MAX));
    assert!(text.contains(" of 3000 kept"), "{text}");
}
