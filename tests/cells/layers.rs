//! Every attack again, in cells that give up one layer each.
//!
//! Where an attack works without a layer, that layer alone holds it. [`ALONE`]
//! names all of these, so that a layer which loses its second line of defence
//! is seen.

use spec::Layer;

use crate::attacks;
use crate::cells::prelude::*;

pub(crate) const SUITES: &[&Suite] = &[&Suite {
    name: "layers",
    covers: &[],
    attacks: &[],
    scenes: &[
        scene("every-layer-is-named", every_layer_is_named),
        scene("without-seccomp", |stage| given_up(stage, Layer::Seccomp)).needs(&[Need::Long]),
        scene("without-landlock", |stage| given_up(stage, Layer::Landlock)).needs(&[Need::Long]),
        scene("without-userns-limit", |stage| {
            given_up(stage, Layer::UsernsLimit)
        })
        .needs(&[Need::Long]),
        scene("without-proc", |stage| given_up(stage, Layer::Proc)).needs(&[Need::Long]),
    ],
    actors: &[],
}];

/// Attacks that one layer alone holds.
const ALONE: &[(Layer, &[&str])] = &[
    (
        Layer::Seccomp,
        &[
            "namespaces/unshare-user-without-limit",
            "namespaces/clone3-plain",
            "mount-api/fsconfig",
            "mount-api/nf-tables",
            "mount-api/xfrm",
            "io-uring/setup",
            "io-uring/enter",
            "io-uring/register",
            "keyrings/add",
            "keyrings/session-of-the-caller",
            "keyrings/join-session",
            "keyrings/request",
            "sockets/vsock",
            "sockets/netlink-audit",
            "sockets/netlink-uevents",
            "sockets/netlink-with-high-bits",
            "sockets/vsock-with-high-bits",
            "sockets/mptcp",
            "kernel-calls/ptrace-sibling",
            "kernel-calls/ptrace-me",
            "kernel-calls/read-sibling",
            "kernel-calls/limits-of-init",
            "kernel-calls/kcmp",
            "kernel-calls/name-to-handle",
            "kernel-calls/perf-event",
            "kernel-calls/userfaultfd",
            "kernel-calls/quotactl",
            "foreign-abi/int-0x80",
            "no-exec/from-memory",
            "no-exec/from-memory-by-descriptor",
            "side-doors/lease",
            "side-doors/lease-with-high-bits",
            "side-doors/directory-notification",
            "side-doors/out-of-band-sendto",
            "side-doors/out-of-band-sendmsg",
            "side-doors/out-of-band-sendmmsg",
            "side-doors/udp-encapsulation",
            "side-doors/transmit-times",
            "side-doors/zero-copy",
            "side-doors/socket-filter",
            "side-doors/reuseport-filter",
            "side-doors/mergeable-pages",
            "side-doors/merged-memory",
            "side-doors/futex-hash",
            "side-doors/set-user-id-by-fchmod",
            "side-doors/set-group-id-by-fchmod",
            "side-doors/set-user-id-by-fchmodat",
            "side-doors/set-user-id-by-fchmodat2",
            "side-doors/set-user-id-by-openat",
            "side-doors/set-user-id-by-temporary-file",
            "side-doors/set-user-id-by-openat2",
            "side-doors/set-user-id-by-mknodat",
        ],
    ),
    (Layer::Landlock, &["no-exec/from-tmp"]),
    (Layer::UsernsLimit, &[]),
    (
        Layer::Proc,
        &[
            "host-view/kernel-symbols",
            "host-view/kernel-command-line",
            "host-view/partitions",
            "host-view/interrupts",
            "host-view/memory-map",
            "host-view/keys",
            "host-view/settings",
        ],
    ),
];

/// The attacks that work without `layer` are those of [`ALONE`].
fn given_up(stage: &Stage, layer: Layer) -> Check {
    let known = ALONE.iter().find(|(known, _)| *known == layer);
    let expected = known.map(|(_, attacks)| *attacks).unwrap_or_default();
    let mut unexpected = Vec::new();
    for suite in attacks::SUITES {
        for attack in suite.attacks {
            let name = format!("{}/{}", suite.name, attack.name);
            let works = attack.works_without(stage, &name, &[layer.name()])?;
            if works && !expected.contains(&name.as_str()) {
                unexpected.push(name);
            }
        }
    }
    assert!(unexpected.is_empty(), "these work: {unexpected:#?}");
    Ok(())
}

fn every_layer_is_named(_: &Stage) -> Check {
    assert_eq!(ALONE.len(), Layer::ALL.len());
    Ok(())
}
