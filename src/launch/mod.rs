//! Brings a cell to life.

pub mod cgroup;
