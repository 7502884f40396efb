//! Which machine an image is for.

use serde::Deserialize;

use record::error::{Result, SetupError};

/// A platform, as image indexes and configurations have it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

impl Platform {
    /// Whether programs for it run here.
    pub(super) fn is_ours(&self) -> bool {
        self.os == "linux" && self.architecture == ours()
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.os, self.architecture)
    }

    /// Refuses what is for another machine.
    pub(super) fn require(&self, broken: impl FnOnce(String) -> SetupError) -> Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        let mut error = broken(format!(
            "the image is for {}, and this machine is linux/{}",
            self.name(),
            ours()
        ));
        error.hint = Some(fetch_ours());
        Err(error)
    }
}

/// This machine's architecture, as images name it.
pub(super) fn ours() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The way out for an image for another machine.
pub(super) fn fetch_ours() -> String {
    format!(
        "fetch the image for linux/{}, with --platform or --override-arch",
        ours()
    )
}
