//! The spec resolved against this host: pure data.

pub mod seccomp;
