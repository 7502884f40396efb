//! A record for readers who must not learn the host's paths.

use std::borrow::Cow;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::{FileSkipped, Isolation, NetworkRecord, Record};

/// The record with all its fields. Paths are left out of cellblock's own texts; the
/// code's output and file names stay.
pub(super) struct Public<'a>(pub(super) Cow<'a, Record>);

impl Serialize for Public<'_> {
    /// Field by field, so that nothing large is copied and no new field comes
    /// through unseen.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[rustfmt::skip]
        let Record {
            schema, id, version, started_at, language, argv, outcome, exit_code, signal, execution_time,
            is_error, error_category, is_retryable, context, operator_hint, stdout, stderr,
            stdout_base64, stderr_base64, results, order, error, files, files_skipped, truncated, denied,
            denied_to_interpreter, network, usage, limits, isolation, start, template, timing,
            setup_error, warnings,
        } = &*self.0;
        let mut map = serializer.serialize_map(None)?;
        macro_rules! fields {
            ($($field:ident),+ $(,)?) => {
                $(map.serialize_entry(stringify!($field), $field)?;)+
            };
        }
        #[rustfmt::skip]
        fields!(
            schema, id, version, started_at, language, argv, outcome, exit_code, signal, execution_time,
            is_error, error_category, is_retryable, context,
        );
        let hint = operator_hint.as_ref().filter(|text| !text.contains('/'));
        map.serialize_entry("operator_hint", &hint)?;
        fields!(stdout, stderr);
        fields!(stdout_base64, stderr_base64, results);
        if !order.is_empty() {
            fields!(order);
        }
        fields!(error, files);
        map.serialize_entry("files_skipped", &skipped(files_skipped))?;
        fields!(truncated, denied, denied_to_interpreter);
        if let Some(network) = network {
            map.serialize_entry("network", &without_addresses(network))?;
        }
        fields!(usage, limits);
        map.serialize_entry("isolation", &isolation.as_ref().map(without_paths))?;
        fields!(start);
        if let Some(template) = template {
            map.serialize_entry("template", template)?;
        }
        fields!(timing);
        let error = setup_error.as_ref().map(|error| error.without_paths());
        map.serialize_entry("setup_error", &error)?;
        let warnings: Vec<&String> = warnings.iter().filter(|text| !text.contains('/')).collect();
        map.serialize_entry("warnings", &warnings)?;
        map.end()
    }
}

/// The reason may name where on the host a copy was to go.
fn skipped(files: &[FileSkipped]) -> Vec<FileSkipped> {
    let reason = |reason: &String| match reason.contains('/') {
        true => "it could not be copied out".to_owned(),
        false => reason.clone(),
    };
    (files.iter())
        .map(|file| FileSkipped {
            path: file.path.clone(),
            reason: reason(&file.reason),
        })
        .collect()
}

/// Where a name leads is the host's affair.
fn without_addresses(network: &NetworkRecord) -> NetworkRecord {
    let mut network = network.clone();
    for connection in &mut network.connections {
        connection.address = None;
    }
    network
}

fn without_paths(isolation: &Isolation) -> Isolation {
    let mut isolation = isolation.clone();
    if isolation.rootfs.contains('/') {
        isolation.rootfs = "directory".to_owned();
    }
    for path in isolation.cgroup.iter_mut().map(|cgroup| &mut cgroup.path) {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        *path = name;
    }
    isolation
}
