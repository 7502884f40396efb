//! What callers are told.

use proptest::prelude::*;

use super::super::Partial;
use super::super::read::{Format, parse, parse_all};
use super::super::resolve::Origin;
use super::{resolved, shown};

#[test]
fn text_that_does_not_parse() {
    for (text, wanted) in [
        (
            "a = [1,\nb = 2",
            "line 2, column 3: not valid TOML: unexpected `=` in array, expected value, `]`",
        ),
        (
            "cwd = \"a\"\ncwd = \"b\"",
            "line 2, column 1: not valid TOML: duplicate key",
        ),
        ("memroy = 1", "memroy: there is no such field"),
        (
            "hostnmae = 1",
            "hostnmae: there is no such field; did you mean `hostname`?",
        ),
        (
            "limits.memroy = 1",
            "limits.memroy: there is no such field; did you mean `memory`?",
        ),
        (
            "limits.tmp.inode = 1",
            "limits.tmp.inode: there is no such field; did you mean `inodes`?",
        ),
        (
            "landlock.tcp.conect = []",
            "landlock.tcp.conect: there is no such field; did you mean `connect`?",
        ),
        ("hostname = 5", "hostname: is 5, but wants text"),
        ("hostname = [\"a\"]", "hostname: is a list, but wants text"),
        (
            "strict = \"yes\"",
            "strict: is \"yes\", but wants true or false",
        ),
        ("limits = 5", "limits: is 5, but wants a table"),
        ("binds = 5", "binds: is 5, but wants a list"),
        (
            "binds = [{ target = \"/x\" }]",
            "binds[0].source: is missing",
        ),
        (
            "binds = [{ source = 3 }]",
            "binds[0].source: is 3, but wants text",
        ),
        ("env.A = 5", "env.A: is 5, but wants text, or {base64 = …}"),
        (
            "env.\"a b\" = 5",
            "env.\"a b\": is 5, but wants text, or {base64 = …}",
        ),
        (
            "env.A = { base64 = \"?\" }",
            "env.A: is not base64: invalid symbol 63, offset 0",
        ),
        ("argv = \"ls -l\"", "argv: is \"ls -l\", but wants a list"),
        (
            "network = \"hst\"",
            "network: is \"hst\", but wants \"none\", \"host\", or a table with the list `allow`",
        ),
        (
            "network = 1",
            "network: is 1, but wants \"none\", \"host\", or a table with the list `allow`",
        ),
        (
            "without = [\"seccomp\", \"landlok\"]",
            "without[1]: is \"landlok\", but wants one of seccomp, landlock, userns-limit, proc; did you mean `landlock`?",
        ),
        (
            "outer_uid = -1",
            "outer_uid: is -1, but wants a whole number",
        ),
        (
            "limits.wall = -3",
            "limits.wall: is -3, but wants a duration above zero such as 500ms, or a number of seconds, or \"none\"",
        ),
        (
            "limits.wall = 0",
            "limits.wall: is 0, but wants a duration above zero such as 500ms, or a number of seconds, or \"none\"",
        ),
        (
            "limits.wall = \"soon\"",
            "limits.wall: `soon` is not a duration above zero: write seconds, or a number with ms, s, m or h, such as 500ms or 1m 30s, or none for no limit",
        ),
        (
            "limits.memory = 1.5",
            "limits.memory: is 1.5, but wants a size such as 256M, or \"none\"",
        ),
        (
            "limits.memory = true",
            "limits.memory: is true, but wants a size such as 256M, or \"none\"",
        ),
        (
            "limits.processes = \"many\"",
            "limits.processes: `many` is not a whole number, or none for no limit",
        ),
        (
            "limits.cpus = \"all\"",
            "limits.cpus: `all` is not a number such as 1 or 0.5, or none for no limit",
        ),
        (
            "limits.output = \"none\"",
            "limits.output: `none` is not a size: write a number of bytes, or one with K, M, G or T, such as 256M",
        ),
        (
            "limits.tmp = { size = -1 }",
            "limits.tmp.size: is -1, but wants a size such as 256M",
        ),
        (
            "landlock.tcp = \"none\"",
            "landlock.tcp: is \"none\", but wants \"any\", or a table with lists of ports, {connect = […], bind = […]}",
        ),
        (
            "landlock.tcp.bind = [70000]",
            "landlock.tcp.bind[0]: is 70000, but wants a whole number from 0 to 65535",
        ),
        ("extends = \"a\"\npolicy = \"b\"", "extends: is given twice"),
        ("cwd = 1979-05-27", "cwd: is a table, but wants text"),
    ] {
        let error = parse::<Partial>(text, Format::Toml).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("read the request: {wanted}"),
            "{text}"
        );
    }
    for (text, wanted) in [
        (
            "{",
            "line 1, column 1: not valid JSON: EOF while parsing an object",
        ),
        (
            "{\"cwd\": \"a\", \"cwd\": \"b\"}",
            "line 1, column 24: not valid JSON: \"cwd\" is given twice in one table",
        ),
        ("[]", "is a list, but wants a table"),
        (
            "{\"limits\": {\"memroy\": 5}}",
            "limits.memroy: there is no such field; did you mean `memory`?",
        ),
    ] {
        let error = parse::<Partial>(text, Format::Json).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("read the request: {wanted}"),
            "{text}"
        );
    }
}

