//! The category of an error, from the exception, in any language.

use nix::errno::Errno;

use super::causes;
use super::evidence::Evidence;
use languages::{Driver, Exceptions};
use record::{Category, CodeError, Denied};

/// The category of an exception.
///
/// [`Category::Processes`] only means that the limit on processes causes exceptions
/// of this kind; the caller knows whether the limit was reached.
pub(super) fn of_exception(error: &CodeError, driver: Option<&Driver>) -> Category {
    let exceptions = driver.map_or(&Exceptions::NONE, |driver| &driver.exceptions);
    let message = error.message.to_lowercase();
    by_phrase(exceptions.decisive, &message)
        .or_else(|| by_class(&error.name, exceptions))
        .or_else(|| error.errno.and_then(by_errno))
        .or_else(|| by_phrase(&PHRASES, &message))
        .or_else(|| by_phrase(exceptions.messages, &message))
        // With an error number, it was the network.
        .or_else(|| (class(&error.name) == "TimeoutError").then_some(Category::Timeout))
        .unwrap_or(Category::Runtime)
}

/// Whether another host answered: then the network works, and other code could
/// succeed on it.
pub(super) fn network_answered(error: &CodeError) -> bool {
    let refused = [
        Errno::ECONNREFUSED,
        Errno::ECONNRESET,
        Errno::ECONNABORTED,
        Errno::EADDRINUSE,
    ];
    has_number(error, &refused)
        || [
            "ConnectionRefusedError",
            "ConnectionResetError",
            "ConnectionAbortedError",
        ]
        .contains(&class(&error.name))
        || mentions(error, "connection refused")
}

/// Whether a certificate was not trusted: then another host answered, too.
pub(super) fn distrusts(error: &CodeError) -> bool {
    [
        "certificate verify failed",
        "unable to verify the first certificate",
        "self-signed certificate",
        "unable to get local issuer certificate",
        "pkix path building failed",
    ]
    .iter()
    .any(|words| mentions(error, words))
}

/// Whether the exception is about the limit on open files.
pub(super) fn is_too_many_files(error: &CodeError) -> bool {
    has_number(error, &[Errno::EMFILE, Errno::ENFILE]) || mentions(error, "too many open files")
}

/// Whether a file exceeded the limit on its size.
pub(super) fn is_file_too_large(error: &CodeError) -> bool {
    has_number(error, &[Errno::EFBIG]) || mentions(error, "file too large")
}

/// Whether it is EAGAIN, which has many causes.
pub(super) fn is_unavailable(error: &CodeError) -> bool {
    has_number(error, &[Errno::EAGAIN])
        || class(&error.name) == "BlockingIOError"
        || mentions(error, "resource temporarily unavailable")
}

/// Whether the code was about to start a process or thread.
pub(super) fn is_of_a_start(error: &CodeError) -> bool {
    const WORDS: [&str; 3] = ["fork", "spawn", "thread"];
    let starts = |text: &str| WORDS.iter().any(|word| text.contains(word));
    starts(&error.message.to_lowercase()) || error.traceback.iter().any(|line| starts(line))
}

/// Whether a start was refused on the way to the exception, which then may be about
/// something else: Python's pool, which fails to clean up, or Node's workers.
pub(super) fn follows_a_refused_start(error: &CodeError) -> bool {
    const WORDS: [&str; 3] = [
        "can't start new thread",
        "err_worker_init_failed",
        "resource temporarily unavailable",
    ];
    let is_refusal = |line: &String| {
        let line = line.to_lowercase();
        WORDS.iter().any(|words| line.contains(words))
    };
    error.traceback.iter().any(is_refusal)
}

/// The denied system call with the exception's error number, if there is just one. Calls for which
/// the memory had no room are a lack of memory, and no denial of a use.
pub(super) fn denial_behind<'a>(error: &CodeError, evidence: &Evidence<'a>) -> Option<&'a Denied> {
    let number = Errno::from_raw(error.errno?.saturating_abs());
    let name = format!("{number:?}");
    let mut behind = (evidence.denied.iter())
        .filter(|denied| denied.action == name && !causes::is_counted(denied, evidence.held));
    behind.next().filter(|_| behind.next().is_none())
}

fn has_number(error: &CodeError, numbers: &[Errno]) -> bool {
    let number = error.errno.map(i32::saturating_abs);
    numbers.iter().any(|errno| number == Some(*errno as i32))
}

