//! What programs write last when they lack something: one list, whatever the language.
//!
//! The code can write the same, so the words only say what a program claims; the verdict needs a
//! figure as well.

use super::evidence::End;
use record::Category::{self, Disk, File, Memory, Network, Processes, Syntax};

/// How many lines of the end of stderr can hold a message.
const LINES: usize = 12;

/// Where words stand, and what follows them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A message, among the last lines of stderr.
    Message,
    /// A runtime's own on stderr, which a trace can follow.
    Traced,
    /// A runtime's own that it may print to stdout.
    Printed,
    /// A runtime's own that it aborts after, whenever it has written them.
    Aborting,
}

use Kind::{Aborting, Message, Printed, Traced};

/// In upper and lower case alike, and as whole words. The first that fits counts, so the
/// particular ones come first.
#[rustfmt::skip]
const LIST: &[(Kind, Category, &str)] = &[
    (Aborting, Memory, "JavaScript heap out of memory"),
    (Aborting, Memory, "Fatal process out of memory"),
    (Aborting, Memory, "Fatal JavaScript out of memory"),
    (Aborting, Memory, "FATAL ERROR: Out of memory"),
    (Traced, Memory, "runtime: out of memory"),
    (Traced, Memory, "runtime: cannot allocate memory"),
    (Printed, Memory, "insufficient memory for the Java Runtime Environment"),
    (Printed, Memory, "Could not reserve enough space for"),
    (Printed, Memory, "Error occurred during initialization of VM"),
    (Traced, Memory, "java.lang.OutOfMemoryError"),
    (Traced, Memory, "Heap exhausted"),
    (Traced, Memory, "ReserveShadowMemoryRange failed"),
    (Traced, Processes, "pthread_create failed"),
    (Message, Processes, "fork: retry: Resource temporarily unavailable"),
    (Message, Processes, "fork: Resource temporarily unavailable"),
    (Message, Processes, "Cannot fork"),
    (Message, Processes, "can't start new thread"),
    (Message, Processes, "unable to create native thread"),
    (Message, Processes, "Resource temporarily unavailable"),
    (Message, Memory, "xrealloc: cannot allocate"),
    (Message, Memory, "xmalloc: cannot allocate"),
    (Message, Memory, "MemoryError"),
    (Message, Memory, "_ArrayMemoryError"),
    (Message, Memory, "OutOfMemoryError"),
    (Message, Memory, "bad_alloc"),
    (Message, Memory, "memory allocation of"),
    (Message, Memory, "malloc of size"),
    (Message, Memory, "cannot allocate"),
    (Message, Memory, "can't allocate"),
    (Message, Memory, "could not allocate"),
    (Message, Memory, "unable to allocate"),
    (Message, Memory, "failed to allocate"),
    (Message, Memory, "failed to reserve"),
    (Message, Memory, "allocation failed"),
    (Message, Memory, "memory exhausted"),
    (Message, Memory, "not enough memory"),
    (Message, Memory, "insufficient memory"),
    (Message, Memory, "out of memory"),
    (Message, Memory, "ENOMEM"),
    (Message, Memory, "OOM"),
    (Message, Disk, "No space left"),
    (Message, Disk, "disk is full"),
    (Message, Disk, "Disk quota exceeded"),
    (Message, Disk, "File too large"),
    (Message, Disk, "ENOSPC"),
    (Message, File, "Too many open files"),
    (Message, File, "EMFILE"),
    (Message, Network, "Could not resolve host"),
    (Message, Network, "Temporary failure in name resolution"),
    (Message, Network, "Name or service not known"),
    (Message, Network, "Network is unreachable"),
    (Message, Network, "Couldn't connect to server"),
    (Message, Network, "Could not connect to server"),
    (Message, Syntax, "syntax error near unexpected token"),
    (Message, Syntax, "syntax error: unexpected end of file"),
    (Message, Syntax, "unexpected EOF while looking for matching"),
];

