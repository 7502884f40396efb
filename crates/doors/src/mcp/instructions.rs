//! What a model should know before it uses the tools.

use std::fmt::Write as _;
use std::time::Duration;

use wire::Languages;

/// More packages are only counted.
const MOST_PACKAGES: usize = 120;

/// What the tools offer on this server.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The languages of code.
    pub languages: Languages,
    /// Languages whose interpreter cells have.
    pub interpreters: Vec<Interpreter>,
    /// The most real time of a command in a context; `None` where nothing limits it.
    pub wall: Option<Duration>,
    /// The limits of one cell, as text such as `memory 1 GiB`.
    pub limits: Vec<String>,
    /// The network of a cell, in one sentence.
    pub network: String,
}

/// A language that code can be in.
#[derive(Clone, Debug, Default)]
pub struct Interpreter {
    /// Its name, such as `python`.
    pub language: String,
    /// Its version, where the rootfs says it.
    pub version: Option<String>,
    /// Packages that code can import.
    pub packages: Vec<String>,
}

impl About {
    /// The names of the languages.
    pub(super) fn languages(&self) -> Vec<&str> {
        let names = self.interpreters.iter().map(|one| one.language.as_str());
        names.collect()
    }

    /// The text.
    pub(super) fn instructions(&self) -> String {
        let mut text = String::from(
            "Runs code in a sandbox on this computer. The code sees none of the computer's files, \
             processes or secrets.\n\
             - run_code and run_command without context_id run in a sandbox of their own: nothing \
             is there from before, and nothing stays but what the answer holds.\n\
             - create_context starts an interpreter that stays. Pass its context_id to keep \
             variables, imports and files from one call to the next. `state` in an answer says \
             whether they are still there: kept, lost (the interpreter ended) or restored.\n\
             - The working directory is /workspace. Use relative paths. Files that code writes \
             there are listed in the answer, with links; read_file and write_file move files into \
             and out of a context.\n\
             - The value of the last expression is a result, as in a notebook; plots are returned \
             as pictures.\n",
        );
        text.push_str("- Languages: ");
        for (index, one) in self.interpreters.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}{}", one.language);
            if let Some(version) = &one.version {
                let _ = write!(text, " {version}");
            }
        }
        text.push_str(".\n");
        for one in self
            .interpreters
            .iter()
            .filter(|one| !one.packages.is_empty())
        {
            let shown = &one.packages[..one.packages.len().min(MOST_PACKAGES)];
            let _ = write!(
                text,
                "- Packages for {}: {}",
                one.language,
                shown.join(", ")
            );
            match one.packages.len() - shown.len() {
                0 => text.push_str(".\n"),
                more => drop(writeln!(text, ", and {more} more.")),
            }
        }
        if !self.limits.is_empty() {
            let _ = writeln!(
                text,
                "- Limits of each sandbox: {}.",
                self.limits.join(", ")
            );
        }
        let _ = writeln!(text, "- Network: {}", self.network);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_languages_packages_limits_and_network() {
        let python = Interpreter {
            language: "python".into(),
            version: Some("3.13.5".into()),
            packages: (0..130).map(|number| format!("package{number}")).collect(),
        };
        let bash = Interpreter {
            language: "bash".into(),
            ..Interpreter::default()
        };
        let about = About {
            interpreters: vec![python, bash],
            limits: vec!["memory 1 GiB".into(), "real time 30 s".into()],
            network: "none.".into(),
            ..About::default()
        };
        let text = about.instructions();
        for part in [
            "Languages: python 3.13.5, bash.",
            "Packages for python: package0, package1,",
            "package119, and 10 more.",
            "memory 1 GiB, real time 30 s.",
            "Network: none.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
