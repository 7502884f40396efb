//! The reader against random bytes.

use languages::frames::{Displayed, Frame, FrameReader};
use proptest::prelude::*;

use super::{Field, framed, read};

/// Bytes that are often, but not always, the protocol.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let key = prop_oneof![
        "(main|failed|name|message|traceback|line|errno|syntax|text/plain|image/png)",
        "(display_id|metadata|chart|data|wait|execution|type|size|preview|total)",
        "[a-z/]{0,12}",
    ];
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        r#"\{("[a-z]":(null|\[1,-2e9\]|"é"))?\}"#.prop_map(String::into_bytes),
    ];
    let field = ("[tbjx]", key, value);
    let frame = (
        "(started|result|update|clear|error|variables|done|zzz)",
        proptest::collection::vec(field, 0..6),
    )
        .prop_map(|(kind, fields)| {
            let fields: Vec<Field<'_>> = fields
                .iter()
                .map(|(form, key, value)| (form.as_bytes()[0], key.as_str(), value.as_slice()))
                .collect();
            framed(kind.as_bytes(), &fields)
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
        let (frames, _) = read(chunks(&bytes, &cuts));
        prop_assert!(frames.len() <= bytes.len() / 4);
    }

    #[test]
    fn whatever_is_read_is_valid_json(bytes in stream()) {
        let _ = FrameReader::new().feed(&bytes, |_, frame| {
            let text = match frame {
                Frame::Result(Displayed { item, .. }) | Frame::Update(Displayed { item, .. }) => {
                    serde_json::to_string(&item)
                }
                Frame::Error { error, .. } => serde_json::to_string(&error),
                Frame::Variables(list) => serde_json::to_string(&list),
                Frame::Started
                | Frame::Ending
                | Frame::Done { .. }
                | Frame::Exit { .. }
                | Frame::Clear { .. }
                | Frame::Unknown => return,
            };
            serde_json::from_str::<serde_json::Value>(&text.unwrap()).unwrap();
        });
    }
}
