//! Objects whose values are text from the start.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// An object in the making. Each value is written to text when it comes, so that whatever is inside
/// takes no more than its text.
#[derive(Clone, Debug, Default)]
pub struct Object<'a>(BTreeMap<Cow<'a, str>, Cow<'a, RawValue>>);

impl<'a> Object<'a> {
    /// Sets a field; returns whether it was there already.
    pub fn set(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        value: &(impl Serialize + ?Sized),
    ) -> bool {
        // What this program writes has a form in JSON.
        let text = to_raw_value(value).unwrap_or_default();
        self.0.insert(name.into(), Cow::Owned(text)).is_some()
    }

    /// The object with one more field.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<Cow<'a, str>>,
        value: &(impl Serialize + ?Sized),
    ) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a field to text that is kept elsewhere; returns whether it was there already.
    pub fn lend(&mut self, name: impl Into<Cow<'a, str>>, text: &'a RawValue) -> bool {
        self.0.insert(name.into(), Cow::Borrowed(text)).is_some()
    }

    /// A field's text.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(|text| &**text)
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Whether it has no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.0)
    }
}

impl PartialEq for Object<'_> {
    fn eq(&self, other: &Self) -> bool {
        let texts = |all: &Self| -> Vec<(String, String)> {
            let text = |(name, text): (&Cow<'_, str>, &Cow<'_, RawValue>)| {
                (name.to_string(), text.get().to_owned())
            };
            all.0.iter().map(text).collect()
        };
        texts(self) == texts(other)
    }
}

/// An [`Object`](crate::json::Object) with these fields.
#[macro_export]
macro_rules! object {
    ($($name:literal: $value:expr),* $(,)?) => {
        $crate::json::Object::default()$(.with($name, &$value))*
    };
}
