//! The parts of a record that every view shows, as rows of tables and as pairs.

use serde_json::Value;

use record::words::{bytes, in_unit, milliseconds, times};
use record::{Enforced, IdRecord, Isolation, LimitRecord, Record, Start, Usage};

/// The rows of a table.
pub(super) type Rows = Vec<Vec<String>>;

pub(super) fn file_rows(record: &Record) -> Rows {
    let files = record.files.iter();
    files
        .map(|file| {
            vec![
                file.change.to_string(),
                file.path.to_string(),
                file.size.map_or_else(String::new, bytes),
                file.media_type.clone().unwrap_or_default(),
                file.sha256
                    .as_deref()
                    .map_or_else(String::new, |sha256| shortened(sha256, 12)),
            ]
        })
        .collect()
}

pub(super) fn skipped_rows(record: &Record) -> Rows {
    let skipped = record.files_skipped.iter();
    skipped
        .map(|skipped| vec![skipped.path.to_string(), skipped.reason.clone()])
        .collect()
}

/// The kind of cell that was made ahead of the call, if one was.
pub(super) fn started_ahead(record: &Record) -> Option<&'static str> {
    match record.start? {
        Start::Cold => None,
        Start::Blank => Some("blank cell"),
        Start::Ready => Some("ready cell"),
        Start::Forked => Some("forked cell"),
        Start::Shared => Some("cell of another context"),
    }
}

/// What of a list, or of the files' contents, the record does not hold.
pub(super) fn cut_note(record: &Record, name: &str) -> Option<String> {
    let cut = record.truncated.get(name)?;
    let (kept, total) = (cut.kept, cut.total);
    Some(match name {
        "inline_files" => format!("contents of {kept} of {total} files are in the record"),
        _ => format!("{name}: {kept} of {total} are listed"),
    })
}

/// A name and the text of each file whose content the record holds as text.
pub(super) fn contents(record: &Record) -> impl Iterator<Item = (String, String)> {
    let files = record.files.iter();
    files.filter_map(|file| Some((file.path.to_string(), file.content.as_ref()?.to_string())))
}

pub(super) fn denied_rows(record: &Record) -> Rows {
    let denied = record.denied.iter();
    denied
        .map(|denied| {
            vec![
                denied.kind.clone(),
                denied.name.clone(),
                times(denied.count),
                denied.action.clone(),
                denied.reason.clone().unwrap_or_default(),
            ]
        })
        .collect()
}

/// Connections to hosts, and how many are not listed.
pub(super) fn connection_rows(record: &Record) -> Rows {
    let Some(network) = &record.network else {
        return Rows::new();
    };
    let rows = network.connections.iter().map(|connection| {
        vec![
            connection.shown(),
            connection.via.clone(),
            connection.address.clone().unwrap_or_default(),
            format!("{} out", bytes(connection.sent_bytes)),
            format!("{} in", bytes(connection.received_bytes)),
            milliseconds(connection.duration_ms as f64),
            connection.verdict.clone(),
            connection.reason.clone().unwrap_or_default(),
        ]
    });
    rows.collect()
}

/// What the lists of connections and refusals leave out, and why they may be incomplete.
pub(super) fn network_notes(record: &Record) -> Vec<String> {
    let Some(network) = &record.network else {
        return Vec::new();
    };
    let totals = &network.totals;
    let missing = [
        (totals.connections_not_listed, "connections"),
        (totals.refused_not_listed, "refusals of hosts"),
    ];
    let missing = missing.into_iter().filter(|(count, _)| *count > 0);
    let missing = missing.map(|(count, what)| format!("{count} more {what} are not listed"));
    let unrouted = totals.unrouted.filter(|count| *count > 0);
    let unrouted = unrouted.map(|count| format!("{count} attempts at addresses had no route"));
    let closed = totals.closed_ports.filter(|count| *count > 0);
    let closed = closed.map(|count| format!("{count} attempts at ports where nothing listens"));
    let failure = network.broker_failure.iter();
    let failure = failure.map(|why| format!("the broker ended before the cell: {why}"));
    missing
        .chain(unrouted)
        .chain(closed)
        .chain(failure)
        .collect()
}