#[test]
fn an_unknown_field_comes_with_the_known_ones() {
    let error = parse::<Partial>("limits.tmp.x = 1", Format::Toml).unwrap_err();
    assert_eq!(error.hint.unwrap(), "fields here: size, inodes");
}

#[test]
fn values_that_are_not_allowed() {
    for (text, wanted) in [
        (
            "argv = []",
            "argv: is empty, but wants the program's name first",
        ),
        (
            "argv = [\"\"]",
            "argv: is empty, but wants the program's name first",
        ),
        (
            "argv = [\"a\", \"b\\u0000\"]",
            "argv[1]: holds a NUL byte, which no argument can",
        ),
        (
            "argv = [\"a\"]\ncode = \"1\"",
            "argv: is given next to code, but only one can run",
        ),
        (
            "hostname = \"-x\"",
            "hostname: is \"-x\", but wants 1 to 64 letters, digits, `-` or `.`, and neither of the last two first",
        ),
        (
            "hostname = \"\"",
            "hostname: is \"\", but wants 1 to 64 letters, digits, `-` or `.`, and neither of the last two first",
        ),
        (
            "cwd = \"../tmp\"",
            "cwd: is `/workspace/../tmp`, but wants an absolute path without `..` or NUL",
        ),
        (
            "cwd = \"/tmp/../x\"",
            "cwd: is `/tmp/../x`, but wants an absolute path without `..` or NUL",
        ),
        (
            "rootfs = \"\"",
            "rootfs: is empty or holds a NUL byte, but wants a name or a path",
        ),
        (
            "seccomp = \"\"",
            "seccomp: is empty or holds a NUL byte, but wants a name or a path",
        ),
        (
            "cgroup = \"atuo\"",
            "cgroup: is \"atuo\", but wants auto, none, or a path with a `/`",
        ),
        (
            "uid = 65534",
            "uid: wants a uid from 0 to 4294967294 other than 65534, which is nobody's",
        ),
        (
            "places = [{ path = \"/workspace/x\", kind = \"workspace\" }]",
            "places[0].path: is `/workspace/x`, but wants another place than /workspace itself",
        ),
        (
            "places = [{ path = \"/x\", kind = \"workspace\", to = \"/y\" }]",
            "places[0].to: is for a symbolic link only",
        ),
        (
            "outer_uid = 0",
            "outer_uid: wants an unprivileged uid from 1 to 4294967294",
        ),
        (
            "limits.wall = 0.0001",
            "limits.wall: is 100us, but wants 1ms to 365d, or none",
        ),
        (
            "limits.cpu_time = 1e9",
            "limits.cpu_time: is 31years 8months 7days 19h 17m 52s, but wants 1ms to 365d, or none",
        ),
        (
            "limits.cpus = 0",
            "limits.cpus: is 0, but wants 0.01 to 4096, or none",
        ),
        (
            "limits.cpus = nan",
            "limits.cpus: is NaN, but wants 0.01 to 4096, or none",
        ),
        (
            "limits.memory = \"1M\"",
            "limits.memory: is 1M, but wants 4M or more, or none",
        ),
        (
            "limits.processes = 0",
            "limits.processes: is 0, but wants 1 to 4194304, or none",
        ),
        (
            "limits.open_files = 3",
            "limits.open_files: is 3, but wants 8 to 1048576, none or auto",
        ),
        (
            "limits.data = \"1M\"",
            "limits.data: is 1M, but wants 4M or more, none or auto",
        ),
        (
            "limits.output = \"2G\"",
            "limits.output: is 2G, but wants at most 1G",
        ),
        (
            "limits.tmp.size = 0",
            "limits.tmp.size: is 0, but wants 64K or more",
        ),
        (
            "limits.shm.inodes = 0",
            "limits.shm.inodes: is 0, but wants 16 to 4294967296",
        ),
        (
            "landlock.min_abi = 0",
            "landlock.min_abi: is 0, but wants 1 to 1000",
        ),
        (
            "landlock.tcp.bind = [0]",
            "landlock.tcp.bind: holds port 0, but wants ports from 1 to 65535",
        ),
        (
            "landlock.udp.bind = [0]",
            "landlock.udp.bind: holds port 0, but wants ports from 1 to 65535",
        ),
        (
            "env.\"A=B\" = \"x\"",
            "env.\"A=B\": has a name that is empty or holds `=` or NUL, which no environment can",
        ),
        (
            "env.A = \"\\u0000\"",
            "env.A: holds a NUL byte, which no environment can",
        ),
        (
            "binds = [{ source = \"\" }]",
            "binds[0].source: is empty or holds a NUL byte, but wants a path",
        ),
        (
            "binds = [{ source = \"/a\", target = \"/\" }]",
            "binds[0].target: is `/`, but wants a place below it; --rootfs chooses the root",
        ),
        (
            "binds = [{ source = \"/a\", target = \"b\" }]",
            "binds[0].target: is `b`, but wants an absolute path without `..` or NUL",
        ),
        (
            "binds = [{ source = \"/a\", target = \"/b/..\" }]",
            "binds[0].target: is `/b/..`, but wants an absolute path without `..` or NUL",
        ),
        (
            "binds = [{ source = \"/proc\" }]",
            "binds[0].target: is `/proc`, but /proc is the cell's own",
        ),
        (
            "binds = [{ source = \"/dev/null\" }]",
            "binds[0].target: is `/dev/null`, but /dev is the cell's own",
        ),
        (
            "binds = [{ source = \"/a\" }, { source = \"/b\", target = \"/a/\" }]",
            "binds[1].target: is `/a/`, which an earlier bind has",
        ),
        (
            "files = [{ path = \"/sys/a\", text = \"\" }]",
            "files[0].path: is `/sys/a`, but /sys is the cell's own",
        ),
        (
            "files = [{ path = \"/a/../b\", text = \"\" }]",
            "files[0].path: is `/a/../b`, but wants an absolute path without `..` or NUL",
        ),
        (
            "places = [{ path = \"/run\", kind = \"tmpfs\" }]",
            "places[0].path: is `/run`, but /run/cellblock is the cell's own",
        ),
        (
            "places = [{ path = \"/dev/x\", kind = \"directory\" }]",
            "places[0].path: is `/dev/x`, but /dev is the cell's own",
        ),
        (
            "places = [{ path = \"/tmp\", kind = \"tmpfs\" }]",
            "places[0].path: is `/tmp`, which is a tmpfs anyway; limits bound its size",
        ),
        (
            "places = [{ path = \"/x\", kind = \"tmpfs\", size = \"0\" }]",
            "places[0].size: wants 64K to 1048576T",
        ),
        (
            "places = [{ path = \"/x\", kind = \"directory\", size = \"1M\" }]",
            "places[0].size: is for a tmpfs only",
        ),
        (
            "places = [{ path = \"/x\", kind = \"symlink\" }]",
            "places[0].to: is missing or empty, but wants the link's text",
        ),
        (
            "places = [{ path = \"/x\", kind = \"tmpfs\", to = \"y\" }]",
            "places[0].to: is for a symbolic link only",
        ),
        (
            "places = [{ path = \"/workspace/x\", kind = \"directory\" }]",
            "places[0].path: is `/workspace/x`, but what /workspace begins with comes from files and files_from",
        ),
        (
            "binds = [{ source = \"/a\" }]\nplaces = [{ path = \"/a\", kind = \"directory\" }]",
            "places[0].path: is `/a`, where something else goes",
        ),
        (
            "places = [{ path = \"/a\", kind = \"directory\" }]\nfiles = [{ path = \"/a\", text = \"\" }]",
            "files[0].path: is `/a`, where something else goes",
        ),
        (
            "overlays = [{ source = \"/a\", target = \"/\" }]",
            "overlays[0].target: is `/`, but wants a place below it; --rootfs chooses the root",
        ),
        (
            "overlays = [{ source = \"/a\" }, { source = \"/b\", target = \"/a\" }]",
            "overlays[1].target: is `/a`, where something else goes",
        ),
        (
            "devices = [{ name = \"../etc/passwd\" }]",
            "devices[0].name: is `../etc/passwd`, but wants the name of a device below /dev, such as fuse or dri/renderD128",
        ),
        (
            "devices = [{ name = \"\" }]",
            "devices[0].name: is ``, but wants the name of a device below /dev, such as fuse or dri/renderD128",
        ),
        (
            "devices = [{ name = \"pts/0\" }]",
            "devices[0].name: is `pts/0`, but a cell has its own /dev/pts/0",
        ),
        (
            "devices = [{ name = \"fuse\" }, { name = \"fuse\", read_only = true }]",
            "devices[1].name: is `fuse`, which an earlier device is",
        ),
        (
            "cwd = \"a/../..\"",
            "cwd: is `/workspace/a/../..`, but wants an absolute path without `..` or NUL",
        ),
        (
            "env_unset = [\"A=B\"]",
            "env_unset: holds \"A=B\", which no variable is called",
        ),
        (
            "files = [{ path = \"a/../b\", text = \"\" }]",
            "files[0].path: is `a/../b`, but wants a path relative to /workspace without `..` or NUL",
        ),
        (
            "files = [{ path = \".\", text = \"\" }]",
            "files[0].path: is ``, but wants a path relative to /workspace without `..` or NUL",
        ),
        (
            "files = [{ path = \"a\", text = \"\" }, { path = \"./a\", text = \"\" }]",
            "files[1].path: is `a`, which an earlier file has",
        ),
        (
            "files = [{ path = \"a\" }]",
            "files[0]: wants exactly one of text, base64 and source",
        ),
        (
            "files = [{ path = \"a\", text = \"\", source = \"b\" }]",
            "files[0]: wants exactly one of text, base64 and source",
        ),
        (
            "files = [{ path = \"a\", base64 = \"?\" }]",
            "files[0].base64: is not base64: invalid symbol 63, offset 0",
        ),
    ] {
        let partial = parse::<Partial>(text, Format::Toml).unwrap();
        let error = resolved(partial, Origin::File("j.toml".into())).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("read the request: j.toml:{wanted}"),
            "{text}"
        );
    }
}