fn mentions(error: &CodeError, words: &str) -> bool {
    error.message.to_lowercase().contains(words)
}

/// A class without its package: `java.io.IOException` is `IOException`.
fn class(name: &str) -> &str {
    name.rsplit(['.', '$', ':']).next().unwrap_or(name)
}

fn by_class(name: &str, exceptions: &Exceptions) -> Option<Category> {
    let class = class(name);
    // numpy raises `_ArrayMemoryError`, Java `OutOfMemoryError`.
    if class.ends_with("MemoryError") {
        return Some(Category::Memory);
    }
    let has_class = |names: &str| names.split(' ').any(|name| name == class);
    let mut classes = exceptions.classes.iter();
    let found = classes.find(|(_, names)| has_class(names));
    found.map(|(category, _)| *category)
}

/// Python gives error numbers as they are, Node negative ones.
fn by_errno(number: i32) -> Option<Category> {
    // libuv's numbers for the failures of getaddrinfo(3).
    if (-3014..=-3000).contains(&number) {
        return Some(Category::Network);
    }
    match Errno::from_raw(number.saturating_abs()) {
        Errno::EACCES | Errno::EPERM | Errno::EROFS => Some(Category::Permission),
        Errno::ENOENT
        | Errno::EEXIST
        | Errno::EISDIR
        | Errno::ENOTDIR
        | Errno::ENOTEMPTY
        | Errno::ENAMETOOLONG
        | Errno::ELOOP
        | Errno::EMFILE
        | Errno::ENFILE
        | Errno::EBADF
        | Errno::EBUSY
        | Errno::EXDEV => Some(Category::File),
        Errno::ENETUNREACH
        | Errno::ENETDOWN
        | Errno::ENETRESET
        | Errno::EHOSTUNREACH
        | Errno::EHOSTDOWN
        | Errno::ECONNREFUSED
        | Errno::ECONNRESET
        | Errno::ECONNABORTED
        | Errno::ETIMEDOUT
        | Errno::EADDRINUSE
        | Errno::EADDRNOTAVAIL
        | Errno::EAFNOSUPPORT
        | Errno::EPROTONOSUPPORT
        | Errno::ENOTCONN => Some(Category::Network),
        Errno::ENOMEM => Some(Category::Memory),
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => Some(Category::Disk),
        Errno::EAGAIN => Some(Category::Processes),
        _ => None,
    }
}

fn by_phrase(phrases: &[(Category, &str)], lower_case_message: &str) -> Option<Category> {
    phrases
        .iter()
        .find(|(_, phrase)| lower_case_message.contains(phrase))
        .map(|(category, _)| *category)
}

