//! Images and archives, made by hand.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use ruzstd::decoding::StreamingDecoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// A tar archive being written; names are taken as they are.
pub(crate) struct Layer(Builder<Vec<u8>>);

impl Layer {
    pub(crate) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn add(mut self, kind: EntryType, name: &str, mode: u32, content: &[u8], target: &str) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.add(EntryType::Regular, name, 0o644, content.as_ref(), "")
    }

    pub(crate) fn program(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.add(EntryType::Regular, name, 0o755, content.as_ref(), "")
    }

    pub(crate) fn setuid(self, name: &str) -> Self {
        self.add(EntryType::Regular, name, 0o6755, b"", "")
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        self.add(EntryType::Directory, name, 0o755, b"", "")
    }

    pub(crate) fn link(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, name, 0o777, b"", target)
    }

    pub(crate) fn hard(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Link, name, 0o644, b"", target)
    }

    /// A file of any name, as GNU tar writes it.
    pub(crate) fn long(self, name: &str) -> Self {
        let short = &name[name.len().saturating_sub(9)..];
        self.add(
            EntryType::GNULongName,
            "././@LongLink",
            0o644,
            name.as_bytes(),
            "",
        )
        .add(EntryType::Regular, short, 0o644, b"", "")
    }

    /// A link of any target, as GNU tar writes it.
    pub(crate) fn long_link(self, name: &str, target: &str) -> Self {
        let kind = EntryType::GNULongLink;
        self.add(kind, "././@LongLink", 0o644, target.as_bytes(), "")
            .add(EntryType::Symlink, name, 0o777, b"", "")
    }

    pub(crate) fn device(self, name: &str) -> Self {
        self.add(EntryType::Char, name, 0o666, b"", "")
    }

    /// bash with its libraries, as they are on this host, and a Python that is
    /// a script.
    pub(crate) fn interpreters(mut self) -> Self {
        let output = Command::new("ldd").arg("/bin/bash").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let libraries = printed
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        for path in libraries.chain(["/bin/bash"]) {
            self = self.program(path, fs::read(path).unwrap());
        }
        self.program("usr/bin/python3", "#!/bin/bash\necho Python 3.99.1\n")
            .program("usr/bin/node", "no program\n")
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// The digest of a layer when decompressed.
pub(crate) fn diff_id(layer: &[u8]) -> String {
    let mut plain = Vec::new();
    match layer {
        [0x1f, 0x8b, ..] => GzDecoder::new(layer).read_to_end(&mut plain).unwrap(),
        [0x28, 0xb5, ..] => StreamingDecoder::new(layer)
            .unwrap()
            .read_to_end(&mut plain)
            .unwrap(),
        layer => (&*layer).read_to_end(&mut plain).unwrap(),
    };
    format!("sha256:{}", sha256(&plain))
}

/// The name of this machine in an image.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The files of an image.
#[derive(Clone, Default)]
pub(crate) struct Files(pub(crate) BTreeMap<String, Vec<u8>>);

impl Files {
    fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = sha256(&bytes);
        let descriptor = json!({
            "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len(),
        });
        self.0.insert(format!("blobs/sha256/{digest}"), bytes);
        descriptor
    }

    /// An image with these layers, and its descriptor.
    pub(crate) fn image(&mut self, layers: &[Vec<u8>], architecture: &str) -> Value {
        let diff_ids = layers.iter().map(|layer| diff_id(layer));
        self.image_with(layers, architecture, &diff_ids.collect::<Vec<_>>())
    }

    /// An image whose configuration has these `diff_ids`.
    pub(crate) fn image_with(
        &mut self,
        layers: &[Vec<u8>],
        architecture: &str,
        diff_ids: &[String],
    ) -> Value {
        let layers: Vec<Value> = layers
            .iter()
            .map(|layer| self.blob("application/vnd.oci.image.layer.v1.tar", layer.clone()))
            .collect();
        let config = json!({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = self.blob(
            "application/vnd.oci.image.config.v1+json",
            config.to_string().into_bytes(),
        );
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        self.blob(
            "application/vnd.oci.image.manifest.v1+json",
            manifest.to_string().into_bytes(),
        )
    }

    /// The index of a layout.
    pub(crate) fn layout(mut self, manifests: &[Value]) -> Self {
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        self.0.insert("index.json".into(), index.to_string().into());
        let version = json!({"imageLayoutVersion": "1.0.0"});
        self.0
            .insert("oci-layout".into(), version.to_string().into());
        self
    }

    /// An index within the index.
    pub(crate) fn index(&mut self, manifests: &[Value]) -> Value {
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        self.blob(
            "application/vnd.oci.image.index.v1+json",
            index.to_string().into_bytes(),
        )
    }

    /// The same with this file.
    pub(crate) fn with(mut self, name: &str, content: &str) -> Self {
        self.0.insert(name.into(), content.into());
        self
    }

    pub(crate) fn write(&self, to: &Path) {
        for (name, content) in &self.0 {
            let path = to.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    pub(crate) fn archive(&self) -> Vec<u8> {
        let layer = self.0.iter().fold(Layer::new(), |layer, (name, content)| {
            layer.file(name, content)
        });
        layer.bytes()
    }
}

/// A layout with one image.
pub(crate) fn layout(layers: &[Vec<u8>]) -> Files {
    let mut files = Files::default();
    let image = files.image(layers, architecture());
    files.layout(&[image])
}
