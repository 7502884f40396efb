//! The cases in `cases.toml`, and the programs of `tests/programs`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// One case: a code and what its record must show, or several steps.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) language: String,
    pub(crate) rootfs: Option<String>,
    context: Option<String>,
    code: Option<String>,
    /// A file in `tests/programs` with the code.
    program: Option<String>,
    /// Whether the program is run in .ci/run, and not only in .ci/matrix.
    #[serde(default)]
    ci: bool,
    expect: Option<Expect>,
    #[serde(default)]
    steps: Vec<Step>,
    pub(crate) timeout: Option<String>,
    pub(crate) memory: Option<String>,
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) host_env: BTreeMap<String, String>,
}

/// One execution.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) code: String,
    context: Option<String>,
    pub(crate) timeout: Option<String>,
    pub(crate) expect: Option<Expect>,
}

/// The expected record. Fields that are absent here are not compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) outcome: Option<String>,
    pub(crate) exit_code: Option<i64>,
    pub(crate) is_error: Option<bool>,
    pub(crate) is_retryable: Option<bool>,
    pub(crate) error_category: Option<String>,
    pub(crate) context_contains: Option<String>,
    pub(crate) stdout: Option<String>,
    pub(crate) stdout_contains: Option<String>,
    pub(crate) stderr: Option<String>,
    pub(crate) truncated_stdout: Option<bool>,
    pub(crate) error: Option<ExpectedError>,
    pub(crate) results: Option<Vec<ExpectedResult>>,
    pub(crate) results_count: Option<usize>,
    #[serde(default)]
    pub(crate) files: Vec<ExpectedFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedError {
    pub(crate) name: Option<String>,
    pub(crate) message_contains: Option<String>,
    pub(crate) traceback_contains: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedResult {
    pub(crate) text: Option<String>,
    pub(crate) text_contains: Option<String>,
    pub(crate) html_contains: Option<String>,
    pub(crate) is_main_result: Option<bool>,
    #[serde(default)]
    pub(crate) formats: Vec<String>,
    #[serde(default)]
    pub(crate) png: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedFile {
    pub(crate) path: String,
    pub(crate) change: Option<String>,
    pub(crate) media_type: Option<String>,
    pub(crate) contains: Option<String>,
}

#[derive(Deserialize)]
struct File {
    case: Vec<Case>,
}

/// Every case of both files.
pub(crate) fn all() -> Vec<Case> {
    let file: File = toml::from_str(include_str!("cases.toml")).expect("cases.toml");
    let programs = include_str!("../programs/programs.toml");
    let programs: File = toml::from_str(programs).expect("programs.toml");
    let programs = programs.case.into_iter().map(Case::with_its_program);
    file.case.into_iter().chain(programs).collect()
}

impl Step {
    /// A step without expectations.
    pub(crate) fn plain(code: String) -> Self {
        Self {
            code,
            context: None,
            timeout: None,
            expect: None,
        }
    }
}

impl Case {
    /// A case that names its language and nothing else.
    pub(crate) fn plain(language: &str) -> Self {
        Self {
            language: language.to_owned(),
            ..Self::default()
        }
    }

    /// Reads the program's code, and gives it room: it may import large packages, on a
    /// machine that does other things.
    fn with_its_program(self) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");
        let path = std::path::Path::new(folder).join(self.program.as_deref().unwrap_or_default());
        let code = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let data = (self.language == "python").then(|| "python-data".to_owned());
        Self {
            code: Some(code),
            rootfs: self.rootfs.or(data),
            timeout: self.timeout.or_else(|| Some("120s".to_owned())),
            memory: self.memory.or_else(|| Some("1G".to_owned())),
            ..self
        }
    }

    /// Whether it is a program that only the long run has.
    pub(crate) fn is_for_the_matrix(&self) -> bool {
        self.program.is_some() && !self.ci
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        match &self.code {
            Some(code) => vec![Step {
                expect: self.expect.clone(),
                ..Step::plain(code.clone())
            }],
            None => self.steps.clone(),
        }
    }

    pub(crate) fn needs_a_context(&self) -> bool {
        self.context.is_some() || self.steps.iter().any(|step| step.context.is_some())
    }

    /// The context that a step is executed in.
    pub(crate) fn context_of<'a>(&'a self, step: &'a Step) -> Option<&'a str> {
        step.context.as_deref().or(self.context.as_deref())
    }

    /// The rootfs of the language when the case names none.
    pub(crate) fn default_rootfs(&self) -> &'static str {
        match self.language.as_str() {
            "javascript" | "typescript" => "node",
            "r" => "r",
            "java" => "java",
            _ => "python",
        }
    }
}
