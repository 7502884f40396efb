//! The channel's reader against whatever may come.

use std::path::Path;

use languages::frames::{
    Code, Displayed, Frame, FrameReader, REQUEST_CAP, Request, Violation, Work,
};
use record::bytes::RawText;
use record::{CodeError, ResultItem};
use serde_json::{Value, json};

mod fields;
mod malformed;
mod random;

type Field<'a> = (u8, &'a str, &'a [u8]);

const EXECUTION: Field<'static> = (b't', "execution", b"1");

fn message<K: AsRef<[u8]>>(fields: &[(u8, K, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (form, key, value) in fields {
        let key = key.as_ref();
        body.extend([*form, key.len() as u8]);
        body.extend((value.len() as u32).to_be_bytes());
        body.extend(key);
        body.extend(*value);
    }
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

/// A frame of the first execution.
fn framed(kind: &[u8], fields: &[Field<'_>]) -> Vec<u8> {
    message(&[&[(b't', "kind", kind), EXECUTION], fields].concat())
}

/// A frame as the record has it, without fields that hold nothing.
fn shown(frame: Frame) -> Value {
    let mut shown = match frame {
        Frame::Started => json!("started"),
        Frame::Result(Displayed { item, notes, .. }) => json!({"result": item, "why": notes}),
        Frame::Update(Displayed { item, notes, .. }) => json!({"update": item, "why": notes}),
        Frame::Clear { wait } => json!({"clear": wait}),
        Frame::Error { error, is_syntax } => json!({"error": error, "syntax": is_syntax}),
        Frame::Ending => json!("ending"),
        Frame::Variables(list) => json!({"variables": list}),
        Frame::Done { .. } => json!("done"),
        Frame::Exit { status } => json!({"exit": status}),
        Frame::Unknown => json!("unknown"),
    };
    for part in shown
        .as_object_mut()
        .into_iter()
        .flat_map(|all| all.values_mut())
    {
        if let Some(fields) = part.as_object_mut() {
            fields.retain(|name, value| match name.as_str() {
                "notes" => *value != json!([]),
                "errno" => !value.is_null(),
                _ => true,
            });
        }
    }
    shown
}

/// All frames in these chunks, and the violation that ended them.
fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Value>, Option<Violation>) {
    let mut reader = FrameReader::new();
    let mut frames = Vec::new();
    let mut end = None;
    for chunk in chunks {
        match reader.feed(chunk, |_, frame| frames.push(shown(frame))) {
            Ok(()) => assert_eq!(end, None, "a violation is final"),
            Err(violation) => end = Some(violation),
        }
    }
    (frames, end)
}

/// What a frame of `kind` with these fields becomes; it is no violation.
fn accepted(kind: &[u8], fields: &[Field<'_>]) -> Value {
    let (mut frames, end) = read([&framed(kind, fields)[..]]);
    assert_eq!((frames.len(), end), (1, None), "{fields:?}");
    frames.remove(0)
}

/// A good frame of each kind, and what the record says of it.
fn kinds() -> [(Vec<Field<'static>>, Value); 7] {
    let kind = |kind: &'static str| (b't', "kind", kind.as_bytes());
    [
        (vec![kind("started")], json!("started")),
        (
            vec![
                kind("result"),
                (b't', "main", b""),
                (b't', "text/plain", b"7"),
                (b'j', "data", b"{}"),
            ],
            json!({"result": {"is_main_result": true, "text": "7",
                "formats": {"text/plain": "7"}, "data": {}}, "why": []}),
        ),
        (
            vec![
                kind("update"),
                (b't', "display_id", b"a"),
                (b'b', "image/png", b"\x89PNG"),
            ],
            json!({"update": {"is_main_result": false, "text": null,
                "formats": {"image/png": "iVBORw=="}, "display_id": "a"}, "why": []}),
        ),
        (
            vec![kind("clear"), (b't', "wait", b"")],
            json!({"clear": true}),
        ),
        (
            vec![
                kind("error"),
                (b't', "name", b"E"),
                (b't', "message", b"m"),
                (b't', "traceback", b"t"),
                (b't', "line", b"3"),
                (b't', "errno", b"2"),
                (b't', "syntax", b""),
            ],
            json!({"error": {"name": "E", "message": "m", "traceback": ["t"], "line": 3,
                "errno": 2}, "syntax": true}),
        ),
        (
            vec![
                kind("variables"),
                (b't', "name", b"x"),
                (b't', "type", b"int"),
                (b't', "size", b"28"),
                (b't', "preview", b"1"),
            ],
            json!({"variables": {"total": 1, "variables": [
                {"name": "x", "type": "int", "size_bytes": 28, "preview": "1"}]}}),
        ),
        (vec![kind("done")], json!("done")),
    ]
    .map(|(mut fields, shown)| {
        fields.insert(1, EXECUTION);
        (fields, shown)
    })
}

/// What a frame of this kind with these fields means.
fn one(kind: &str, fields: &[Field<'_>]) -> Frame {
    let mut frames = Vec::new();
    FrameReader::new()
        .feed(&framed(kind.as_bytes(), fields), |_, frame| {
            frames.push(frame)
        })
        .unwrap();
    assert_eq!(frames.len(), 1);
    frames.remove(0)
}

fn result(fields: &[Field<'_>]) -> (ResultItem, Vec<String>) {
    match one("result", fields) {
        Frame::Result(Displayed { item, notes, .. }) => (item, notes),
        other => panic!("{other:?}"),
    }
}

fn error(fields: &[Field<'_>]) -> (CodeError, bool) {
    match one("error", fields) {
        Frame::Error { error, is_syntax } => (error, is_syntax),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_result_keeps_text_bytes_and_json_apart() {
    let (item, notes) = result(&[
        (b't', "main", b"1"),
        (b't', "text/plain", b"nul \0, \xed\xa0\x80, \xe2\x80\xa8"),
        (b'b', "image/png", b"\x89PNG"),
        (b't', "image/jpeg", b"already+base64=="),
        (b'j', "application/json", b"{\"level\": 2}"),
        (b'j', "application/x+json", b"{broken"),
        (b't', "failed", b"text/html: ValueError: no"),
        (b't', "future", b"ignored"),
    ]);
    assert!(item.is_main_result);
    assert_eq!(item.text.as_deref(), Some("nul \0, \\ud800, \u{2028}"));
    assert_eq!(
        serde_json::to_value(&item.formats).unwrap(),
        json!({
            "text/plain": "nul \0, \\ud800, \u{2028}",
            "image/png": "iVBORw==",
            "image/jpeg": "already+base64==",
            "application/json": {"level": 2},
            "application/x+json": "{broken",
        })
    );
    assert_eq!(notes, ["text/html: ValueError: no"]);
}

#[test]
fn what_goes_with_a_result_is_json_objects() {
    let nested = format!(r#"{{"a": {}}}"#, "[".repeat(200) + &"]".repeat(200));
    let long = format!(r#"{{"a": "{}"}}"#, "x".repeat(3 << 20));
    let (item, notes) = result(&[
        (b't', "display_id", b"a \xff"),
        (b't', "metadata", b"{\"image/png\": {\"width\": 3}}"),
        (b'j', "chart", nested.as_bytes()),
        (b'j', "data", b"[1]"),
    ]);
    assert_eq!(item.display_id.as_deref(), Some("a \u{fffd}"));
    let metadata = item.metadata.unwrap();
    assert_eq!(metadata.text(), "{\"image/png\": {\"width\": 3}}");
    assert_eq!((item.chart, item.data), (None, None));
    assert_eq!(notes, ["chart: not JSON", "data: not a JSON object"]);
    let mut many = vec![(b'j', "data", long.as_bytes()); 3];
    many.extend([(b'j', "chart", &b"{"[..]); 100]);
    let (_, notes) = result(&many);
    assert_eq!(notes.len(), 32);
    assert_eq!(notes[0], "data: more than 2097152 bytes");
}

#[test]
fn updates_and_clears_are_told_apart() {
    let fields: [Field<'_>; 4] = [
        (b't', "main", b"1"),
        (b't', "text/plain", b"new"),
        (b't', "display_id", b"a"),
        (b't', "failed", b"text/html: no"),
    ];
    let Frame::Update(Displayed { item, notes, .. }) = one("update", &fields) else {
        panic!("no update")
    };
    assert_eq!((item.text.as_deref(), notes.len()), (Some("new"), 1));
    assert!(!item.is_main_result, "only the code's value is that");
    for (fields, waits) in [(&[][..], false), (&[(b't', "wait", &b"1"[..])], true)] {
        let Frame::Clear { wait } = one("clear", fields) else {
            panic!("no clear")
        };
        assert_eq!(wait, waits);
    }
}

#[test]
fn an_errors_numbers_are_numbers_or_absent() {
    for (digits, line, errno) in [
        (&b"17"[..], Some(17), Some(17)),
        (b"-1", None, Some(-1)),
        (b"99999999999", Some(99_999_999_999), None),
        (b"", None, None),
        (b"\xff", None, None),
        (b"1 ", None, None),
    ] {
        let (error, is_syntax) = error(&[
            (b't', "name", b"OSError"),
            (b't', "line", digits),
            (b't', "errno", digits),
        ]);
        assert_eq!((error.line, error.errno, is_syntax), (line, errno, false));
    }
}

#[test]
fn what_is_too_much_is_cut_or_dropped() {
    let long = vec![b'x'; 9 << 20];
    let (item, notes) = result(&[(b't', "text/html", long.as_slice())]);
    assert!(item.formats.is_empty());
    assert_eq!(notes, ["text/html: more than 8388608 bytes"]);

    let keys: Vec<String> = (0..100).map(|n| format!("text/{n}")).collect();
    let fields: Vec<_> = (keys.iter())
        .map(|key| (b't', key.as_str(), &b"x"[..]))
        .collect();
    let (item, _) = result(&fields);
    assert_eq!(item.formats.len(), 32);

    let mut fields = vec![(b't', "traceback", &long[..100]); 2000];
    fields.push((b't', "message", long.as_slice()));
    let (cut, _) = error(&fields);
    assert_eq!((cut.message.len(), cut.traceback.len()), (64 << 10, 512));

    let lines = vec![(b't', "traceback", &long[..8 << 10]); 500];
    let (exception, _) = error(&lines);
    let bytes: usize = exception.traceback.iter().map(String::len).sum();
    assert_eq!(bytes, 1 << 20);
}

/// Its forms are each within the cap, and together more than a result may have.
#[test]
fn a_result_keeps_the_forms_that_there_is_room_for() {
    let long = vec![b'x'; 8 << 20];
    let (item, notes) = result(&[
        (b't', "text/a", long.as_slice()),
        (b't', "text/b", long.as_slice()),
        (b'b', "image/png", long.as_slice()),
        (b't', "text/c", b"short"),
    ]);
    let kept: Vec<&str> = item.formats.keys().map(String::as_str).collect();
    assert_eq!(kept, ["text/a", "text/b", "text/c"]);
    assert_eq!(
        notes,
        ["image/png: one result is limited to 17825792 bytes"]
    );
    // What takes six times its length in JSON counts as such.
    let (item, notes) = result(&[(b't', "text/a", &vec![1; 4 << 20])]);
    assert!(item.formats.is_empty());
    assert_eq!(notes, ["text/a: one result is limited to 17825792 bytes"]);
}

/// Parsed, this would take some ninety times its length.
#[test]
fn json_of_many_values_is_kept_as_its_text() {
    let many = format!("[{}]", vec!["{\"\":0}"; 300_000].join(",\n"));
    let (item, _) = result(&[(b'j', "application/json", many.as_bytes())]);
    let form = &item.formats["application/json"];
    assert_eq!(form.as_str(), None);
    let written = serde_json::to_string(form).unwrap();
    assert_eq!(
        written,
        many.replace('\n', " "),
        "on one line, and not blown up"
    );
}

#[test]
fn a_frame_has_the_number_of_its_execution() {
    for (number, expected) in [
        (&b"1"[..], Ok(1)),
        (b"18446744073709551615", Ok(u64::MAX)),
        (b"", Err(Violation::Execution)),
        (b"-1", Err(Violation::Execution)),
        (b"18446744073709551616", Err(Violation::Execution)),
    ] {
        for (mut fields, _) in kinds() {
            fields[1].2 = number;
            let mut execution = None;
            let end = FrameReader::new().feed(&message(&fields), |it, _| execution = Some(it));
            assert_eq!((execution, end), (expected.ok(), expected.map(drop)));
        }
    }
    for (mut fields, _) in kinds() {
        fields.remove(1);
        let (frames, end) = read([&message(&fields)[..]]);
        assert_eq!((frames.len(), end), (0, Some(Violation::Execution)));
    }
}

#[test]
fn a_request_that_is_too_long_says_so() {
    let code = RawText::from(vec![b'#'; REQUEST_CAP]);
    let request = Request {
        execution: 1,
        follows_interrupt: false,
        is_restored: false,
        work: Work::Execute(Code {
            code: &code,
            name: "a",
            directory: Path::new("/"),
            has_file: false,
            args: &[],
            memory: None,
            is_last: true,
        }),
    };
    let error = request.encode().unwrap_err().to_string();
    assert!(error.contains("at most 67108864 are allowed"), "{error}");
}
