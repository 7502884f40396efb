//! Mappings as an image has them: each name once.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::maps::{Mapping, Name};
use record::bytes::RawText;

#[derive(Serialize, Deserialize)]
struct Stored {
    names: Vec<RawText>,
    list: Vec<Mapping<usize>>,
}

pub(super) fn serialize<S: Serializer>(mappings: &[Mapping], to: S) -> Result<S::Ok, S::Error> {
    let (mut names, mut places) = (Vec::new(), HashMap::new());
    let mut place = |name: &Name| {
        Ok(*places.entry(Arc::clone(name)).or_insert_with(|| {
            names.push(RawText::clone(name));
            names.len() - 1
        }))
    };
    let list = mappings.iter().map(|one| one.rename(&mut place));
    let list = list.collect::<Result<_, S::Error>>()?;
    Stored { names, list }.serialize(to)
}

pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<Mapping>, D::Error> {
    let stored = Stored::deserialize(from)?;
    let names: Vec<Name> = stored.names.into_iter().map(Arc::new).collect();
    let name = |place: &usize| {
        let found = names.get(*place).cloned();
        found.ok_or_else(|| D::Error::custom("a mapping without its name"))
    };
    stored.list.iter().map(|one| one.rename(name)).collect()
}
