//! Guests of a cell.

use std::io::IoSlice;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};

use super::{Front, Tested, spawner, text};
use crate::{Base, Spawner};
use spec::Layer;
use sys::alone::alone;

/// What the kernel says about a process's confinement, besides its pid and its use of resources.
const CONFINEMENT: &str = "import os\n\
    def shown():\n\
    \tkept = ('Uid', 'Gid', 'Groups', 'Cap', 'NoNewPrivs', 'Seccomp', 'Speculation', 'Cpus_allowed')\n\
    \tlines = [line for line in open('/proc/self/status') if line.startswith(kept)]\n\
    \tlines += [os.readlink('/proc/self/ns/' + name) for name in sorted(os.listdir('/proc/self/ns'))]\n\
    \tlines += [open('/proc/self/' + name).read() for name in ('limits', 'oom_score_adj', 'cgroup', 'mountinfo')]\n\
    \treturn lines\n";

impl Front {
    /// Asks this supervisor to admit another one; its front end.
    fn admit(&mut self) -> Tested<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let fds = [theirs.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&fds)];
        let line = b"\"admit\"\n";
        let raw = self.raw();
        sendmsg::<()>(raw, &[IoSlice::new(line)], &rights, MsgFlags::empty(), None)?;
        Ok(Self::at(OwnedFd::from(ours)))
    }

    /// A context of this language in the same cell.
    fn guest(&mut self, language: &str) -> Tested<Self> {
        let mut guest = self.admit()?;
        let request = json!({"language": language});
        guest.order(json!({"open": {"request": request, "lasting": true, "ready": true}}))?;
        guest.report("opened")?;
        Ok(guest)
    }
}

fn pair(language: &str) -> Tested<(Spawner, Front, Front)> {
    let spawner = spawner()?;
    let mut owner = Front::python(&spawner)?;
    let guest = owner.guest(language)?;
    Ok((spawner, owner, guest))
}

fn stdout(answer: &Value) -> &str {
    assert_eq!(text(answer, "outcome"), "ok", "{answer}");
    text(answer, "stdout")
}

#[test]
fn interpreters_share_files_and_keep_their_own_state() {
    alone(|| {
        let (_spawner, mut owner, mut guest) = pair("bash")?;
        owner.run(1, "x = 1; open('a.txt', 'w').write('from python')")?;
        let read = guest.run(1, "cat a.txt; echo from bash > b.txt; y=2")?;
        assert_eq!(stdout(&read), "from python");
        assert_eq!(read["record"]["start"], "shared");
        assert_eq!(read["record"]["language"], "bash");
        let files = &read["record"]["files"];
        assert!(files.to_string().contains("b.txt"), "{files}");
        let back = owner.run(2, "print(open('b.txt').read(), x)")?;
        assert_eq!(stdout(&back), "from bash\n 1\n");
        assert_eq!(back["record"]["start"], "ready");
        for record in [&read["record"], &back["record"]] {
            let warnings = record["warnings"].to_string();
            assert!(warnings.contains("other interpreters"), "{warnings}");
        }
        assert_eq!(stdout(&guest.run(2, "echo $y")?), "2\n");
        // What was there before is no change of the new interpreter's.
        let mut third = owner.guest("python")?;
        assert_eq!(third.run(1, "1")?["record"]["files"], json!([]));
        Ok(())
    });
}

#[test]
fn executions_in_one_cell_go_on_at_once() {
    alone(|| {
        let (_spawner, mut owner, mut guest) = pair("python")?;
        let wait =
            "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('went')";
        owner.begin(1, wait, json!({}))?;
        // A third one is admitted meanwhile.
        let mut third = owner.guest("bash")?;
        assert_eq!(stdout(&guest.run(1, "print(2)")?), "2\n");
        assert_eq!(stdout(&third.run(1, "touch go; echo done")?), "done\n");
        assert_eq!(stdout(&owner.report("answer")?), "went\n");
        Ok(())
    });
}

#[test]
fn a_further_interpreter_is_confined_like_the_first() {
    alone(|| {
        let (_spawner, mut owner, mut guest) = pair("python")?;
        let show = format!("{CONFINEMENT}\nprint(*shown(), sep='\\n')");
        let (first, second) = (owner.run(1, &show)?, guest.run(1, &show)?);
        assert!(stdout(&first).contains("NoNewPrivs:\t1"), "{first}");
        assert!(stdout(&first).contains("Seccomp:\t2"), "{first}");
        assert_eq!(stdout(&first), stdout(&second));
        // Neither has a descriptor that the other has not.
        let descriptors = "print(sorted(os.listdir('/proc/self/fd')))";
        let (first, second) = (owner.run(2, descriptors)?, guest.run(2, descriptors)?);
        assert_eq!(stdout(&first), stdout(&second));
        // The denials of each are its own.
        let denied = guest.run(3, "import ctypes; ctypes.CDLL(None).unshare(0x10000000)")?;
        assert_eq!(denied["record"]["denied"][0]["name"], "unshare", "{denied}");
        assert_eq!(owner.run(3, "1")?["record"]["denied"], json!([]));
        Ok(())
    });
}