/// Messages that come from error numbers, in exceptions without a number, such as
/// R's `simpleError`, Node's `Error` and Java's `IOException`.
const PHRASES: [(Category, &str); 13] = [
    (Category::Disk, "no space left on device"),
    (Category::Disk, "disk quota exceeded"),
    (Category::Disk, "file too large"),
    (Category::Memory, "cannot allocate memory"),
    (Category::Processes, "resource temporarily unavailable"),
    (Category::Permission, "permission denied"),
    (Category::Permission, "operation not permitted"),
    (Category::Permission, "read-only file system"),
    (Category::Network, "network is unreachable"),
    (Category::Network, "connection refused"),
    (Category::Network, "could not resolve host"),
    (Category::File, "no such file or directory"),
    (Category::File, "too many open files"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use languages::find;

    fn category(language: &str, name: &str, message: &str, errno: Option<Errno>) -> Category {
        let error = CodeError {
            name: name.into(),
            message: message.into(),
            traceback: vec![],
            line: None,
            errno: errno.map(|errno| errno as i32),
        };
        of_exception(&error, find(language))
    }

    /// The language with exceptions of this name.
    fn language(name: &str) -> &str {
        match name {
            _ if name.starts_with("java.") => "java",
            "simpleError" => "r",
            "RangeError" | "Error" | "ReferenceError" => "javascript",
            _ => "python",
        }
    }

    #[test]
    fn classes_and_numbers_have_their_category() {
        for (name, errno, expected) in [
            ("SyntaxError", None, Category::Syntax),
            ("IndentationError", None, Category::Syntax),
            ("NameError", None, Category::Name),
            ("AttributeError", None, Category::Name),
            ("ReferenceError", None, Category::Name),
            ("ModuleNotFoundError", None, Category::Import),
            ("java.lang.ClassNotFoundException", None, Category::Import),
            ("TypeError", None, Category::Type),
            ("ZeroDivisionError", None, Category::Value),
            ("json.decoder.JSONDecodeError", None, Category::Value),
            ("FileNotFoundError", Some(Errno::ENOENT), Category::File),
            ("OSError", Some(Errno::ENOTEMPTY), Category::File),
            ("OSError", Some(Errno::EMFILE), Category::File),
            ("PermissionError", Some(Errno::EACCES), Category::Permission),
            ("OSError", Some(Errno::EROFS), Category::Permission),
            ("OSError", Some(Errno::ENETUNREACH), Category::Network),
            (
                "ConnectionRefusedError",
                Some(Errno::ECONNREFUSED),
                Category::Network,
            ),
            // The number of a gaierror is one of getaddrinfo's: -2 is not ENOENT.
            ("socket.gaierror", Some(Errno::ENOENT), Category::Network),
            (
                "requests.exceptions.ConnectionError",
                None,
                Category::Network,
            ),
            ("MemoryError", None, Category::Memory),
            (
                "numpy._core._exceptions._ArrayMemoryError",
                None,
                Category::Memory,
            ),
            ("java.lang.OutOfMemoryError", None, Category::Memory),
            ("OSError", Some(Errno::ENOMEM), Category::Memory),
            ("OSError", Some(Errno::ENOSPC), Category::Disk),
            ("OSError", Some(Errno::EDQUOT), Category::Disk),
            ("OSError", Some(Errno::EFBIG), Category::Disk),
            ("BlockingIOError", Some(Errno::EAGAIN), Category::Processes),
            ("OSError", Some(Errno::EAGAIN), Category::Processes),
            ("RecursionError", None, Category::Runtime),
            ("KeyboardInterrupt", None, Category::Runtime),
            ("OSError", Some(Errno::EIO), Category::Runtime),
            ("", None, Category::Runtime),
        ] {
            assert_eq!(
                category(language(name), name, "", errno),
                expected,
                "{name} {errno:?}"
            );
        }
    }

    #[test]
    fn messages_tell_where_the_class_does_not() {
        for (name, message, expected) in [
            (
                "RuntimeError",
                "can't start new thread",
                Category::Processes,
            ),
            (
                "java.lang.OutOfMemoryError",
                "unable to create native thread: possibly out of memory",
                Category::Processes,
            ),
            (
                "RangeError",
                "Array buffer allocation failed",
                Category::Memory,
            ),
            (
                "RangeError",
                "Maximum call stack size exceeded",
                Category::Runtime,
            ),
            ("RangeError", "Invalid array length", Category::Value),
            (
                "java.io.IOException",
                "No space left on device",
                Category::Disk,
            ),
            (
                "java.io.FileNotFoundException",
                "/usr/owned (Read-only file system)",
                Category::Permission,
            ),
            (
                "java.io.FileNotFoundException",
                "/workspace/x (No such file or directory)",
                Category::File,
            ),
            ("Error", "Cannot find module 'lodash'", Category::Import),
            ("simpleError", "object 'x' not found", Category::Name),
            (
                "simpleError",
                "object \u{2018}x\u{2019} not found",
                Category::Name,
            ),
            (
                "simpleError",
                "could not find function \"f\"",
                Category::Name,
            ),
            (
                "simpleError",
                "non-numeric argument to binary operator",
                Category::Type,
            ),
            ("simpleError", "subscript out of bounds", Category::Value),
            ("simpleError", "cannot open the connection", Category::File),
            (
                "simpleError",
                "cannot allocate vector of size 7.5 Gb",
                Category::Memory,
            ),
            // A class that says what it is wins over words in its message.
            ("ValueError", "permission denied", Category::Value),
        ] {
            assert_eq!(
                category(language(name), name, message, None),
                expected,
                "{name}: {message}"
            );
        }
        let of_fetch = category("javascript", "TypeError", "fetch failed", None);
        assert_eq!(of_fetch, Category::Network);
    }

    #[test]
    fn node_gives_numbers_below_zero() {
        assert_eq!(by_errno(-(Errno::ENOENT as i32)), Some(Category::File));
        assert_eq!(by_errno(-3008), Some(Category::Network));
        assert_eq!(by_errno(i32::MIN), None);
    }
}
