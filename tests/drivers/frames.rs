//! The channel's reader against whatever may come.

use std::path::Path;

use cellblock::bytes::RawText;
use cellblock::drivers::frames::{Frame, FrameReader, REQUEST_CAP, Request, Violation};
use proptest::prelude::*;
use serde_json::json;

type Fields<'a> = Vec<(u8, &'a str, &'a [u8])>;

fn message(fields: &[(u8, &str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (form, key, value) in fields {
        body.extend([*form, key.len() as u8]);
        body.extend((value.len() as u32).to_be_bytes());
        body.extend(key.as_bytes());
        body.extend(*value);
    }
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

/// Everything that a reader gives for these chunks, in a comparable form.
fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Option<Violation>, u64) {
    let mut reader = FrameReader::new();
    let mut frames = Vec::new();
    let mut end = None;
    for chunk in chunks {
        match reader.feed(chunk, |frame| frames.push(format!("{frame:?}"))) {
            Ok(()) => assert_eq!(end, None, "a violation is final"),
            Err(violation) => end = Some(violation),
        }
    }
    (frames, end, reader.unknown())
}

fn one(fields: Fields<'_>) -> Frame {
    let mut frames = Vec::new();
    FrameReader::new()
        .feed(&message(&fields), |frame| frames.push(frame))
        .unwrap();
    assert_eq!(frames.len(), 1);
    frames.remove(0)
}

#[test]
fn a_result_keeps_text_bytes_and_json_apart() {
    let Frame::Result { item, notes } = one(vec![
        (b't', "kind", b"result"),
        (b't', "main", b"1"),
        (b't', "text/plain", b"nul \0, \xed\xa0\x80, \xe2\x80\xa8"),
        (b'b', "image/png", b"\x89PNG"),
        (b't', "image/jpeg", b"already+base64=="),
        (b'j', "application/json", b"{\"level\": 2}"),
        (b'j', "application/x+json", b"{broken"),
        (b't', "failed", b"text/html: ValueError: no"),
        (b't', "future", b"ignored"),
    ]) else {
        panic!("no result")
    };
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
    let nested = format!(r#"{{"a": [{}]}}"#, vec!["[]"; 70_000].join(","));
    let long = format!(r#"{{"a": "{}"}}"#, "x".repeat(3 << 20));
    let Frame::Result { item, notes } = one(vec![
        (b't', "kind", b"result"),
        (b't', "display_id", b"a \xff"),
        (b't', "metadata", b"{\"image/png\": {\"width\": 3}}"),
        (b'j', "chart", nested.as_bytes()),
        (b'j', "data", b"[1]"),
    ]) else {
        panic!("no result")
    };
    assert_eq!(item.display_id.as_deref(), Some("a \u{fffd}"));
    assert_eq!(item.metadata, Some(json!({"image/png": {"width": 3}})));
    assert_eq!((item.chart, item.data), (None, None));
    assert_eq!(
        notes,
        [
            "chart: not JSON of at most 65536 values",
            "data: not a JSON object"
        ]
    );
    let many: Fields<'_> = std::iter::once((b't', "kind", &b"result"[..]))
        .chain(std::iter::repeat_n((b'j', "data", long.as_bytes()), 3))
        .chain(std::iter::repeat_n((b'j', "chart", &b"{"[..]), 100))
        .collect();
    let Frame::Result { notes, .. } = one(many) else {
        panic!("no result")
    };
    assert_eq!(notes.len(), 32);
    assert_eq!(notes[0], "data: more than 2097152 bytes");
}

#[test]
fn updates_and_clears_are_told_apart() {
    let Frame::Update { item, notes } = one(vec![
        (b't', "kind", b"update"),
        (b't', "main", b"1"),
        (b't', "text/plain", b"new"),
        (b't', "display_id", b"a"),
        (b't', "failed", b"text/html: no"),
    ]) else {
        panic!("no update")
    };
    assert_eq!((item.text.as_deref(), notes.len()), (Some("new"), 1));
    assert!(!item.is_main_result, "only the code's value is that");
    for (fields, waits) in [
        (vec![(b't', "kind", &b"clear"[..])], false),
        (
            vec![(b't', "kind", &b"clear"[..]), (b't', "wait", b"1")],
            true,
        ),
    ] {
        let Frame::Clear { wait } = one(fields) else {
            panic!("no clear")
        };
        assert_eq!(wait, waits);
    }
    // Of nothing.
    let (frames, end, unknown) =
        read([&message(&[(b't', "kind", b"update"), (b't', "text/plain", b"x")])[..]]);
    assert_eq!((frames.len(), end, unknown), (0, None, 1));
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
        let Frame::Error { error, is_syntax } = one(vec![
            (b't', "kind", b"error"),
            (b't', "name", b"OSError"),
            (b't', "line", digits),
            (b't', "errno", digits),
        ]) else {
            panic!("no error")
        };
        assert_eq!((error.line, error.errno, is_syntax), (line, errno, false));
    }
}

#[test]
fn what_is_too_much_is_cut_or_dropped() {
    let long = vec![b'x'; 9 << 20];
    let Frame::Result { item, notes } = one(vec![
        (b't', "kind", b"result"),
        (b't', "text/html", long.as_slice()),
    ]) else {
        panic!("no result")
    };
    assert!(item.formats.is_empty());
    assert_eq!(notes, ["text/html: more than 8388608 bytes"]);

    let keys: Vec<String> = (0..100).map(|n| format!("text/{n}")).collect();
    let mut fields: Fields<'_> = vec![(b't', "kind", b"result")];
    fields.extend(keys.iter().map(|key| (b't', key.as_str(), &b"x"[..])));
    let Frame::Result { item, .. } = one(fields) else {
        panic!("no result")
    };
    assert_eq!(item.formats.len(), 32);

    let mut fields: Fields<'_> = vec![(b't', "kind", b"error"), (b't', "message", long.as_slice())];
    fields.extend((0..2000).map(|_| (b't', "traceback", &long[..100])));
    let Frame::Error { error, .. } = one(fields) else {
        panic!("no error")
    };
    assert_eq!(
        (error.message.len(), error.traceback.len()),
        (64 << 10, 512)
    );

    let nested = ["[", &vec!["[]"; 70_000].join(","), "]"].concat();
    let Frame::Result { item, .. } = one(vec![
        (b't', "kind", b"result"),
        (b'j', "application/json", nested.as_bytes()),
    ]) else {
        panic!("no result")
    };
    assert!(
        item.formats["application/json"].is_string(),
        "parsed, it takes ten times the memory"
    );
}

#[test]
fn what_is_not_the_protocol_is_refused_for_good() {
    let done = message(&[(b't', "kind", b"done")]);
    for (bytes, violation) in [
        (
            u32::MAX.to_be_bytes().to_vec(),
            Violation::Long(u32::MAX as usize),
        ),
        (b"HTTP/1.1 200 OK".to_vec(), Violation::Long(0x4854_5450)),
        (vec![0, 0, 0, 0], Violation::Kind),
        (message(&[(b'b', "kind", b"done")]), Violation::Kind),
        (message(&[(b't', "other", b"done")]), Violation::Kind),
        (vec![0, 0, 0, 1, b't'], Violation::Field),
        (
            [&[0, 0, 0, 15][..], &done[4..], b"t"].concat(),
            Violation::Field,
        ),
    ] {
        let (frames, end, _) = read([&done[..], &bytes, &done]);
        assert_eq!((frames.len(), end), (1, Some(violation)), "{bytes:?}");
    }
}

#[test]
fn all_frames_together_are_bounded() {
    let frame = message(&[
        (b't', "kind", b"filler"),
        (b't', "x", &vec![0; 15 << 20][..]),
    ]);
    let mut reader = FrameReader::new();
    let fed = (0..100)
        .take_while(|_| reader.feed(&frame, |_| ()).is_ok())
        .count();
    assert_eq!(fed, (1 << 30) / frame.len());
    assert_eq!(reader.feed(b"", |_| ()), Err(Violation::Total));
}

#[test]
fn unknown_kinds_are_counted_and_left_out() {
    let future = message(&[(b't', "kind", b"telepathy"), (b'x', "how", b"?")]);
    let started = message(&[(b't', "kind", b"started")]);
    let (frames, end, unknown) = read([&future[..], &started, &future]);
    assert_eq!(
        (frames, end, unknown),
        (vec!["Started".to_owned()], None, 2)
    );
}

#[test]
fn a_channel_that_ends_within_a_frame_is_told_from_one_that_does_not() {
    let done = message(&[(b't', "kind", b"done")]);
    let mut reader = FrameReader::new();
    assert!(reader.is_between_frames());
    for byte in &done[..done.len() - 1] {
        reader.feed(&[*byte], |_| panic!("too early")).unwrap();
        assert!(!reader.is_between_frames());
    }
    reader.feed(&done[done.len() - 1..], |_| ()).unwrap();
    assert!(reader.is_between_frames());
}

#[test]
fn a_request_that_is_too_long_says_so() {
    let code = RawText::from(vec![b'#'; REQUEST_CAP]);
    let request = Request {
        code: &code,
        name: "a",
        directory: Path::new("/"),
        args: &[],
        memory: None,
        parts: &[],
    };
    let error = request.encode().unwrap_err().to_string();
    assert!(error.contains("at most 67108864 are allowed"), "{error}");
}

/// Bytes that are often, but not always, the protocol.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let key = prop_oneof![
        "(main|failed|name|message|traceback|line|errno|syntax|text/plain|image/png)",
        "(display_id|metadata|chart|data|wait)",
        "[a-z/]{0,12}",
    ];
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        r#"\{("[a-z]":(null|\[1,-2e9\]|"é"))?\}"#.prop_map(String::into_bytes),
    ];
    let field = ("[tbjx]", key, value);
    let frame =
        (
            "(started|result|update|clear|error|done|zzz)",
            proptest::collection::vec(field, 0..6),
        )
            .prop_map(|(kind, fields)| {
                let mut all: Fields<'_> = vec![(b't', "kind", kind.as_bytes())];
                all.extend(fields.iter().map(|(form, key, value)| {
                    (form.as_bytes()[0], key.as_str(), value.as_slice())
                }));
                message(&all)
            });
    let junk = proptest::collection::vec(any::<u8>(), 0..12);
    proptest::collection::vec(prop_oneof![8 => frame, 1 => junk], 0..8).prop_map(|all| all.concat())
}

