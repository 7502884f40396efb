//! The caller's environment, where API keys live.

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "environment",
    covers: &[21],
    attacks: &[],
    scenes: &[
        scene("not-inside", not_inside),
        scene("only-what-is-named", only_what_is_named),
    ],
    actors: &[Actor {
        name: "show",
        run: |_| {
            for (name, value) in std::env::vars_os() {
                println!("{name:?}={value:?}");
            }
            // The raw environment of every readable process, which libc does not show.
            for pid in 1..64 {
                if let Ok(bytes) = std::fs::read(format!("/proc/{pid}/environ")) {
                    println!("{pid}: {}", String::from_utf8_lossy(&bytes));
                }
            }
            0
        },
    }],
};

const SECRET: &str = "hunter2-hunter2";

fn not_inside(stage: &Stage) -> Check {
    let mut outside = stage.outside("environment/show", []);
    let outside = crate::cells::process::finish(outside.env("API_KEY", SECRET), stage.patience())?;
    assert!(
        String::from_utf8_lossy(&outside.stdout).contains(SECRET),
        "not live"
    );

    for cell in [
        stage.probe("environment/show", []),
        stage.probe("environment/show", []).without("landlock"),
    ] {
        let run = cell
            .caller_env("API_KEY", SECRET)
            .run()?
            .ended(Outcome::Ok)?;
        assert!(!run.stdout().contains(SECRET), "{}", run.stdout());
        assert!(!run.json.to_string().contains(SECRET), "{}", run.json);
    }
    Ok(())
}

fn only_what_is_named(stage: &Stage) -> Check {
    let run = stage
        .probe("environment/show", [])
        .caller_env("API_KEY", SECRET)
        .caller_env("OTHER", "unnamed-value")
        .option(["--env", "API_KEY"])
        .option(["--env", "MODE=test"])
        .run()?
        .ended(Outcome::Ok)?;
    assert!(
        run.stdout()
            .contains(&format!("\"API_KEY\"=\"{SECRET}\"\n"))
    );
    assert!(run.stdout().contains("\"MODE\"=\"test\"\n"));
    assert!(!run.stdout().contains("unnamed-value"), "{}", run.stdout());
    Ok(())
}
