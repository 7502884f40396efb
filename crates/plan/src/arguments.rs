//! What execve(2) takes as one argument or variable.

use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

use super::Program;

/// Bytes of one argument or variable, without its NUL (`MAX_ARG_STRLEN`, with pages of 4 KiB).
const LONGEST: usize = (128 << 10) - 1;
/// Bytes of a piece of a command. Several fit, and none is too long for any page size.
const PIECE: usize = 64 << 10;
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];
/// Puts the command together from as many arguments as the first one says, and executes it with
/// those that are left.
const JOIN: &str = r#"cellblock_n=$1; shift; cellblock_c=
while [ "$cellblock_n" -gt 0 ]; do
  cellblock_c=$cellblock_c$1; shift; cellblock_n=$((cellblock_n - 1))
done
eval "unset cellblock_n cellblock_c
$cellblock_c""#;

/// `argv`, or what does the same where it gives a shell a command (`-c`) that is too long for one
/// argument.
pub(super) fn split(argv: &[RawText]) -> Vec<RawText> {
    long_command(argv).map_or_else(|| argv.to_vec(), |at| pieces(argv, at))
}

/// The index of a shell's command that is too long.
fn long_command(argv: &[RawText]) -> Option<usize> {
    let name = argv
        .first()?
        .as_bytes()
        .rsplit(|byte| *byte == b'/')
        .next()?;
    let is_shell = SHELLS.iter().any(|shell| shell.as_bytes() == name);
    let is_option = |word: &RawText| word.as_bytes().starts_with(b"-");
    let options = argv
        .iter()
        .skip(1)
        .take_while(|word| is_option(word))
        .count();
    let option = argv.get(options).filter(|_| is_shell && options > 0)?;
    let option = option.as_bytes();
    let has_command = option.ends_with(b"c") && !option.starts_with(b"--");
    let command = argv.get(options + 1)?.as_bytes();
    (has_command && command.len() > LONGEST).then_some(options + 1)
}

fn pieces(argv: &[RawText], at: usize) -> Vec<RawText> {
    let (before, rest) = argv.split_at(at);
    let command = rest.first().map_or(&b""[..], RawText::as_bytes);
    let pieces = command.chunks(PIECE);
    let name = rest.get(1).or(argv.first()).cloned().unwrap_or_default();
    let mut split = before.to_vec();
    split.extend([JOIN.into(), name, pieces.len().to_string().into()]);
    split.extend(pieces.map(|piece| RawText::from(piece.to_vec())));
    split.extend(rest.iter().skip(2).cloned());
    split
}

impl Program {
    /// Refuses arguments and variables that no program can be executed with.
    ///
    /// # Errors
    /// The first one that is too long.
    pub fn check_lengths(&self) -> Result<()> {
        let too_long = |operand: String, length: usize, what: &str| {
            let message = format!(
                "has {length} bytes, but the kernel takes at most {LONGEST} for one {what}"
            );
            Err(SetupError::new(Step::Spec, message)
                .on(operand)
                .hint("pass the data in a file (--file), or on standard input"))
        };
        for (index, argument) in self.argv.iter().enumerate() {
            let length = argument.as_bytes().len();
            if length > LONGEST {
                return too_long(format!("argv[{index}]"), length, "argument");
            }
        }
        for (name, value) in &self.env {
            let length = name.len() + 1 + value.as_bytes().len();
            if length > LONGEST {
                let what = "variable with its name";
                return too_long(format!("env.{name}"), length, what);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> Vec<RawText> {
        words.iter().map(|word| RawText::from(*word)).collect()
    }

    #[test]
    fn a_long_command_of_a_shell_becomes_several_arguments() {
        let long = "x".repeat(LONGEST + 1);
        for words in [
            vec!["bash", "-c", &long],
            vec!["/bin/sh", "-e", "-c", &long, "name", "a"],
            vec!["/bin/bash", "-l", "-lc", &long],
        ] {
            let split = split(&argv(&words));
            let fits = |word: &RawText| word.as_bytes().len() <= LONGEST;
            assert!(split.iter().all(fits), "{}", words.len());
            let joined: usize = split
                .iter()
                .filter(|word| word.as_bytes().starts_with(b"xx"))
                .map(|word| word.as_bytes().len())
                .sum();
            assert_eq!(joined, long.len());
        }
        let all = split(&argv(&["/bin/sh", "-c", &long, "name", "a"]));
        assert_eq!(all[3], "name".into());
        assert_eq!(all.last(), Some(&"a".into()));
    }

    #[test]
    fn other_arguments_stay_as_they_are() {
        let long = "x".repeat(LONGEST + 1);
        for words in [
            vec!["bash", "-c", "short"],
            vec!["python3", "-c", &long],
            vec!["bash", "script", &long],
            vec!["bash", "--norc", &long],
            vec!["bash", "-c"],
            vec![],
        ] {
            assert_eq!(split(&argv(&words)), argv(&words));
        }
    }
}