/// `bytes` in chunks that end where `cuts` say.
fn chunks<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.extend([0, bytes.len()]);
    ends.sort_unstable();
    ends.windows(2)
        .map(|pair| &bytes[pair[0]..pair[1]])
        .collect()
}

proptest! {
    #[test]
    fn chunking_changes_nothing(bytes in stream(), cuts: Vec<prop::sample::Index>) {
        prop_assert_eq!(read(chunks(&bytes, &cuts)), read([bytes.as_slice()]));
    }

    #[test]
    fn arbitrary_bytes_are_survived(bytes: Vec<u8>, cuts: Vec<prop::sample::Index>) {
        let (frames, _, unknown) = read(chunks(&bytes, &cuts));
        prop_assert!(frames.len() as u64 + unknown <= bytes.len() as u64 / 4);
    }

    #[test]
    fn whatever_is_read_is_valid_json(bytes in stream()) {
        let _ = FrameReader::new().feed(&bytes, |frame| {
            let text = match frame {
                Frame::Result { item, .. } | Frame::Update { item, .. } => {
                    serde_json::to_string(&item)
                }
                Frame::Error { error, .. } => serde_json::to_string(&error),
                Frame::Started | Frame::Done | Frame::Clear { .. } => return,
            };
            serde_json::from_str::<serde_json::Value>(&text.unwrap()).unwrap();
        });
    }
}
