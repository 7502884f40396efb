//! Only complete runs are measured.

use record::{Outcome, Record};

use crate::Result;

/// The record of a run that ended well with nothing given up.
pub(crate) fn every_layer(bytes: &[u8]) -> Result<Record> {
    let record: Record = serde_json::from_slice(bytes)?;
    let isolation = record.isolation.as_ref().ok_or("a record of no cell")?;
    let complete = isolation.given_up.is_empty()
        && isolation.seccomp.is_some()
        && isolation.landlock_abi.is_some()
        && isolation.no_new_privs;
    if record.outcome != Outcome::Ok || !complete {
        return Err(format!("not the run to measure: {}", String::from_utf8_lossy(bytes)).into());
    }
    Ok(record)
}
