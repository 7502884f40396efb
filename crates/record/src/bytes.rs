//! Byte strings that cross into JSON without loss.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are usually text: a file name, an argument, an environment value.
///
/// In JSON it is a plain string when the bytes are UTF-8, and otherwise an
/// object `{"text": …, "base64": …}`, whose `text` is for reading (invalid
/// bytes shown as U+FFFD) and whose `base64` holds the bytes themselves.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RawText(Vec<u8>);

impl RawText {
    /// The bytes themselves.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as the operating system's string.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The bytes as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }

    /// For people: invalid UTF-8 becomes U+FFFD.
    pub fn to_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl fmt::Debug for RawText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_lossy(), f)
    }
}

impl fmt::Display for RawText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_lossy())
    }
}

impl From<Vec<u8>> for RawText {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<OsString> for RawText {
    fn from(text: OsString) -> Self {
        Self(text.into_vec())
    }
}

impl From<&OsStr> for RawText {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&Path> for RawText {
    fn from(path: &Path) -> Self {
        path.as_os_str().into()
    }
}

impl From<&str> for RawText {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for RawText {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Serialize for RawText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut object = serializer.serialize_struct("RawText", 2)?;
                object.serialize_field("text", &self.to_lossy())?;
                object.serialize_field("base64", &BASE64.encode(&self.0))?;
                object.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for RawText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawTextVisitor)
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of base64 text.
///
/// # Errors
/// Why the text is not base64.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    BASE64.decode(text).map_err(|error| {
        let why = error.to_string().to_lowercase();
        format!("is not base64: {}", why.trim_end_matches('.'))
    })
}

struct RawTextVisitor;

impl<'de> serde::de::Visitor<'de> for RawTextVisitor {
    type Value = RawText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, or {base64 = …}")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawText, E> {
        Ok(text.into())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<RawText, E> {
        Ok(text.into())
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<RawText, A::Error> {
        let form = RawTextForm::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        let bytes = decode_base64(&form.base64).map_err(A::Error::custom)?;
        Ok(RawText(bytes))
    }
}

/// How [`RawText`] looks in JSON when it is not UTF-8.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "`text` exists for readers and for the schema")]
struct RawTextForm {
    /// For reading: invalid bytes are shown as U+FFFD.
    text: Option<String>,
    /// The bytes themselves.
    base64: String,
}

impl JsonSchema for RawText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RawText".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let form = generator.subschema_for::<RawTextForm>();
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, form] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_survive_json(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let raw = RawText::from(bytes);
            let json = serde_json::to_string(&raw).unwrap();
            prop_assert_eq!(serde_json::from_str::<RawText>(&json).unwrap(), raw);
        }
    }
}