/// What the ends of stdout and stderr claim to have ended the program. `is_short` is whether the
/// measurements show a lack of memory: without one, words after which a runtime aborts are not
/// its own where it did not.
pub fn find(
    [stdout, stderr]: [&str; 2],
    end: &End,
    is_short: bool,
) -> Option<(Category, &'static str)> {
    let has_aborted = match end {
        End::Signaled(_) => true,
        End::Exited(status) => *status > 128,
        End::NotStarted(_) => false,
    };
    let [stdout, stderr] = [stdout, stderr].map(str::to_lowercase);
    let says = |text: &str, kind| {
        let mut all = LIST.iter().filter(move |(its, ..)| *its == kind);
        let found = all.find(|(_, _, phrase)| has_words(text, &phrase.to_lowercase()));
        found.map(|(_, category, phrase)| (*category, *phrase))
    };
    if let Some(found) = says(&stderr, Aborting).filter(|_| has_aborted || is_short) {
        return Some(found);
    }
    let lines = stderr.lines().rev().filter(|line| !line.trim().is_empty());
    let mut messages = lines
        .take(LINES)
        .filter(|line| says(line, Aborting).is_none());
    messages
        .find_map(|line| says(line, Traced).or_else(|| says(line, Message)))
        .or_else(|| says(&stderr, Traced))
        .or_else(|| says(&stderr, Printed))
        .or_else(|| says(&stdout, Printed))
}

/// Whether `phrase` is in `text`, and not as a part of longer words.
pub(super) fn has_words(text: &str, phrase: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + phrase.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABORTED: End = End::Signaled(6);
    const EXITED: End = End::Exited(1);

    #[test]
    fn last_words_are_whole_and_last() {
        let category = |stderr: &str| find(["", stderr], &EXITED, false).map(|found| found.0);
        #[rustfmt::skip]
        let rows = [
            ("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n", Some(Memory)),
            ("memory allocation of 536870912 bytes failed\n", Some(Memory)),
            ("[libx264 @ 0x5] malloc of size 12441600 failed\n", Some(Memory)),
            ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7 GiB\n", Some(Memory)),
            ("Can't allocate 0x40000000 bytes for space 1\n", Some(Memory)),
            ("link: mapping output file failed: no space left on device\n", Some(Disk)),
            ("tar: x: Cannot write: NO SPACE LEFT ON DEVICE\n", Some(Disk)),
            ("curl: (6) Could not resolve host: example.com\n", Some(Network)),
            ("killed: oom\n", Some(Memory)),
            ("curl: (7) Failed to connect to 1.1.1.1 port 80: Couldn't connect to server\n", Some(Network)),
            ("main.sh: line 1: syntax error near unexpected token `then'\nmain.sh: line 1: `if then'\n", Some(Syntax)),
            // Parts of longer words are others.
            ("no room for that\n", None),
            ("zoom: not found\n", None),
            ("bad_allocator\n", None),
            ("MemoryErrors: 0\n", None),
            ("", None),
        ];
        for (stderr, expected) in rows {
            assert_eq!(category(stderr), expected, "{stderr}");
        }
        let early = "out of memory, again\n".to_owned() + &"working\n".repeat(LINES);
        assert_eq!(category(&early), None);
        let late = "out of memory\n".to_owned() + &"working\n".repeat(LINES - 1);
        assert_eq!(category(&late), Some(Memory));
        // Of two, the later one.
        let both = "out of memory\nwrite: No space left on device\n";
        assert_eq!(category(both), Some(Disk));
        // Words on stdout are output.
        assert_eq!(find(["out of memory\n", ""], &EXITED, false), None);
    }

    #[test]
    fn a_trace_may_follow_a_runtimes_words() {
        let trace = "goroutine 1 [running]:\n".repeat(100);
        let go = "fatal error: runtime: out of memory\n\n".to_owned() + &trace;
        assert!(find(["", &go], &End::Exited(2), false).is_some());
        let java = "# There is insufficient memory for the Java Runtime Environment to continue.\n";
        assert!(find([java, ""], &EXITED, false).is_some());
    }

    #[test]
    fn a_runtime_that_aborts_after_its_words_has_aborted() {
        let words =
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n";
        assert!(find(["", words], &ABORTED, false).is_some());
        // A shell that waited for it.
        assert!(find(["", words], &End::Exited(134), false).is_some());
        assert_eq!(find(["", words], &End::Exited(3), false), None);
        assert!(find(["", words], &End::Exited(3), true).is_some());
    }
}
