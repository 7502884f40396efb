//! Whether a finished tree works: its recipes' own tests, in cells as strict as
//! any other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::catalogue::Layer;
use super::shop::Shop;
use cell::drivers;
use cell::run;
use cell::spec::partial::{PartialBind, PartialLimits};
use cell::spec::quantity::Bound;
use cell::spec::units::{Bytes, Span};
use cell::spec::{self, Ask, Mode, Partial, Stdin, Stdio};
use record::Outcome;
use record::error::{Result, SetupError, Step};

/// Where a test finds its recipe's folder.
const RECIPE: &str = "/recipe";

/// Runs every test of `layer` on `tree`.
///
/// # Errors
/// The first that does not succeed, with what it said.
pub(super) fn test(shop: &mut Shop, tree: &Path, layer: &Layer) -> Result<()> {
    let recipe = &layer.recipe;
    for (language, words) in &recipe.smoke {
        shop.progress
            .stage(&format!("testing {language} of {}", recipe.name));
        let folder = shop.scratch.writable("recipe", shop.writer)?;
        layer.write_to(&folder)?;
        let record = run::execute(&request(tree, &folder, language, words)?, Instant::now());
        shop.check()?;
        if let Some(error) = record.setup_error {
            return Err(error);
        }
        if record.outcome == Outcome::Cancelled {
            return Err(super::cancelled());
        }
        if record.outcome != Outcome::Ok {
            let said = super::tool::last_words(&record.stderr.unwrap_or_default().to_string());
            let why = record
                .context
                .unwrap_or_else(|| format!("{:?}", record.outcome));
            return Err(SetupError::new(Step::Store, format!("the smoke test failed: {why}: {said}"))
                .on(format!("{}: smoke.{language}", recipe.name))
                .hint("nothing was put into the store; mend the recipe, or build with the packages of its lock file (--locked)"));
        }
    }
    Ok(())
}

/// The policy of the language where it has one, and no more than that.
fn request(tree: &Path, folder: &Path, language: &str, words: &[String]) -> Result<spec::Spec> {
    let profile = drivers::find(language).and_then(|driver| driver.profile);
    let partial = Partial {
        argv: Some(words.iter().map(|word| word.as_str().into()).collect()),
        extends: profile.map(|profile| profile.name.to_owned()),
        rootfs: Some(tree.display().to_string()),
        binds: vec![PartialBind {
            source: folder.to_owned(),
            target: Some(PathBuf::from(RECIPE)),
            writable: false,
        }],
        limits: PartialLimits {
            // Imports from a cold disk.
            wall: Some(Bound(Some(Span(Duration::from_secs(120))))),
            // The tree is tested, not the limit: where no cgroup holds it, address
            // space that a runtime like V8 only reserves counts too.
            memory: Some(Bound(Some(Bytes::mib(2048)))),
            ..PartialLimits::default()
        },
        ..Partial::default()
    };
    let ask = Ask {
        mode: Mode::Exec,
        cwd: Path::new("/"),
        stdio: Stdio::Capture,
    };
    let mut spec = spec::load(&ask, None, partial)?;
    spec.stdin = Stdin::Null;
    Ok(spec)
}
