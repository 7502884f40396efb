//! What R code gets from its driver.

use serde_json::json;

use super::harness::{Bench, other, parsed};

fn r() -> Option<Bench> {
    other("r")
}

#[test]
fn visible_values_are_results_and_the_last_is_the_main_one() {
    let Some(r) = r() else { return };
    let expected = [
        ("ls()", "", &["=character(0)"][..]),
        (
            "x <- c(2, 4, 6)\ncat('n =', length(x), '\\n')\nmean(x)",
            "n = 3 \n",
            &["=[1] 4"],
        ),
        (
            "1; 'two'; invisible(3); 4",
            "",
            &["[1] 1", "[1] \"two\"", "=[1] 4"],
        ),
        ("x <- 5", "", &[]),
        ("5; x <- 5", "", &["[1] 5"]),
        ("", "", &[]),
        ("# nothing", "", &[]),
        ("print(1)", "[1] 1\n", &[]),
        ("f <- function(x) {\n  x + 1\n}\nf(1)", "", &["=[1] 2"]),
        ("'é\\u2603'", "", &["=[1] \"é☃\""]),
        (
            "setClass('P', representation(x = 'numeric')); new('P', x = 1)",
            "",
            &["=An object of class \"P\"\nSlot \"x\":\n[1] 1\n"],
        ),
        (
            "print.odd <- function(x, ...) stop('broken'); structure(1, class = 'odd')",
            "",
            &["=<a odd that cannot be printed: broken>"],
        ),
        ("commandArgs(TRUE)", "", &["=character(0)"]),
    ];
    let runs = r.run_each(&expected.map(|(code, ..)| code), &[]);
    for ((code, stdout, texts), run) in expected.into_iter().zip(runs) {
        assert!(run.error.is_none() && run.done, "{code}\n{run:#?}");
        assert!(run.status.success(), "{code}\n{run:#?}");
        assert_eq!(
            (run.stdout.as_str(), run.texts()),
            (stdout, texts.iter().map(ToString::to_string).collect()),
            "{code}"
        );
    }
    assert_eq!(r.ok("closeAllConnections(); 5").texts(), ["=[1] 5"]);
    let run = r.run_with(b"commandArgs(TRUE)", &["b c".into(), "-x".into()]);
    assert_eq!(run.texts(), ["=[1] \"b c\" \"-x\" "]);
}

#[test]
fn tables_have_three_forms() {
    let Some(r) = r() else { return };
    let codes = [
        "data.frame(city = c('Lyon', 'Graz <b>\\n'), pop = c(522, 292.5), ok = c(TRUE, NA), day = as.Date('2024-01-02'))",
        "data.frame(n = 1:5000)",
        "head(mtcars, 2)[1:2]",
        "data.frame(x = strrep('y', 1:1000 * 5))",
        "data.frame()",
    ];
    let [two, many, named, long, empty] = &r.run_each(&codes, &[])[..] else {
        panic!("five codes have five runs");
    };
    let forms = &two.results[0].formats;
    assert_eq!(
        parsed(two.results[0].data.as_ref()),
        Some(json!({
            "columns": ["city", "pop", "ok", "day"],
            "types": ["character", "numeric", "logical", "Date"],
            "rows": [["Lyon", 522.0, true, "2024-01-02"], ["Graz <b>\n", 292.5, null, "2024-01-02"]],
            "total_rows": 2, "total_columns": 4,
        }))
    );
    let html = forms["text/html"].as_str().unwrap();
    assert!(
        html.contains("<td>Graz &lt;b&gt;") && html.contains("<th>pop</th>"),
        "{html}"
    );
    let data = parsed(many.results[0].data.as_ref()).unwrap();
    assert_eq!(data["rows"].as_array().unwrap().len(), 1000);
    assert_eq!(data["total_rows"], 5000);
    let html = many.results[0].formats["text/html"].as_str().unwrap();
    assert!(html.contains("5000 rows in all"), "{html}");
    let data = parsed(named.results[0].data.as_ref()).unwrap();
    assert_eq!(data["index"], json!(["Mazda RX4", "Mazda RX4 Wag"]));
    let data = parsed(long.results[0].data.as_ref()).unwrap();
    assert!(
        data.to_string().len() <= 768 << 10,
        "{}",
        data.to_string().len()
    );
    assert_eq!(empty.results[0].formats.len(), 1);
    assert!(empty.status.success());
}

