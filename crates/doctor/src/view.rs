//! The findings for people.

use super::report::{Check, Report, Status};

/// Columns of a line, where words allow.
const WIDTH: usize = 96;

/// The findings as lines of text.
pub(super) fn text(report: &Report, colour: bool) -> String {
    let host = &report.host;
    let mut out = format!(
        "cellblock {} on Linux {} ({}), uid {}\n\n",
        report.version, host.release, host.machine, host.facts.uid
    );
    let names = report.checks.iter().map(|check| check.name.len());
    let column = names.max().unwrap_or(0);
    let mut shown: Vec<&str> = Vec::new();
    for check in &report.checks {
        line(&mut out, check, column, colour);
        for fix in &check.fixes {
            if shown.contains(&fix.as_str()) {
                continue;
            }
            shown.push(fix);
            wrapped(&mut out, "  fix: ", fix);
        }
    }
    if let Some(paste) = report.checks.iter().find_map(|c| c.install.as_ref()) {
        out += &format!(
            "\nto install the profile, as root:\n\ncat >{path} <<'END'\n{content}END\n{then}\n",
            path = paste.path,
            content = paste.content,
            then = paste.then
        );
    }
    out.push('\n');
    out += &verdict(report);
    out
}

fn verdict(report: &Report) -> String {
    let count = |status| report.checks.iter().filter(|c| c.status == status).count();
    let warnings = match count(Status::Degraded) {
        0 => String::new(),
        1 => ", with 1 warning".to_owned(),
        more => format!(", with {more} warnings"),
    };
    if report.works {
        format!("a cell with every security layer works{warnings}\n")
    } else {
        format!(
            "no cell with every security layer works here: {} of {} checks failed{warnings}\n",
            count(Status::Fails),
            report.checks.len()
        )
    }
}

fn line(out: &mut String, check: &Check, column: usize, colour: bool) {
    let (word, code) = match check.status {
        Status::Works => ("works", "32"),
        Status::Degraded => ("degraded", "33"),
        Status::Absent => ("absent", "2"),
        Status::Fails => ("fails", "31"),
        Status::Untried => ("untried", "2"),
    };
    let word = format!("{word:<8}");
    let word = if colour {
        format!("\x1b[{code}m{word}\x1b[0m")
    } else {
        word
    };
    let indent = 8 + 2 + column + 2;
    let mut lines = wrap(&check.detail, WIDTH.saturating_sub(indent)).into_iter();
    let first = lines.next().unwrap_or_default();
    let head = format!("{word}  {:<column$}  {first}", check.name);
    out.push_str(head.trim_end());
    out.push('\n');
    for rest in lines {
        *out += &format!("{:indent$}{rest}\n", "");
    }
}

fn wrapped(out: &mut String, head: &str, text: &str) {
    let indent = head.len();
    for (index, line) in wrap(text, WIDTH - indent).iter().enumerate() {
        let start = if index == 0 { head } else { "" };
        *out += &format!("{start:indent$}{line}\n");
    }
}

/// Breaks `text` into lines between words, never between backquotes: a command
/// stays in one piece.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut quoted = false;
    for word in text.split(' ') {
        let fits = lines
            .last()
            .is_some_and(|line| quoted || line.chars().count() + 1 + word.chars().count() <= width);
        match lines.last_mut().filter(|_| fits) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
        quoted ^= word.matches('`').count() % 2 == 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Paste;
    use hints::Facts;
    use record::error::{SetupError, Step};

    fn report(checks: Vec<Check>) -> Report {
        let mut report = Report::new(Facts::default(), checks, None);
        report.host.release = "6.12.0".into();
        report.host.machine = "x86_64".into();
        report.version = "1.2.3".into();
        report
    }

    #[test]
    fn lines_are_aligned_and_a_fix_is_shown_once() {
        let failed = |name: &str| {
            let error = SetupError::os(Step::Hostname, "sethostname", nix::errno::Errno::EPERM);
            let mut check = Check::fails(name, error, &Facts::default());
            check.fixes = vec!["do `this and that`".into()];
            check
        };
        let report = report(vec![
            Check::works("kernel", "6.12.0"),
            failed("capabilities"),
            failed("proc"),
            Check::degraded("cgroup", "none", vec![]),
        ]);
        assert_eq!(
            text(&report, false),
            "cellblock 1.2.3 on Linux 6.12.0 (x86_64), uid 0\n\n\
             works     kernel        6.12.0\n\
             fails     capabilities  set the host name: sethostname: EPERM (operation not permitted)\n  \
               fix: do `this and that`\n\
             fails     proc          set the host name: sethostname: EPERM (operation not permitted)\n\
             degraded  cgroup        none\n\n\
             no cell with every security layer works here: 2 of 4 checks failed, with 1 warning\n"
        );
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let report = report(vec![Check::works("kernel", "6.12.0")]);
        let coloured = text(&report, true);
        assert!(coloured.contains("\x1b[32mworks   \x1b[0m  kernel"));
        let plain = coloured.replace("\x1b[32m", "").replace("\x1b[0m", "");
        assert_eq!(plain, text(&report, false));
    }

    #[test]
    fn a_file_can_be_pasted() {
        let mut check = Check::works("capabilities", "");
        check.install = Some(Paste {
            path: "/etc/apparmor.d/cellblock".into(),
            content: "userns,\n".into(),
            then: "apparmor_parser -r /etc/apparmor.d/cellblock".into(),
        });
        let text = text(&report(vec![check]), false);
        assert!(text.contains("\ncat >/etc/apparmor.d/cellblock <<'END'\nuserns,\nEND\napparmor_parser -r /etc/apparmor.d/cellblock\n"), "{text}");
    }

    #[test]
    fn commands_are_not_broken() {
        let lines = wrap("aaa bbb `ccc ddd eee fff` ggg", 10);
        assert_eq!(lines, ["aaa bbb", "`ccc ddd eee fff`", "ggg"]);
        assert_eq!(wrap("", 10), [""]);
    }
}
