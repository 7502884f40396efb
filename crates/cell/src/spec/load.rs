//! The one place of this module that reads files: profiles, spec files, code.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::language;
use super::partial::{CodeFrom, Partial, is_stdin};
use super::profiles::{self, BASE, located};
use super::read::{Format, parse};
use super::resolve::{Ask, Layer, Mode, Origin, resolve};
use super::{Bytes, Spec, Stdin, Stdio};
use record::error::{Result, SetupError, Step};

/// Larger profiles, spec files and programs are refused.
const LARGEST: Bytes = Bytes::mib(64);

/// Reads everything that the flags and the spec file name, and resolves it. The
/// spec file `-` is standard input.
///
/// Without a profile named anywhere, `run` uses the one of its language, and
/// `exec` uses `default`.
///
/// # Errors
/// A file that cannot be read, or a value that is not allowed; each names its
/// file and field.
pub fn load(ask: &Ask<'_>, spec_file: Option<&Path>, flags: Partial) -> Result<Spec> {
    let mut upper = Vec::new();
    if let Some(path) = spec_file {
        // What the flags want of standard input is known before it is read.
        refuse_two_on_stdin(spec_file, &[&flags])?;
        upper.push(spec_layer(path, ask.cwd)?);
    }
    upper.push(Layer {
        origin: Origin::Flags,
        partial: flags,
    });
    for layer in &mut upper {
        layer.partial.root_at(ask.cwd);
    }
    let partials: Vec<&Partial> = upper.iter().map(|layer| &layer.partial).collect();
    refuse_two_on_stdin(spec_file, &partials)?;
    refuse_caps_without_capture(&upper, ask)?;
    // Only the last layer that says what runs is heard, so only its file, or
    // the caller's standard input, is read.
    let what = upper.iter_mut().rev().find(|l| l.partial.names_command());
    if let Some(what) = what {
        read_code(&mut what.partial, ask.cwd)?;
    }
    let read = |path: &Path| read_text(path);
    let (profile, mut layers) = match named_profile(&upper) {
        Some((name, origin)) => {
            let folder = match origin {
                Origin::File(path) => path.parent().unwrap_or(ask.cwd),
                _ => ask.cwd,
            };
            let chain = profiles::chain(name, folder, &read).map_err(|mut error| {
                error.operand.get_or_insert_with(|| origin.field("extends"));
                error
            })?;
            (name.to_owned(), chain)
        }
        None => {
            let name = usual_profile(&upper, ask);
            (name.to_owned(), profiles::chain(name, ask.cwd, &read)?)
        }
    };
    for layer in &mut layers {
        layer.partial.root_at(ask.cwd);
    }
    layers.append(&mut upper);
    let mut spec = resolve(layers, profile, ask)?;
    if spec_file.is_some_and(is_stdin) {
        spec.stdin = Stdin::Null;
    }
    Ok(spec)
}

fn spec_layer(path: &Path, cwd: &Path) -> Result<Layer> {
    let (origin, text) = if is_stdin(path) {
        let bytes = read_all(std::io::stdin().lock(), "standard input")?;
        (Origin::Stdin, as_text(bytes, "standard input")?)
    } else {
        let path = cwd.join(path);
        let text = read_text(&path)?;
        (Origin::File(path), text)
    };
    let format = Format::of(&origin.to_string(), &text);
    let partial = parse(&text, format).map_err(|error| located(error, &origin))?;
    Ok(Layer { origin, partial })
}

/// Standard input has one reader. The later one of `layers` wins.
fn refuse_two_on_stdin(spec_file: Option<&Path>, layers: &[&Partial]) -> Result<()> {
    let layers = || layers.iter().rev();
    let code = layers().find(|layer| layer.names_command());
    let code = code.and_then(|layer| layer.code_file.as_deref());
    let files = layers().find_map(|layer| layer.files_from.as_deref());
    let claims = [
        ("the request (`--spec -`)", spec_file),
        ("the code (`-`)", code),
        ("the files (`files_from = \"-\"`, --files-from -)", files),
    ];
    let mut claims = claims
        .into_iter()
        .filter(|(_, path)| path.is_some_and(is_stdin));
    let (Some((first, _)), Some((second, _))) = (claims.next(), claims.next()) else {
        return Ok(());
    };
    let message =
        format!("both {first} and {second} are to come from standard input, but only one can");
    Err(SetupError::new(Step::Spec, message)
        .on("standard input")
        .hint("give the request as a file, the code as FILE or with -c, or the files as a directory or an archive's path"))
}

