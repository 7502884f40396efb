//! Parts of the JSON documents of images.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};

use super::blobs::Blobs;
use super::image::Platform;
use record::error::Result;

/// Maximum number of images in an index, and of names of one image.
pub(super) const MAX_IMAGES: usize = 10_000;

/// Maximum number of layers: containerd and docker stop at 127.
pub(super) const MAX_LAYERS: usize = 500;

/// A list of at most `MOST` items. A parsed item takes many times the memory of its text.
#[derive(Debug)]
pub(super) struct Few<T, const MOST: usize>(pub(super) Vec<T>);

impl<T, const MOST: usize> Default for Few<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Few<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_seq(FewVisitor(PhantomData))
    }
}

struct FewVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for FewVisitor<T, MOST> {
    type Value = Few<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut items: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut few = Vec::new();
        while let Some(item) = items.next_element()? {
            if few.len() == MOST {
                return Err(A::Error::custom(format!(
                    "a list has more than {MOST} items"
                )));
            }
            few.push(item);
        }
        Ok(Few(few))
    }
}

/// The configuration of an image.
#[derive(Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Few<String, MAX_LAYERS>,
}

impl Config {
    /// The digests of the `layers` layers when decompressed, of an image for this machine.
    pub(super) fn diff_ids(self, blobs: &Blobs, layers: usize) -> Result<Vec<String>> {
        let platform = Platform {
            architecture: self.architecture,
            os: self.os,
        };
        platform.require(blobs)?;
        let diff_ids = self.rootfs.diff_ids.0;
        match diff_ids.len() == layers {
            true => Ok(diff_ids),
            false => Err(blobs.broken(format!(
                "its manifest has {layers} layers, and its configuration {} `diff_ids`",
                diff_ids.len()
            ))),
        }
    }
}
