//! Bytes that are not text, or text that breaks other formats, in output, arguments,
//! file names and exceptions. The record stays JSON, and the bytes can be recovered.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "raw-bytes",
    covers: &[31],
    attacks: &[],
    scenes: &[
        scene("output", output),
        scene("arguments", arguments),
        scene("environment", environment),
        python_scene("file-names", file_names),
        python_scene("exceptions", exceptions),
    ],
    actors: &[Actor {
        name: "echo",
        run: |_| {
            use std::io::Write as _;
            let mut out = std::io::stdout();
            // The rest of the harness has its arguments as text; these are the raw
            // ones.
            for argument in std::env::args_os().skip(3) {
                let _ = out.write_all(argument.as_bytes());
            }
            let _ = out.flush();
            0
        },
    }],
};

/// Invalid UTF-8, a lone surrogate's encoding, quotes and backslashes, control
/// characters, line separators that end a line of JavaScript, an escape
/// sequence, a byte order mark.
const HOSTILE: &[&[u8]] = &[
    b"\xff\xfe\x80",
    b"\xed\xa0\x80",
    b"\"}],\\u0000\\",
    b"\x01\x1b[2J\x7f",
    "\u{2028}\u{2029}\u{feff}".as_bytes(),
    b"\r\n\n\r",
];

fn hostile() -> Vec<&'static OsStr> {
    HOSTILE
        .iter()
        .map(|bytes| OsStr::from_bytes(bytes))
        .collect()
}

fn output(stage: &Stage) -> Check {
    for bytes in HOSTILE {
        let mut argv = vec![
            OsStr::new("/probe"),
            OsStr::new("--probe"),
            OsStr::new("raw-bytes/echo"),
        ];
        argv.push(OsStr::from_bytes(bytes));
        let run = stage
            .exec(argv)
            .ro(&stage.probe, "/probe".as_ref())
            .run()?
            .ended(Outcome::Ok)?;
        let kept = match &run.record.stdout_base64 {
            Some(encoded) => BASE64
                .decode(encoded.to_string())
                .map_err(|error| fail(error.to_string()))?,
            None => run.stdout().as_bytes().to_vec(),
        };
        assert_eq!(kept, *bytes);
        assert_eq!(
            run.record.stdout_base64.is_some(),
            std::str::from_utf8(bytes).is_err()
        );
        run.assert_one_line();
    }
    Ok(())
}

fn arguments(stage: &Stage) -> Check {
    let mut argv = vec![
        OsStr::new("/probe"),
        OsStr::new("--probe"),
        OsStr::new("raw-bytes/echo"),
    ];
    argv.extend(hostile());
    let run = stage
        .exec(&argv)
        .itself()
        .ro(&stage.probe, "/probe".as_ref())
        .run()?
        .ended(Outcome::Ok)?;
    let told: Vec<Vec<u8>> = run
        .record
        .argv
        .unwrap_or_default()
        .iter()
        .map(|argument| argument.as_bytes().to_vec())
        .collect();
    let given: Vec<Vec<u8>> = argv
        .iter()
        .map(|argument| argument.as_bytes().to_vec())
        .collect();
    assert_eq!(told, given);
    Ok(())
}

fn environment(stage: &Stage) -> Check {
    for bytes in HOSTILE {
        let mut setting = b"HOSTILE=".to_vec();
        setting.extend_from_slice(bytes);
        let run = stage
            .probe("environment/show", [])
            .raw_option(["--env".as_ref(), OsStr::from_bytes(&setting)])
            .run()?
            .ended(Outcome::Ok)?;
        let shown = format!("\"HOSTILE\"={:?}", OsStr::from_bytes(bytes));
        assert!(run.stdout().contains(&shown), "{shown} in {}", run.stdout());
    }
    Ok(())
}

fn file_names(stage: &Stage) -> Check {
    let names: Vec<Vec<u8>> = HOSTILE
        .iter()
        .chain(&[&b"..x"[..], b"-rf", b" ", b"a\nb"])
        .map(|name| name.to_vec())
        .collect();
    let literals: Vec<String> = names
        .iter()
        .map(|name| {
            let bytes: String = name.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("b'{bytes}'")
        })
        .collect();
    let scratch = stage.scratch()?;
    let out = scratch.dir("out", 0o777)?;
    let code = format!(
        "for name in [{}]:\n    open(name, 'w').write('x')\n",
        literals.join(", ")
    );
    let run = stage
        .python(&code)
        .option(["--out", &out.to_string_lossy()])
        .run()?
        .ended(Outcome::Ok)?;
    let mut told: Vec<Vec<u8>> = run
        .record
        .files
        .iter()
        .map(|file| file.path.as_bytes().to_vec())
        .collect();
    let mut names = names;
    told.sort();
    names.sort();
    assert_eq!(told, names);
    let mut copied = Vec::new();
    for entry in std::fs::read_dir(&out)? {
        copied.push(entry?.file_name().as_bytes().to_vec());
    }
    copied.sort();
    assert_eq!(copied, names);
    Ok(())
}

fn exceptions(stage: &Stage) -> Check {
    for (literal, shown) in [
        ("'\\udc80\\ud800'", None),
        ("'\\x00\\x1b[2J'", Some("\0\u{1b}[2J")),
        ("'\\u2028\"}\\\\'", Some("\u{2028}\"}\\")),
        ("b'\\xff'", Some("b'\\xff'")),
    ] {
        let run = stage
            .python(&format!("raise ValueError({literal})\n"))
            .run()?
            .ended(Outcome::Error)?;
        let error = run
            .record
            .error
            .as_ref()
            .ok_or_else(|| fail("no error in the record"))?;
        assert_eq!(error.name, "ValueError");
        if let Some(shown) = shown {
            assert_eq!(error.message, shown);
        }
        run.assert_one_line();
    }
    Ok(())
}
