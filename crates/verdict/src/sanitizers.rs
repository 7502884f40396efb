//! Advice about the checks that compilers build into programs.

use super::explain::Advice;

/// What to do where the program did its work, and LeakSanitizer, which is a part of
/// AddressSanitizer, then could not stop it to look for leaks.
pub(super) fn of_leak_check(stderr: &str) -> Option<Advice> {
    let could_not = stderr.contains("LeakSanitizer has encountered a fatal error");
    could_not.then(|| Advice {
        author: "the program ended, and LeakSanitizer could not trace it to look for leaks; set \
                 ASAN_OPTIONS=detect_leaks=0 to do without"
            .to_owned(),
        operator: Some(
            "`--seccomp debug` lets programs trace each other, as the leak check does".to_owned(),
        ),
    })
}
