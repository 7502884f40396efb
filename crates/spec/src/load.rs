//! The one place of this module that reads files: profiles, spec files, code.

use std::fmt::Display;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::language;
use super::partial::{CodeFrom, GivenContent, Partial, is_stdin};
use super::places::LARGEST_FILE;
use super::profiles::{self, BASE, located};
use super::read::{Format, parse};
use super::resolve::{Ask, Mode, Origin, SpecLayer, resolve};
use super::{Bytes, RemoteRequest, Spec, Stdin, Stdio, Trust, request};
use record::error::{Result, SetupError, Step};

/// Larger profiles, spec files and programs are refused.
const LARGEST: Bytes = Bytes::mib(64);

/// Reads everything that the flags, the spec file and the request of somebody else
/// name, and resolves it. The file `-` is standard input.
///
/// Without a profile named anywhere, `run` uses the one of its language, and
/// `exec` uses `default`.
///
/// # Errors
/// A file that cannot be read, or a value that is not allowed in general or to the
/// author of the request; each names its file and field.
pub fn load(
    ask: &Ask<'_>,
    spec_file: Option<&Path>,
    request: Option<&Path>,
    flags: Partial,
) -> Result<Spec> {
    let request = request.map(RequestFrom::File);
    load_all(ask, spec_file, request, flags)
}

/// The same for the request of somebody else that a server has read already.
///
/// # Errors
/// Those of [`load`].
pub fn load_for(
    ask: &Ask<'_>,
    spec_file: Option<&Path>,
    request: RemoteRequest,
    flags: Partial,
) -> Result<Spec> {
    let request = RequestFrom::Value(Box::new(request));
    load_all(ask, spec_file, Some(request), flags)
}

/// Where the request of somebody else is.
enum RequestFrom<'a> {
    File(&'a Path),
    Value(Box<RemoteRequest>),
}

