//! Code that sets an interpreter's directory and variables, for which the protocol has no
//! parameters.

use std::collections::BTreeMap;

use record::json::text_of;
use wire::{Code, Failure};

type Variables = BTreeMap<String, String>;

/// Code that changes the directory of an interpreter.
///
/// # Errors
/// There is no such code for this language.
pub(in crate::e2b) fn change_directory(language: &str, to: &str) -> Result<String, Failure> {
    // A JSON literal is valid in each of these languages but bash.
    let literal = text_of(to);
    match language {
        "python" => Ok(format!("__import__('os').chdir({literal})")),
        "javascript" | "typescript" => Ok(format!("process.chdir({literal})")),
        "r" => Ok(format!("invisible(setwd({literal}))")),
        "bash" => Ok(format!("cd -- {}", quoted(to))),
        other => Err(absent("cwd", "directory", other)),
    }
}

/// Code that sets variables of an interpreter's environment.
///
/// # Errors
/// There is no such code for this language; a name is not valid for a variable.
pub(super) fn set(language: &str, variables: &Variables) -> Result<String, Failure> {
    if let Some(name) = variables.keys().find(|name| !is_name(name)) {
        let message = format!("env_vars: {name:?} is not the name of a variable");
        return Err(Failure::new(Code::BadParams, message));
    }
    if let Some((name, _)) = variables.iter().find(|(_, text)| text.contains('\0')) {
        let message = format!("env_vars: the value of {name} has a NUL");
        return Err(Failure::new(Code::BadParams, message));
    }
    let object = text_of(variables);
    let pairs = |separator: &str, quote: fn(&str) -> String| {
        let pairs = variables
            .iter()
            .map(|(name, text)| format!("{name}={}", quote(text)));
        pairs.collect::<Vec<_>>().join(separator)
    };
    match language {
        "python" => Ok(format!("__import__('os').environ.update({object})")),
        "javascript" | "typescript" => Ok(format!("void Object.assign(process.env, {object})")),
        "r" => Ok(format!("invisible(Sys.setenv({}))", pairs(", ", of_r))),
        "bash" => Ok(format!("export {}", pairs(" ", quoted))),
        "java" => Ok(variables.iter().map(of_java).collect()),
        other => Err(absent("env_vars", "environment", other)),
    }
}

/// Code that sets the variables of a new sandbox where its environment is not enough: the
/// clients read properties in Java.
pub(in crate::e2b) fn at_start(language: &str, variables: &Variables) -> Option<String> {
    match language {
        "java" if !variables.is_empty() => Some(variables.iter().map(of_java).collect()),
        _ => None,
    }
}

/// Code that gives variables the values that the sandbox was created with, or removes them.
///
/// # Errors
/// See [`set`].
pub(super) fn reset(
    language: &str,
    variables: &Variables,
    usual: &Variables,
) -> Result<String, Failure> {
    let (back, gone): (Vec<_>, Vec<_>) =
        variables.keys().partition(|name| usual.contains_key(*name));
    let back: Variables = back
        .into_iter()
        .filter_map(|name| Some((name.clone(), usual.get(name)?.clone())))
        .collect();
    let names = text_of(&gone);
    let plain = || gone.iter().map(|name| name.as_str()).collect::<Vec<_>>();
    let remove = match language {
        _ if gone.is_empty() => String::new(),
        "python" => {
            format!("[__import__('os').environ.pop(name, None) for name in {names}] and None")
        }
        "javascript" | "typescript" => {
            format!("void {names}.forEach((name) => delete process.env[name])")
        }
        "r" => format!("invisible(Sys.unsetenv(c({})))", names_of_r(&plain())),
        "bash" => format!("unset {}", plain().join(" ")),
        "java" => {
            let clear = |name: &&str| format!("System.clearProperty({});", text_of(name));
            plain().iter().map(clear).collect()
        }
        other => return Err(absent("env_vars", "environment", other)),
    };
    let set = match back.is_empty() {
        true => String::new(),
        false => set(language, &back)?,
    };
    Ok(format!("{set}\n{remove}"))
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_first = |byte: &u8| !byte.is_ascii_digit();
    name.bytes().all(is_plain) && name.as_bytes().first().is_some_and(is_first)
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A text as a literal of R. JSON's are valid there except for escaped surrogates, which do not
/// occur here.
fn of_r(text: &str) -> String {
    text_of(text)
}

/// A process of Java cannot change its environment, so a variable is a property there. JSON's
/// literals are valid in Java: it has the same escapes.
fn of_java((name, text): (&String, &String)) -> String {
    format!("System.setProperty({}, {});", text_of(name), text_of(text))
}

fn names_of_r(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| of_r(name)).collect();
    names.join(", ")
}

fn absent(field: &str, what: &str, language: &str) -> Failure {
    let message = format!("{field}: an interpreter of {language} cannot change its {what}");
    Failure::new(Code::BadParams, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn values_cannot_leave_their_literal() {
        let evil = variables(&[("A", "'; rm -rf / #\"); x(")]);
        assert_eq!(
            set("bash", &evil).unwrap(),
            r#"export A=''\''; rm -rf / #"); x('"#
        );
        let literal = r#""'; rm -rf / #\"); x(""#;
        for language in ["python", "javascript", "r"] {
            let code = set(language, &evil).unwrap();
            assert!(code.contains(literal), "{code}");
        }
        for name in ["", "1A", "A=B", "A B", "A\"", "É", "A;b"] {
            assert!(set("bash", &variables(&[(name, "")])).is_err(), "{name}");
        }
        assert!(set("python", &variables(&[("A", "\0")])).is_err());
        let code = set("java", &evil).unwrap();
        assert_eq!(code, format!("System.setProperty(\"A\", {literal});"));
        assert!(set("cobol", &evil).is_err());
    }

    #[test]
    fn variables_get_their_usual_values_back() {
        let code = reset(
            "bash",
            &variables(&[("A", "1"), ("B", "2")]),
            &variables(&[("B", "b")]),
        );
        assert_eq!(code.unwrap(), "export B='b'\nunset A");
        let code = reset("java", &variables(&[("A", "1")]), &variables(&[]));
        assert_eq!(code.unwrap(), "\nSystem.clearProperty(\"A\");");
        assert_eq!(at_start("bash", &variables(&[("A", "1")])), None);
        assert_eq!(
            change_directory("bash", "/home/user/it's").unwrap(),
            r"cd -- '/home/user/it'\''s'"
        );
        let code = change_directory("python", "/home/users").unwrap();
        assert_eq!(code, "__import__('os').chdir(\"/home/users\")");
    }
}