/// What a call says about captured output means nothing where none is captured. A
/// profile may say it: it is for calls of either kind.
fn refuse_caps_without_capture(call: &[Layer], ask: &Ask<'_>) -> Result<()> {
    if ask.stdio == Stdio::Capture {
        return Ok(());
    }
    for Layer { origin, partial } in call {
        let limits = &partial.limits;
        let given = [
            ("limits.output", limits.output.is_some()),
            ("limits.on_output", limits.on_output.is_some()),
        ];
        if let Some((field, _)) = given.into_iter().find(|(_, given)| *given) {
            let message = "has no effect on streams that are passed straight through";
            return Err(SetupError::new(Step::Spec, message)
                .on(origin.field(field))
                .hint(
                    "have the output captured, with --json (or --record -), or leave the cap out",
                ));
        }
    }
    Ok(())
}

/// Puts the text of `code_file` into `code`, unless both are given: then the
/// validation refuses them.
fn read_code(what: &mut Partial, cwd: &Path) -> Result<()> {
    if what.code.is_some() {
        return Ok(());
    }
    let Some(file) = what.code_file.take() else {
        return Ok(());
    };
    let (bytes, from) = if is_stdin(&file) {
        let bytes = read_all(std::io::stdin().lock(), "standard input")?;
        (bytes, CodeFrom::Stdin)
    } else {
        (read_file(&cwd.join(&file))?, CodeFrom::File(file))
    };
    what.code = Some(bytes.into());
    what.code_from = Some(from);
    Ok(())
}

/// The profile that is named last, and by whom.
fn named_profile(upper: &[Layer]) -> Option<(&str, &Origin)> {
    let named = |layer: &'_ Layer| layer.partial.extends.is_some();
    let layer = upper.iter().rev().find(|layer| named(layer))?;
    Some((layer.partial.extends.as_deref()?, &layer.origin))
}

/// The profile when none is named.
fn usual_profile(upper: &[Layer], ask: &Ask<'_>) -> &'static str {
    let upper = || upper.iter().rev().map(|layer| &layer.partial);
    let what = upper().find(|partial| partial.names_command());
    let (Mode::Run, Some(what)) = (ask.mode, what) else {
        return BASE;
    };
    let named = upper().find_map(|partial| partial.language.as_deref());
    // The resolution reports an unknown language.
    let driver = language::choose(named, what).ok();
    let profile = driver.and_then(|driver| driver.profile);
    profile.map_or(BASE, |profile| profile.name)
}

/// Reads a file that holds UTF-8 text.
///
/// # Errors
/// It cannot be opened or read, is too large, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    as_text(read_file(path)?, path.display())
}

fn as_text(bytes: Vec<u8>, name: impl std::fmt::Display) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        SetupError::new(Step::Spec, format!("is not UTF-8 text at byte {at}")).on(name)
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| {
        let failure = SetupError::io(Step::Spec, "open", &error).on(path.display());
        match error.kind() {
            ErrorKind::NotFound => failure.hint("name a file of the host's that exists"),
            ErrorKind::PermissionDenied => failure.hint("name a file that you may read"),
            _ => failure,
        }
    })?;
    read_all(file, path.display())
}

fn read_all(input: impl Read, name: impl std::fmt::Display) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match input.take(LARGEST.0 + 1).read_to_end(&mut bytes) {
        Err(error) => Err(SetupError::io(Step::Spec, "read", &error).on(name)),
        Ok(_) if bytes.len() as u64 > LARGEST.0 => {
            let message = format!("is larger than {LARGEST}");
            Err(SetupError::new(Step::Spec, message).on(name))
        }
        Ok(_) => Ok(bytes),
    }
}
