//! Values that pass the front end as text.

use std::borrow::Cow;
use std::marker::PhantomData;

use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::counted::Files;

/// A value that is still JSON. A process that only passes it on neither takes the time to parse it
/// nor the memory.
#[derive(Clone, Debug)]
pub struct Unread<T> {
    text: Box<RawValue>,
    value: PhantomData<fn() -> T>,
}

/// How a value looks in JSON.
pub trait Form {
    /// How its text can begin.
    const BEGINS: &'static [u8];
    /// What to write.
    const WANTED: &'static str;
}

impl Form for RawText {
    const BEGINS: &'static [u8] = b"\"{";
    const WANTED: &'static str = "text, or {base64 = …}";
}

impl Form for Files {
    const BEGINS: &'static [u8] = b"[";
    const WANTED: &'static str = "a list of files";
}

/// Whether a supervisor refused what a client sent, since it could not be read.
pub fn is_unreadable(error: &SetupError) -> bool {
    const FIELDS: [&str; 3] = ["code", "content", "files"];
    let operand = error.operand.as_deref();
    error.step == Step::Spec && operand.is_some_and(|operand| FIELDS.contains(&operand))
}

impl<T: DeserializeOwned> Unread<T> {
    /// The value.
    ///
    /// # Errors
    /// It is not one; `field` is named.
    pub fn read(&self, field: &str) -> Result<T> {
        serde_json::from_str(self.text.get())
            .map_err(|error| SetupError::new(Step::Spec, error.to_string()).on(field))
    }
}

impl<'de, T: Form> Deserialize<'de> for Unread<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let begins = text.get().as_bytes().first();
        if !begins.is_some_and(|first| T::BEGINS.contains(first)) {
            let shown: String = text.get().chars().take(20).collect();
            return Err(D::Error::invalid_type(
                Unexpected::Other(&shown),
                &T::WANTED,
            ));
        }
        let value = PhantomData;
        Ok(Self { text, value })
    }
}

impl<T> Serialize for Unread<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Unread<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_text_until_they_are_read() {
        let text = r#"["a\u0062",{"base64":"eA=="}]"#;
        let all: Vec<Unread<RawText>> = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&all).unwrap(), text);
        let read: Vec<RawText> = all.iter().map(|one| one.read("code").unwrap()).collect();
        assert_eq!(read, [RawText::from("ab"), RawText::from("x")]);
        for wrong in ["5", "null", "[]"] {
            let error = serde_json::from_str::<Unread<RawText>>(wrong).unwrap_err();
            assert!(error.to_string().contains("expected text"), "{error}");
        }
        let half: Unread<RawText> = serde_json::from_str(r#""\ud800""#).unwrap();
        assert!(half.read("code").unwrap_err().to_string().contains("code"));
    }
}
