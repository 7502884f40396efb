//! Compares a record with a case's expectations.

use std::path::PathBuf;

use base64::Engine as _;
use serde_json::Value;

use super::case::{Expect, ExpectedError, ExpectedFile, ExpectedResult};

/// The result of an execution.
pub(crate) struct Ran {
    pub(crate) json: Value,
    /// Where the changed files were copied to.
    pub(crate) out: PathBuf,
    /// Holds the directory.
    pub(crate) _scratch: tempfile::TempDir,
}

type Verdict = Result<(), String>;

pub(crate) fn record(expect: &Expect, ran: &Ran) -> Verdict {
    let record = &ran.json;
    for (name, wanted) in [
        ("outcome", expect.outcome.clone().map(Value::from)),
        ("exit_code", expect.exit_code.map(Value::from)),
        ("is_error", expect.is_error.map(Value::from)),
        ("is_retryable", expect.is_retryable.map(Value::from)),
        (
            "error_category",
            expect.error_category.clone().map(Value::from),
        ),
        ("stdout", expect.stdout.clone().map(Value::from)),
        ("stderr", expect.stderr.clone().map(Value::from)),
    ] {
        if let Some(wanted) = wanted {
            equal(name, &record[name], &wanted)?;
        }
    }
    contains(
        "stdout",
        &record["stdout"],
        expect.stdout_contains.as_deref(),
    )?;
    contains(
        "context",
        &record["context"],
        expect.context_contains.as_deref(),
    )?;
    if let Some(wanted) = expect.truncated_stdout {
        let is = record["truncated"].get("stdout").is_some();
        equal("truncated.stdout", &is.into(), &wanted.into())?;
    }
    if let Some(wanted) = &expect.error {
        error(wanted, &record["error"])?;
    }
    let results = record["results"].as_array().map_or(&[][..], Vec::as_slice);
    let count = expect
        .results
        .as_ref()
        .map(Vec::len)
        .or(expect.results_count);
    if let Some(count) = count {
        equal("number of results", &results.len().into(), &count.into())?;
    }
    for (wanted, is) in expect.results.iter().flatten().zip(results) {
        result(wanted, is)?;
    }
    expect.files.iter().try_for_each(|wanted| file(wanted, ran))
}

fn error(wanted: &ExpectedError, is: &Value) -> Verdict {
    if let Some(name) = &wanted.name {
        equal("error.name", &is["name"], &name.as_str().into())?;
    }
    contains(
        "error.message",
        &is["message"],
        wanted.message_contains.as_deref(),
    )?;
    let lines = is["traceback"].as_array().into_iter().flatten();
    let traceback: Vec<&str> = lines.filter_map(Value::as_str).collect();
    let traceback = Value::from(traceback.join("\n"));
    contains(
        "error.traceback",
        &traceback,
        wanted.traceback_contains.as_deref(),
    )
}

fn result(wanted: &ExpectedResult, is: &Value) -> Verdict {
    if let Some(text) = &wanted.text {
        equal("text of a result", &is["text"], &text.as_str().into())?;
    }
    contains(
        "text of a result",
        &is["text"],
        wanted.text_contains.as_deref(),
    )?;
    if let Some(main) = wanted.is_main_result {
        equal("is_main_result", &is["is_main_result"], &main.into())?;
    }
    let format = |name: &str| match name {
        "text/plain" => &is["text"],
        _ => &is["formats"][name],
    };
    for name in &wanted.formats {
        if format(name).is_null() {
            return Err(format!("a result has no {name}"));
        }
    }
    contains(
        "text/html",
        format("text/html"),
        wanted.html_contains.as_deref(),
    )?;
    if wanted.png {
        png(format("image/png"))
    } else {
        Ok(())
    }
}

/// It must decode and have a reasonable size.
fn png(data: &Value) -> Verdict {
    let text = data.as_str().ok_or("image/png is no text")?;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|e| format!("image/png: {e}"))?;
    let failed = |e: png::DecodingError| format!("image/png: {e}");
    let mut image = png::Decoder::new(std::io::Cursor::new(bytes))
        .read_info()
        .map_err(failed)?;
    let size = image.output_buffer_size().ok_or("image/png: too large")?;
    image.next_frame(&mut vec![0; size]).map_err(failed)?;
    let (width, height) = image.info().size();
    if width < 100 || height < 100 {
        return Err(format!("image/png: {width}×{height}"));
    }
    Ok(())
}

fn file(wanted: &ExpectedFile, ran: &Ran) -> Verdict {
    let path = Value::from(wanted.path.as_str());
    let list = ran.json["files"].as_array().into_iter().flatten();
    let is = list
        .into_iter()
        .find(|file| file["path"] == path)
        .ok_or_else(|| format!("no file {path}"))?;
    if let Some(change) = &wanted.change {
        equal("change", &is["change"], &change.as_str().into())?;
    }
    if let Some(media_type) = &wanted.media_type {
        equal("media_type", &is["media_type"], &media_type.as_str().into())?;
    }
    if let Some(part) = &wanted.contains {
        let text = std::fs::read_to_string(ran.out.join(&wanted.path))
            .map_err(|e| format!("{path}: {e}"))?;
        contains(&wanted.path, &text.into(), Some(part))?;
    }
    Ok(())
}

fn equal(what: &str, is: &Value, wanted: &Value) -> Verdict {
    if is == wanted {
        return Ok(());
    }
    Err(format!("{what} is {is}, not {wanted}"))
}

fn contains(what: &str, is: &Value, part: Option<&str>) -> Verdict {
    match (part, is.as_str()) {
        (None, _) => Ok(()),
        (Some(part), Some(text)) if text.contains(part) => Ok(()),
        (Some(part), _) => Err(format!("{what} does not contain {part:?}")),
    }
}
