//! Keyrings, which the processes of one user share whatever their namespaces.

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "keyrings",
    covers: &[12],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

const ATTACKS: &[Attack] = &[
    // In a keyring that belongs to the probe and goes away with it.
    attack("add", || {
        call!(
            SYS_add_key,
            c"user",
            c"cellblock-test",
            c"secret",
            6,
            PROCESS_KEYRING
        )
        .map(drop)
    })
    .live(bare().unless(&[Errno::ENOSYS])),
    attack("session-of-the-caller", || {
        const GET_KEYRING_ID: i32 = 0;
        call!(SYS_keyctl, GET_KEYRING_ID, SESSION_KEYRING, 0).map(drop)
    })
    .live(bare().unless(&[Errno::ENOSYS])),
    attack("join-session", || {
        const JOIN_SESSION_KEYRING: i32 = 1;
        call!(SYS_keyctl, JOIN_SESSION_KEYRING, Arg::NULL).map(drop)
    })
    .live(bare().unless(&[Errno::ENOSYS])),
    attack("request", || {
        call!(SYS_request_key, c"user", c"cellblock-test", Arg::NULL, 0).map(drop)
    })
    .live(bare().behind(Errno::ENOKEY).unless(&[Errno::ENOSYS])),
];

const PROCESS_KEYRING: i32 = -2;
const SESSION_KEYRING: i32 = -3;
