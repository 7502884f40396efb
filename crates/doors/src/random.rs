//! Random bytes (getrandom(2)).

use wire::{Code, Failure};

/// This number of random bytes.
///
/// # Errors
/// The kernel has none.
pub(crate) fn bytes(count: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; count];
    getrandom::getrandom(&mut bytes)
        .map_err(|error| Failure::new(Code::Failed, format!("getrandom: {error}")))?;
    Ok(bytes)
}
