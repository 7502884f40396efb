//! What tests do besides every day.

/// Whether tests also do what takes long and seldom shows more, as in CI: `CELLS_LONG=1`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("CELLS_LONG").is_some()
}
