//! What a server keeps ready.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;

/// How long a server may take to fill what it keeps ready.
const FILL: Duration = Duration::from_secs(120);

/// Waits until a server, whose `status` this is, has all that it keeps ready.
pub(crate) fn wait_until_full(mut status: impl FnMut() -> Result<Value>) -> Result<()> {
    let until = Instant::now() + FILL;
    loop {
        let pools = status()?["pools"].as_array().cloned().unwrap_or_default();
        if pools.iter().all(|pool| pool["ready"] == pool["wanted"]) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("its cells are not ready: {pools:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