fn load_all(
    ask: &Ask<'_>,
    spec_file: Option<&Path>,
    request: Option<RequestFrom<'_>>,
    flags: Partial,
) -> Result<Spec> {
    let request_file = match &request {
        Some(RequestFrom::File(path)) => Some(*path),
        _ => None,
    };
    let documents = [
        ("the spec file (`--spec -`)", spec_file),
        ("the request (`--request -`)", request_file),
    ];
    // Before anything reads standard input.
    refuse_two_on_stdin(documents, &[&flags])?;
    let mut upper = Vec::new();
    if let Some(path) = spec_file {
        upper.push(spec_layer(path, ask.cwd)?);
    }
    upper.push(SpecLayer {
        origin: Origin::Flags,
        partial: flags,
    });
    match request {
        None => {}
        Some(RequestFrom::File(path)) => upper.push(request_file_layer(path, ask.cwd)?),
        Some(RequestFrom::Value(request)) => upper.push(request_layer(*request)?),
    }
    for layer in &mut upper {
        layer.partial.root_at(ask.cwd);
    }
    let partials: Vec<&Partial> = upper.iter().map(|layer| &layer.partial).collect();
    refuse_two_on_stdin(documents, &partials)?;
    let mut ask = *ask;
    if partials.iter().rev().find_map(|partial| partial.tty) == Some(true) {
        ask.stdio = Stdio::Terminal;
    }
    let ask = &ask;
    refuse_caps_without_capture(&upper, ask)?;
    // Only the last layer that names code or a program counts, so only its file, or
    // the caller's standard input, is read.
    let what = upper.iter_mut().rev().find(|l| l.partial.names_command());
    if let Some(what) = what {
        read_code(&mut what.partial, ask.cwd)?;
    }
    let read = |path: &Path| read_text(path);
    let (profile, mut layers) = match named_profile(&upper) {
        Some((name, origin)) => {
            let chain = profiles::chain(name, origin.folder(ask.cwd), &read)
                .map_err(|error| origin.extends_error(error))?;
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
    for layer in &mut layers {
        // A request names no mirror.
        if let (Trust::Caller, Some(network)) = (layer.origin.trust(), &mut layer.partial.network) {
            network.find_mirrors()?;
        }
    }
    for layer in &mut layers {
        read_files(&mut layer.partial)?;
    }
    let mut spec = resolve(layers, profile, ask)?;
    leave_out_absent(&mut spec);
    if spec_file.is_some_and(is_stdin) && matches!(spec.stdin, Stdin::Inherit) {
        spec.stdin = Stdin::Null;
    }
    Ok(spec)
}

fn spec_layer(path: &Path, cwd: &Path) -> Result<SpecLayer> {
    let origin = match is_stdin(path) {
        true => Origin::Stdin,
        false => Origin::File(cwd.join(path)),
    };
    let text = as_text(read_document(path, cwd, LARGEST)?, &origin)?;
    let format = Format::of(&origin.to_string(), &text);
    let partial = parse(&text, format).map_err(|error| located(error, &origin))?;
    Ok(SpecLayer { origin, partial })
}

fn request_file_layer(path: &Path, cwd: &Path) -> Result<SpecLayer> {
    let bytes = read_document(path, cwd, request::LARGEST)?;
    request_layer(RemoteRequest::parse(&as_text(bytes, Origin::Request)?)?)
}

impl RemoteRequest {
    /// The request in this JSON text.
    ///
    /// # Errors
    /// It is not a request; names the wrong field.
    pub fn parse(text: &str) -> Result<Self> {
        parse(text, Format::Json).map_err(|error| located(error, &Origin::Request))
    }
}

fn request_layer(request: RemoteRequest) -> Result<SpecLayer> {
    let origin = Origin::Request;
    if let Some(fault) = request.faults().into_iter().next() {
        return Err(origin.fault(fault));
    }
    let partial = request.into_partial();
    Ok(SpecLayer { origin, partial })
}

/// Standard input has one reader. The later one of `layers` wins.
fn refuse_two_on_stdin(
    [spec_file, request]: [(&str, Option<&Path>); 2],
    layers: &[&Partial],
) -> Result<()> {
    let layers = || layers.iter().rev();
    let code = layers().find(|layer| layer.names_command());
    let code = code.and_then(|layer| layer.code_file.as_deref());
    let files = layers().find_map(|layer| layer.files_from.as_deref());
    let claims = [
        spec_file,
        request,
        ("the code (`-`)", code),
        ("the files (`files_from = \"-\"`, --files-from -)", files),
    ];
    let mut claims = claims
        .into_iter()
        .filter(|(_, path)| path.is_some_and(is_stdin));
    let (Some((first, _)), Some((second, _))) = (claims.next(), claims.next()) else {
        return Ok(());
    };
    let message = format!("{first} and {second} both read standard input, but only one can");
    Err(SetupError::new(Step::Spec, message)
        .on("standard input")
        .hint("give the document as a file, the code as FILE or with -c, or the files as a directory or an archive's path"))
}

/// Refuses limits on captured output in a call that captures none. A profile may set
/// them: it serves calls of both kinds.
fn refuse_caps_without_capture(call: &[SpecLayer], ask: &Ask<'_>) -> Result<()> {
    if ask.stdio != Stdio::Inherit {
        return Ok(());
    }
    for SpecLayer { origin, partial } in call {
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
    what.code = Some(read_document(&file, cwd, LARGEST)?.into());
    what.code_from = Some(match is_stdin(&file) {
        true => CodeFrom::Stdin,
        false => CodeFrom::File(file),
    });
    Ok(())
}

/// Reads the files that go elsewhere than into `/workspace`: nothing of the caller's has
/// to stay open for them, and the plan knows their size.
fn read_files(layer: &mut Partial) -> Result<()> {
    for file in &mut layer.files {
        let is_host = file.text.is_none() && file.base64.is_none() && file.given.is_none();
        if let (true, true, Some(source)) = (file.path.is_absolute(), is_host, &file.source) {
            let (content, executable) = read_file_and_mode(source)?;
            file.executable |= executable;
            file.source = None;
            file.given = Some(GivenContent::Read(content.into()));
        }
    }
    Ok(())
}

/// Reads the files that come from descriptors; `take` opens the one with a number.
///
/// # Errors
/// What `take` reports, or the content cannot be read or is too large.
pub fn read_descriptors(
    flags: &mut Partial,
    mut take: impl FnMut(i32) -> Result<File>,
) -> Result<()> {
    for file in &mut flags.files {
        if let Some(GivenContent::Descriptor(number)) = file.given {
            let from = take(number)?;
            file.executable |= is_executable(&from);
            let content = read_all(from, format_args!("fd:{number}"), LARGEST_FILE)?;
            file.given = Some(GivenContent::Read(content.into()));
        }
    }
    Ok(())
}

/// Leaves out optional binds of what the host does not have.
fn leave_out_absent(spec: &mut Spec) {
    let is_absent = |path: &Path| {
        let found = path.metadata();
        found.is_err_and(|e| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
    };
    let absent = (spec.binds).extract_if(.., |bind| bind.optional && is_absent(&bind.source));
    spec.absent.extend(absent.map(|bind| bind.target));
}

/// The profile that is named last, and by whom.
fn named_profile(upper: &[SpecLayer]) -> Option<(&str, &Origin)> {
    let named = |layer: &'_ SpecLayer| layer.partial.extends.is_some();
    let layer = upper.iter().rev().find(|layer| named(layer))?;
    Some((layer.partial.extends.as_deref()?, &layer.origin))
}

/// The profile when none is named.
fn usual_profile(upper: &[SpecLayer], ask: &Ask<'_>) -> &'static str {
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
    as_text(read_file(path, LARGEST)?, path.display())
}

fn as_text(bytes: Vec<u8>, name: impl Display) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        SetupError::new(Step::Spec, format!("is not UTF-8 text at byte {at}")).on(name)
    })
}

/// Reads a file, or standard input when `path` is `-`.
fn read_document(path: &Path, cwd: &Path, most: Bytes) -> Result<Vec<u8>> {
    match is_stdin(path) {
        true => read_all(std::io::stdin().lock(), "standard input", most),
        false => read_file(&cwd.join(path), most),
    }
}

fn read_file(path: &Path, most: Bytes) -> Result<Vec<u8>> {
    read_all(open_file(path)?, path.display(), most)
}

/// A file to put into the cell, and whether it can be executed.
fn read_file_and_mode(path: &Path) -> Result<(Vec<u8>, bool)> {
    let file = open_file(path)?;
    let executable = is_executable(&file);
    let content = read_all(file, path.display(), LARGEST_FILE)?;
    Ok((content, executable))
}

fn is_executable(file: &File) -> bool {
    let status = file.metadata();
    status.is_ok_and(|status| status.is_file() && status.mode() & 0o111 != 0)
}

fn open_file(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| {
        let failure = SetupError::io(Step::Spec, "open", &error).on(path.display());
        match error.kind() {
            ErrorKind::NotFound => failure.hint("name a file that exists on the host"),
            ErrorKind::PermissionDenied => failure.hint("name a file that you may read"),
            _ => failure,
        }
    })
}

fn read_all(input: impl Read, name: impl Display, most: Bytes) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match input.take(most.0 + 1).read_to_end(&mut bytes) {
        Err(error) => Err(SetupError::io(Step::Spec, "read", &error).on(name)),
        Ok(_) if bytes.len() as u64 > most.0 => {
            let message = format!("is larger than {most}");
            Err(SetupError::new(Step::Spec, message).on(name))
        }
        Ok(_) => Ok(bytes),
    }
}
