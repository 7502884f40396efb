//! The system call filter: what policies say, what their programs answer, and
//! what a kernel that has loaded one does.

mod declared;
mod kernel;
mod live;
mod machine;
mod notified;
mod policies;
mod programs;
mod random;