#[test]
fn each_page_is_a_result() {
    let Some(r) = r() else { return };
    for (code, forms) in [
        ("plot(1:10, (1:10)^2, main = 'squares')", &["plot"][..]),
        (
            "for (i in 1:3) plot(i); 5",
            &["plot", "plot", "text", "plot"],
        ),
        (
            "plot(1); lines(1:2)\ninvisible(dev.off())\nhist(c(1, 2, 2))",
            &["plot", "plot"],
        ),
        (
            "png('own.png'); plot(1); invisible(dev.off()); file.exists('own.png')",
            &["text"],
        ),
        ("plot(1); quit(status = 0)", &["plot"]),
    ] {
        let run = r.run(code);
        let kinds: Vec<&str> = run
            .results
            .iter()
            .map(|result| {
                if result.text.is_some() {
                    "text"
                } else {
                    "plot"
                }
            })
            .collect();
        assert_eq!(kinds, forms, "{code}\n{run:?}");
    }
    let run = r.run("plot(1); stop('after')");
    assert_eq!(
        (run.results.len(), run.error().message.as_str()),
        (1, "after")
    );
    assert!(!r.workspace().join("Rplots.pdf").exists());
}

#[test]
fn errors_are_reported_with_the_codes_own_lines() {
    let Some(r) = r() else { return };
    for (code, name, message, line, is_syntax) in [
        (
            "f <- function(n) {\n  stop('bad')\n}\nf(1)",
            "simpleError",
            "bad",
            2,
            false,
        ),
        (
            "\nlog('a')",
            "simpleError",
            "non-numeric argument to mathematical function",
            2,
            false,
        ),
        (
            "x <- nope + 1",
            "simpleError",
            "object 'nope' not found",
            1,
            false,
        ),
        (
            "library(nope)",
            "packageNotFoundError",
            "there is no package called",
            1,
            false,
        ),
        (
            "x <- 1\ny z",
            "parseError",
            "main.R:2:3: unexpected symbol",
            2,
            true,
        ),
        (
            "f <- function() f(); f()",
            "CStackOverflowError",
            "C stack usage",
            1,
            false,
        ),
        (
            "stop(structure(class = c('mine', 'error', 'condition'), list(message = 'm', call = NULL)))",
            "mine",
            "m",
            1,
            false,
        ),
        (
            "options(warn = 2); f <- function() warning('fatal'); f()",
            "simpleError",
            "(converted from warning) fatal",
            1,
            false,
        ),
    ] {
        let run = r.run(code);
        let error = run.error();
        assert!(
            error.name == name || name == "CStackOverflowError",
            "{code}: {error:?}"
        );
        assert!(
            error.message.starts_with(message) || name == "CStackOverflowError",
            "{code}: {error:?}"
        );
        assert_eq!(
            (error.line, run.is_syntax),
            (Some(line), is_syntax),
            "{code}: {error:?}"
        );
        assert_eq!(run.status.code(), Some(1), "{code}");
        assert!(
            !error
                .traceback
                .iter()
                .any(|line| line.contains("eval(expression")),
            "{error:?}"
        );
    }
    assert_eq!(
        r.run("f <- function(n) {\n  g(n)\n}\ng <- function(n) stop('bad')\nf(2)")
            .error()
            .traceback,
        [
            "main.R:5: f(2)",
            "Error in g(n) : bad",
            "Traceback:",
            "1. f(2)",
            "2. g(n) at main.R#2",
            "3. stop(\"bad\") at main.R#4",
        ]
    );
}

#[test]
fn streams_and_exits_are_plain_rs() {
    let Some(r) = r() else { return };
    let run = r.ok("message('hi'); x <- log(-1); warning('w'); cat('out\\n')");
    assert_eq!(run.stdout, "out\n");
    assert_eq!(
        run.stderr,
        "hi\nWarning in log(-1) : NaNs produced\nWarning: w \n"
    );
    for (code, status) in [
        ("quit(status = 3)", 3),
        ("q('no')", 0),
        ("readLines('stdin'); quit(status = 2)", 2),
    ] {
        assert_eq!(r.run(code).status.code(), Some(status), "{code}");
    }
}
