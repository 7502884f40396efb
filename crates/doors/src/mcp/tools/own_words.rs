//! The server's errors, with the names that a model knows: those of its tools.

use wire::{Failure, METHODS};

/// What the server calls a method or option, and the tool or argument here.
const NAMES: [(&str, &str); 10] = [
    ("context.create", "create_context"),
    ("context.run", "run_code"),
    ("context.list", "list_contexts"),
    ("context.fork", "fork_context"),
    ("context.restart", "restart_context"),
    ("context.delete", "close_context"),
    ("file.read", "read_file"),
    ("file.write", "write_file"),
    ("file.list", "list_files"),
    ("without --branches", "without `forkable`"),
];

/// The failure for a model. A hint that only the server's other clients can follow is left out.
pub(in crate::mcp) fn in_own_words(failure: &Failure) -> Failure {
    let translated = |text: &str| {
        NAMES
            .iter()
            .fold(text.to_owned(), |text, (of_server, own)| {
                text.replace(of_server, own)
            })
    };
    let hint = match failure.reason {
        Some(wire::Reason::RandomLayout) => {
            Some("create a context with `forkable` and run the code in it".to_owned())
        }
        _ => failure.hint.as_deref().map(translated),
    };
    // Those without a dot are words of every language.
    let mut methods = METHODS.iter().filter(|method| method.contains('.'));
    let mut is_followed = |hint: &String| !methods.any(|method| hint.contains(method));
    Failure {
        message: translated(&failure.message),
        hint: hint.filter(|hint| is_followed(hint)),
        ..failure.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::TABLE;
    use super::*;
    use wire::{Code, Reason};

    #[test]
    fn a_model_reads_the_names_of_its_tools() {
        let failure = |hint: &str| Failure::new(Code::NotFound, "no context x").hint(hint);
        let own = |hint| in_own_words(&failure(hint)).hint;
        let hint = own("context.list shows those that exist");
        assert_eq!(hint.unwrap(), "list_contexts shows those that exist");
        assert_eq!(own("context.resume gives it a cell again"), None);
        assert_eq!(own("use less").unwrap(), "use less");

        let message = "context x cannot be forked: it was created without --branches, so";
        let fork = Failure::new(Code::Failed, message).because(Reason::RandomLayout);
        let fork = in_own_words(&fork.hint("use --branches"));
        assert!(fork.message.contains("without `forkable`"), "{fork}");
        let hint = fork.hint.unwrap();
        assert!(
            hint.contains("`forkable`") && !hint.contains("--"),
            "{hint}"
        );

        for (of_server, own) in &NAMES[..9] {
            assert!(METHODS.contains(of_server), "{of_server}");
            assert!(TABLE.iter().any(|tool| tool.name == *own), "{own}");
        }
    }
}