#[test]
fn from_the_command_line_the_flag_is_named() {
    for (text, flag) in [
        ("hostname = \"-x\"", "--hostname"),
        ("limits.memory = 1", "--memory"),
        ("limits.tmp.size = 1", "--tmp-size"),
        ("limits.cpu_time = 0.0001", "--cpu-time"),
        ("landlock.tcp.bind = [0]", "--tcp-bind"),
        ("landlock.udp.bind = [0]", "--udp-bind"),
        ("binds = [{ source = \"/proc\" }]", "--ro or --rw"),
        ("env.\"A=B\" = \"x\"", "--env"),
        ("cgroup = \"x\"", "--cgroup"),
    ] {
        let partial = parse::<Partial>(text, Format::Toml).unwrap();
        let error = resolved(partial, Origin::Flags).unwrap_err();
        assert_eq!(error.operand.as_deref(), Some(flag), "{}", shown(&error));
    }
}

#[test]
fn every_problem_of_a_file_is_found() {
    let text = "
        description = 5
        nonsense = 1
        without = [\"x\", \"proc\", \"y\"]
        [limits]
        memroy = 1
        wall = \"1s\"
        [[binds]]
        target = \"/x\"
        [[binds]]
        source = \"/a\"
        writable = 1
    ";
    let (partial, problems) = parse_all(text, Format::Toml);
    let fields: Vec<&str> = problems
        .iter()
        .filter_map(|p| p.operand.as_deref())
        .collect();
    assert_eq!(
        fields,
        [
            "binds[0].source",
            "binds[1].writable",
            "description",
            "limits.memroy",
            "nonsense",
            "without[0]",
            "without[2]",
        ]
    );
    assert!(partial.limits.wall.is_some(), "what is right stays");
}

/// Text that comes near to being a spec file.
fn nearly_a_file() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("limits"),
        Just("tmp"),
        Just("size"),
        Just("="),
        Just("."),
        Just("["),
        Just("]"),
        Just("{"),
        Just("}"),
        Just(","),
        Just("\n"),
        Just("\""),
        Just("memory"),
        Just("\"4M\""),
        Just("none"),
        Just("-1"),
        Just("1e400"),
        Just("binds"),
        Just("source"),
        Just("env"),
        Just("base64"),
        Just(":"),
        Just("null"),
        Just("\"limits\":"),
        Just("tcp"),
        Just("'''"),
        Just("landlock"),
        Just("1979-05-27"),
        Just("\\u0000"),
        Just("#"),
        Just("true"),
    ];
    proptest::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in prop_oneof![any::<String>(), nearly_a_file()]) {
        for format in [Format::Toml, Format::Json, Format::of("", &text)] {
            let first = parse::<Partial>(&text, format);
            let (_, all) = parse_all(&text, format);
            prop_assert_eq!(first.as_ref().err(), all.first());
        }
    }
}