#[test]
fn a_further_interpreter_is_in_the_landlock_domain() {
    alone(|| {
        // The device's mode lets everyone write to it.
        let write = "import os\n\
            try: print(os.write(os.open('/dev/zero', os.O_WRONLY), b'x'))\n\
            except OSError as error: print(error.errno)";
        let (_spawner, _host, mut guest) = pair("python")?;
        let denied = format!("{}\n", libc::EACCES);
        assert_eq!(stdout(&guest.run(1, write)?), denied);
        let mut base = Base {
            cwd: "/".into(),
            ..Base::default()
        };
        base.flags.without.insert(Layer::Landlock);
        let spawner = Spawner::fork(base)?;
        let mut owner = Front::python(&spawner)?;
        assert_eq!(stdout(&owner.guest("python")?.run(1, write)?), "1\n");
        Ok(())
    });
}

#[test]
fn one_interpreter_ends_without_the_other() {
    alone(|| {
        let (_spawner, mut owner, mut guest) = pair("python")?;
        owner.run(1, "x = 1")?;
        guest.begin(
            1,
            "while True: pass",
            json!({"wall_ms": 300, "grace_ms": 20000}),
        )?;
        let late = guest.report("answer")?;
        assert_eq!(
            (&late["state"], text(&late, "outcome")),
            (&json!("kept"), "timeout"),
            "{late}"
        );
        let ended = guest.run(2, "import os; open('left', 'w').write('here'); os._exit(3)")?;
        assert_eq!(ended["state"], "lost", "{ended}");
        assert_eq!(ended["record"]["exit_code"], 3, "{ended}");
        let next = guest.run(3, "import time; print(open('left').read())")?;
        assert_eq!((&next["state"], stdout(&next)), (&json!("kept"), "here\n"));
        guest.begin(4, "open('runs', 'w'); time.sleep(1000)", json!({}))?;
        let begun = "import os, time\nwhile not os.path.exists('runs'): time.sleep(0.01)";
        owner.run(2, begun)?;
        guest.order(json!({"cancel": {"execution": 4}}))?;
        let cancelled = guest.report("answer")?;
        assert_eq!(
            (&cancelled["state"], text(&cancelled, "outcome")),
            (&json!("lost"), "cancelled"),
            "{cancelled}"
        );
        guest.order(json!("restart"))?;
        guest.report("restarted")?;
        assert_eq!(stdout(&guest.run(5, "print(4)")?), "4\n");
        drop(guest);
        // The interpreter of the one that is gone is killed; the other one goes on.
        let alone = "import time\n\
            def others(): return [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) not in (1, os.getpid())]\n\
            while others(): time.sleep(0.01)\n\
            print(x)";
        assert_eq!(stdout(&owner.run(3, alone)?), "1\n");
        Ok(())
    });
}

#[test]
fn all_interpreters_end_with_their_cell() {
    alone(|| {
        let (_spawner, mut owner, mut guest) = pair("python")?;
        guest.begin(1, "open('runs', 'w')\nwhile True: pass", json!({}))?;
        let begun = "import os, time\nwhile not os.path.exists('runs'): time.sleep(0.01)";
        owner.run(1, begun)?;
        owner.order(json!("restart"))?;
        owner.report("restarted")?;
        assert_eq!(guest.report("answer")?["state"], "lost");
        let why = guest.report("ended")?["why"].take();
        assert_eq!(why, "the cell that it shared has ended");
        // The next cell has room for others.
        let mut next = owner.guest("bash")?;
        assert_eq!(stdout(&next.run(1, "ls runs")?), "runs\n");
        Ok(())
    });
}

#[test]
fn what_has_no_place_in_the_cell_is_refused_by_name() {
    alone(|| {
        let spawner = spawner()?;
        let mut owner = Front::python(&spawner)?;
        let mut guest = owner.admit()?;
        guest.order(json!({"open": {"request": {}, "lasting": true, "ready": true}}))?;
        let failed = guest.report("failed")?;
        assert_eq!(failed["error"]["operand"], "language", "{failed}");
        owner.order(json!("admit"))?;
        let why = owner.report("ended")?["why"].take();
        assert_eq!(why, "no socket to admit");
        Ok(())
    });
}
