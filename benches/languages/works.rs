//! The measured code, and the command lines without the shim.

use std::path::Path;

use serde_json::Value;

use crate::Result;

/// One piece of code, and how the bare interpreter runs it.
pub(crate) struct Work {
    pub(crate) language: &'static str,
    pub(crate) what: &'static str,
    pub(crate) code: &'static str,
    by: Bare,
}

pub(crate) enum Bare {
    /// With the driver's own flags, and then this one before the code; nothing but R
    /// shows a value then.
    Option(&'static str),
    /// JShell reads it: there is no other way to run such code without the shim.
    JShell,
}

pub(crate) const WORKS: &[Work] = &[
    work("python", "statement", "print(1)", Bare::Option("-c")),
    work("python", "value", "1+1", Bare::Option("-c")),
    work(
        "javascript",
        "statement",
        "console.log(1)",
        Bare::Option("-e"),
    ),
    work("javascript", "value", "1+1", Bare::Option("-e")),
    work("typescript", "value", "1+1", Bare::Option("-e")),
    work("r", "statement", "cat(1)", Bare::Option("-e")),
    work("r", "value", "1+1", Bare::Option("-e")),
    work("java", "statement", "System.out.println(1);", Bare::JShell),
    work("java", "value", "1+1", Bare::JShell),
];

const fn work(language: &'static str, what: &'static str, code: &'static str, bare: Bare) -> Work {
    Work {
        language,
        what,
        code,
        by: bare,
    }
}

impl Work {
    /// The command line for the interpreter that `plan` has.
    pub(crate) fn bare(&self, plan: &Value) -> Result<Vec<String>> {
        let argv = plan["program"]["argv"].as_array().into_iter().flatten();
        let argv = argv.filter_map(|word| word.as_str().map(str::to_owned));
        // What follows the last flag is the shim and its channel.
        let mut words: Vec<String> = argv
            .take_while(|word| !word.starts_with(languages::DIRECTORY))
            .collect();
        let interpreter = words.first().ok_or("the plan has no program")?;
        match self.by {
            Bare::Option(option) => words.extend([option, self.code].map(str::to_owned)),
            Bare::JShell => {
                let jshell = Path::new(interpreter).with_file_name("jshell");
                let script = "echo \"$1\" | \"$0\" -s -";
                let words_of = [
                    "/bin/sh",
                    "-c",
                    script,
                    &jshell.to_string_lossy(),
                    self.code,
                ];
                words = words_of.map(str::to_owned).into();
            }
        }
        Ok(words)
    }
}
