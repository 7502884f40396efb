//! io_uring: system calls that no filter sees.

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "io-uring",
    covers: &[11],
    attacks: &[
        attack("setup", || {
            let mut params = [0_u8; 120];
            call!(SYS_io_uring_setup, 1, &mut params).map(drop)
        })
        // Some hosts have switched it off for everybody.
        .live(bare().unless(&[Errno::EPERM, Errno::ENOSYS])),
        attack("enter", || {
            call!(SYS_io_uring_enter, -1, 1, 0, 0, Arg::NULL, 0).map(drop)
        })
        .live(bare().behind(Errno::EBADF).unless(&[Errno::ENOSYS])),
        attack("register", || {
            call!(SYS_io_uring_register, -1, 0, Arg::NULL, 0).map(drop)
        })
        .live(bare().behind(Errno::EINVAL).unless(&[
            Errno::ENOSYS,
            Errno::EBADF,
            Errno::EFAULT,
        ])),
    ],
    scenes: &[],
    actors: &[],
};
