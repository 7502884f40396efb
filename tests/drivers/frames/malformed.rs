//! Each kind of frame where it is no frame, or none that anybody knows.

use languages::frames::{FrameReader, Violation};
use serde_json::json;

use super::{accepted, framed, kinds, message, read, shown};

#[test]
fn a_good_frame_of_each_kind_is_told_as_it_is() {
    for (fields, expected) in kinds() {
        assert_eq!(read([&message(&fields)[..]]), (vec![expected], None));
    }
}

#[test]
fn what_is_no_frame_of_any_kind_ends_the_channel() {
    let done = framed(b"done", &[]);
    for (mut fields, _) in kinds() {
        let kind = fields[0].2;
        let mut bad = Vec::new();
        // Not of text, not by that name, not first.
        fields[0] = (b'b', "kind", kind);
        bad.push((message(&fields), Violation::Kind));
        fields[0] = (b't', "Kind", kind);
        bad.push((message(&fields), Violation::Kind));
        fields[0] = (b't', "", kind);
        bad.push((message(&fields), Violation::Kind));
        fields[0] = (b't', "main", b"");
        fields.push((b't', "kind", kind));
        bad.push((message(&fields), Violation::Kind));
        // Its last value, its last key and itself longer than what is there.
        let good = framed(kind, &[(b't', "k", b"")]);
        let end = good.len();
        for (at, byte) in [(end - 2, 1), (end - 5, 0xff), (end - 6, 2)] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bad.push((bytes, Violation::Field));
        }
        let beyond = [&67_108_865_u32.to_be_bytes()[..], &good[4..]].concat();
        bad.push((beyond, Violation::Long(67_108_865)));
        for (bytes, violation) in bad {
            let stream = [&done[..], &bytes, &done].concat();
            let expected = (vec![json!("done")], Some(violation));
            assert_eq!(read([&stream[..]]), expected, "{bytes:?}");
        }
    }
    for (bytes, violation) in [
        (&b"HTTP/1.1 200 OK"[..], Violation::Long(0x4854_5450)),
        (b"\xff\xff\xff\xff", Violation::Long(0xffff_ffff)),
        (b"\0\0\0\0", Violation::Kind),
        (b"\0\0\0\x01t", Violation::Field),
    ] {
        assert_eq!(read([bytes]), (vec![], Some(violation)), "{bytes:?}");
    }
}

#[test]
fn a_violation_is_final() {
    let done = framed(b"done", &[]);
    let mut reader = FrameReader::new();
    for bytes in [&b"\0\0\0\0"[..], &done, b""] {
        let end = reader.feed(bytes, |_, frame| panic!("{frame:?}"));
        assert_eq!(end, Err(Violation::Kind));
        assert!(!reader.is_between_frames());
    }
}

#[test]
fn a_channel_that_ends_within_a_frame_leaves_nothing_of_it() {
    for (fields, expected) in kinds() {
        let frame = message(&fields);
        for length in 0..frame.len() {
            let mut reader = FrameReader::new();
            let all = reader.feed(&frame[..length], |_, frame| panic!("{frame:?}"));
            assert_eq!(all, Ok(()));
            assert_eq!(reader.is_between_frames(), length == 0);
            // The rest completes it.
            let mut frames = Vec::new();
            let all = reader.feed(&frame[length..], |_, frame| frames.push(shown(frame)));
            assert_eq!((all, frames), (Ok(()), vec![expected.clone()]));
            assert!(reader.is_between_frames());
        }
    }
}

#[test]
fn a_frame_cut_at_any_byte_is_whole_fields_or_none() {
    for (fields, _) in kinds() {
        let frame = message(&fields);
        let ends: Vec<usize> = (1..=fields.len())
            .map(|count| message(&fields[..count]).len() - 4)
            .collect();
        for length in 0..frame.len() - 4 {
            let bytes = [&(length as u32).to_be_bytes()[..], &frame[4..4 + length]].concat();
            let (frames, end) = read([&bytes[..]]);
            let violation = match length {
                0 => Some(Violation::Kind),
                _ if length == ends[0] => Some(Violation::Execution),
                _ if ends.contains(&length) => None,
                _ => Some(Violation::Field),
            };
            assert_eq!(end, violation, "{bytes:?}");
            assert_eq!(frames.len(), usize::from(violation.is_none()), "{bytes:?}");
        }
    }
}

#[test]
fn other_kinds_are_unknown() {
    let long = [b'x'; 300];
    for kind in [
        &b""[..],
        b"Started",
        b"start",
        b"done ",
        b"done\0",
        b"r\xffsult",
        b"\xff",
        &long,
    ] {
        assert_eq!(accepted(kind, &[(b'x', "how", b"?")]), "unknown");
    }
    let [started, future] = [&b"started"[..], b"telepathy"].map(|kind| framed(kind, &[]));
    let stream = [&future[..], &started, &future].concat();
    assert_eq!(
        read([&stream[..]]),
        (
            vec![json!("unknown"), json!("started"), json!("unknown")],
            None
        )
    );
}

#[test]
fn what_comes_after_the_end_of_the_code_counts_as_well() {
    let mut stream = framed(b"done", &[]);
    let mut expected = vec![json!("done")];
    for (fields, shown) in kinds() {
        stream.extend(message(&fields));
        expected.push(shown);
    }
    assert_eq!(read([&stream[..]]), (expected, None));
}