pub(super) fn limit_rows(record: &Record) -> Rows {
    let row = |(name, limit): (&String, &LimitRecord)| {
        vec![
            name.clone(),
            in_unit(limit.requested, &limit.unit),
            match limit.enforced {
                Some(Enforced::Exactly(value)) => in_unit(value, &limit.unit),
                Some(Enforced::BestEffort(_)) => "best effort".to_owned(),
                None => "none".to_owned(),
            },
            limit.by.clone(),
            match limit.hit {
                Some(true) => "yes",
                Some(false) => "",
                None => "unknown",
            }
            .to_owned(),
        ]
    };
    record.limits.iter().map(row).collect()
}

pub(super) fn usage_pairs(usage: &Usage) -> Vec<(&'static str, String)> {
    let cpu = match (usage.cpu_user_ms, usage.cpu_system_ms) {
        (None, None) => String::new(),
        (user, system) => format!(
            "{} user, {} system",
            milliseconds(user.unwrap_or(0.0)),
            milliseconds(system.unwrap_or(0.0))
        ),
    };
    let memory = usage.memory_peak_bytes.map_or_else(String::new, bytes);
    let processes = usage.processes_peak.map(|count| count.to_string());
    let throttled = usage.throttled_ms.filter(|time| *time > 0.0);
    vec![
        ("time", milliseconds(usage.wall_ms)),
        ("cpu", cpu),
        ("memory", memory),
        ("processes", processes.unwrap_or_default()),
        (
            "held back",
            throttled.map_or_else(String::new, milliseconds),
        ),
        ("measured by", usage.by.clone()),
    ]
}

pub(super) fn isolation_pairs(isolation: &Isolation) -> Vec<(&'static str, String)> {
    let landlock = match isolation.landlock_abi {
        Some(abi) => format!("ABI {abi}: {}", isolation.landlock_scopes.join(", ")),
        None => "none".to_owned(),
    };
    let id = |id: &IdRecord| format!("{} (outside {})", id.inside, id.outside);
    let cgroup = isolation.cgroup.as_ref().map_or_else(
        || "none".to_owned(),
        |cgroup| {
            format!(
                "{} ({}), controllers: {}",
                cgroup.path,
                cgroup.source,
                joined_or_none(&cgroup.controllers)
            )
        },
    );
    vec![
        ("profile", isolation.profile.clone()),
        ("rootfs", isolation.rootfs.clone()),
        ("namespaces", isolation.namespaces.join(", ")),
        ("uid", id(&isolation.uid)),
        ("gid", id(&isolation.gid)),
        ("capabilities", joined_or_none(&isolation.capabilities)),
        (
            "no_new_privs",
            if isolation.no_new_privs {
                "set"
            } else {
                "not set"
            }
            .to_owned(),
        ),
        (
            "seccomp",
            isolation
                .seccomp
                .clone()
                .unwrap_or_else(|| "none".to_owned()),
        ),
        ("landlock", landlock),
        (
            "nested",
            format!("denied by {}", joined_or_none(&isolation.nested_userns)),
        ),
        ("network", isolation.network.clone()),
        ("proc", isolation.proc.clone()),
        ("cgroup", cgroup),
        ("given up", isolation.given_up.join(", ")),
    ]
}

/// What ran, in one line: the program and its arguments.
pub(super) fn command_line(record: &Record, most: usize) -> Option<String> {
    let argv = record.argv.as_ref()?;
    let words: Vec<_> = argv.iter().map(|word| word.to_lossy()).collect();
    Some(shortened(&words.join(" "), most))
}

/// A list in a table that the code produced.
pub(super) fn list<'a>(data: &'a Value, key: &str) -> &'a [Value] {
    let list = data.get(key).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// A count in such a table, of which `listed` are there.
pub(super) fn total(data: &Value, key: &str, listed: usize) -> u64 {
    let total = data.get(key).and_then(Value::as_u64);
    total.unwrap_or(0).max(listed as u64)
}

fn joined_or_none(names: &[String]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// The first characters, with a mark when there are more.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
