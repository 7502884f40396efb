//! The operator's settings for sandboxes.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::Languages;

/// How sandboxes are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The language of each template, by its name or id.
    pub templates: BTreeMap<String, String>,
    /// The languages of code.
    pub languages: Languages,
    /// Whether all sandboxes are created so that they can be paused and forked.
    pub pause: bool,
    /// The longest time until a sandbox ends by itself: the hub deletes a context that has been
    /// idle for longer.
    pub longest: Duration,
    /// Whether the workspace is at `/home/user`, too.
    pub has_home: bool,
    /// The size of a sandbox, as it is shown to clients.
    pub size: Size,
}

/// The size of a sandbox.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// CPUs.
    pub cpus: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of the workspace.
    pub disk: Option<u64>,
}

impl Settings {
    /// The language of a template.
    pub(super) fn language(&self, template: &str) -> Option<&str> {
        // `NAME:TAG` names a build of a template, and there is one of each.
        let name = template.split(':').next().unwrap_or(template);
        self.templates.get(name).map(String::as_str)
    }
}

impl Default for Settings {
    fn default() -> Self {
        let python = |name: &str| (name.to_owned(), "python".to_owned());
        Self {
            // The templates that the SDKs of E2B and of its code interpreter ask for.
            templates: ["base", "code-interpreter-v1"].map(python).into(),
            languages: Languages::default(),
            pause: false,
            longest: Duration::from_secs(600),
            has_home: false,
            size: Size::default(),
        }
    }
}

impl Size {
    /// Bytes in MiB, as they are shown to clients.
    pub(super) fn mib(bytes: Option<u64>) -> u64 {
        bytes.unwrap_or_default() >> 20
    }
}
