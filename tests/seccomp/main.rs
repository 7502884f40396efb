//! The system call filter: what policies say, what their programs answer, and
//! what a kernel that has loaded one does.

mod declared;
mod machine;
mod policies;
mod random;
