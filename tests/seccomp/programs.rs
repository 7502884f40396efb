//! Real programs do the same behind the filters as without.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use plan::seccomp::{BUILTIN, Compiled, Unheld, precompiled};

use super::kernel::load;
use crate::long::is_long;

fn run(filter: Option<&'static Compiled>, argv: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(argv[0]);
    command
        .args(&argv[1..])
        .current_dir(&directory)
        .env("LC_ALL", "C.UTF-8");
    if let Some(filter) = filter {
        let program = filter.program_for(nix::unistd::geteuid().as_raw());
        // SAFETY: between fork and exec it only makes system calls, on a program
        // that is there already.
        unsafe {
            command.pre_exec(move || {
                load(&program, 0);
                Ok(())
            })
        };
    }
    command.output().unwrap()
}

/// Whether this host has `program`; reports it if not.
fn available(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    if !found {
        eprintln!("not tried, for this host lacks it: {program}");
    }
    found
}

/// Runs a program without and behind every policy, and demands the same output.
fn assert_unchanged(argv: &[&str]) {
    assert_unchanged_behind(|_| true, argv);
}

/// The same behind some policies.
fn assert_unchanged_behind(is_chosen: fn(&str) -> bool, argv: &[&str]) {
    let reference = run(None, argv);
    assert!(
        reference.status.success(),
        "without a filter: {reference:?}"
    );
    for (policy, _) in BUILTIN.iter().filter(|(policy, _)| is_chosen(policy)) {
        let filtered = run(precompiled(policy, false, Unheld::default()), argv);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            (
                filtered.status,
                text(&filtered.stdout),
                text(&filtered.stderr)
            ),
            (
                reference.status,
                text(&reference.stdout),
                text(&reference.stderr)
            ),
            "{} behind {policy}",
            argv[0],
        );
    }
}

#[test]
fn shell_and_coreutils() {
    assert_unchanged(&[
        "bash",
        "-c",
        r#"
        set -euo pipefail
        mkdir -p a/b; echo one > a/b/f; cp -a a c; mv c d; ln -s d e; ln d/b/f g; chmod 600 g
        touch -d 2020-01-01 g; stat -c '%s %a %Y' g; truncate -s 1M big; dd if=/dev/zero of=big bs=4k count=4 2>/dev/null
        mkfifo p; (echo through > p) & cat p; wait
        find . -type f | sort; sort -R big | wc -c; tar cf t.tar d; tar tf t.tar | sort; tail -n 1 d/b/f
        nice -n 5 timeout 500 sleep 0.01; kill -0 $$; trap 'echo trapped' USR1; kill -USR1 $$
        ulimit -n; umask; id -u; date +%Y > year; env | grep -c PATH; { yes || true; } | head -n 2; rm -r d a; df . > /dev/null
        coproc cat; echo coproc >&"${COPROC[1]}"; read -r line <&"${COPROC[0]}"; echo "$line"
        exec 3<> /dev/null; echo done
    "#,
    ]);
}

#[test]
fn python() {
    if available("python3") {
        assert_unchanged(&[
            "python3",
            "-c",
            r#"
import asyncio, concurrent.futures, ctypes, json, mmap, multiprocessing, os, resource, select, shutil, signal
import socket, sqlite3, ssl, subprocess, tempfile, threading, time, zoneinfo

def double(x): return 2 * x

if __name__ == "__main__":
    print(subprocess.run(["sh", "-c", "echo sub; exit 3"], capture_output=True))
    for method in multiprocessing.get_all_start_methods():
        if method == "fork":
            with multiprocessing.get_context(method).Pool(2) as pool:
                print(pool.map(double, range(4)))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        print(list(pool.map(double, range(4))))
    async def tick():
        process = await asyncio.create_subprocess_exec("echo", "async", stdout=asyncio.subprocess.PIPE)
        await asyncio.sleep(0.01)
        return await process.communicate()
    print(asyncio.run(tick()))
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    connection, _ = server.accept()
    client.sendall(b"hello"); print(connection.recv(5))
    print(socket.getaddrinfo("127.0.0.1", 80, proto=socket.IPPROTO_TCP), len(socket.if_nameindex()) > 0)
    left, right = socket.socketpair(); socket.send_fds(left, [b"x"], [0]); print(socket.recv_fds(right, 1, 1)[0])
    database = sqlite3.connect("db"); database.execute("create table t (a)"); database.commit()
    database.execute("pragma journal_mode=wal"); database.execute("insert into t values (1)"); database.commit()
    print(database.execute("select * from t").fetchall())
    print(ssl.create_default_context().verify_mode, ssl.RAND_bytes(4) != b"")
    shared = mmap.mmap(-1, 4096); shared[:5] = b"bytes"; print(shared[:5])
    signal.signal(signal.SIGALRM, lambda *_: print("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.05)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0, os.sched_getaffinity(0) != set(), os.getrandom(4) != b"")
    with tempfile.TemporaryDirectory() as d:
        shutil.copytree("/etc/ssl", d + "/ssl", symlinks=True, ignore_dangling_symlinks=True, ignore=lambda *_: ["private"])
        os.rename(d + "/ssl", d + "/x"); print(os.path.isdir(d + "/x"))
    poll = select.epoll(); poll.register(server, select.EPOLLIN); print(poll.poll(0.01))
    print(os.posix_spawn("/bin/true", ["true"], {}) > 0, os.wait()[1])
"#,
        ]);
    }
}

#[test]
fn node() {
    if available("node") {
        assert_unchanged(&[
            "node",
            "-e",
            r#"
        const fs = require('fs'), net = require('net'), cp = require('child_process');
        const { Worker } = require('worker_threads');
        fs.writeFileSync('f', 'text'); fs.copyFileSync('f', 'g'); fs.renameSync('g', 'h');
        console.log(fs.readdirSync('.').sort(), fs.statSync('h').size, require('os').availableParallelism() > 0);
        console.log(cp.execFileSync('echo', ['child']).toString());
        console.log(require('crypto').createHash('sha256').update('x').digest('hex'));
        const server = net.createServer(socket => socket.end('served')).listen(0, '127.0.0.1', () => {
            net.connect(server.address().port).on('data', data => { console.log(data.toString()); server.close(); });
        });
        server.on('close', () => {
            const worker = new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true });
            worker.on('message', async message => {
                console.log(message, await fs.promises.readFile('h', 'utf8'), (await require('dns').promises.lookup('127.0.0.1')).address);
            });
        });
    "#,
        ]);
    }
}

#[test]
fn java() {
    // Java starts slowly, so every day it is tried behind two policies.
    let is_chosen = |policy: &str| is_long() || ["default", "strict"].contains(&policy);
    // The source is compiled in memory, then run: compiler, JIT, collector, threads.
    if available("java") {
        let argv = [
            "sh",
            "-c",
            r#"
        cat > Main.java <<'END'
        import java.nio.file.*; import java.util.*; import java.util.stream.*;
        public class Main {
            public static void main(String[] args) throws Exception {
                System.out.println(IntStream.range(0, 100000).parallel().mapToLong(i -> (long) i * i).sum());
                Files.writeString(Path.of("f"), "text"); System.out.println(Files.readString(Path.of("f")));
                var server = new java.net.ServerSocket(0);
                var thread = new Thread(() -> { try (var s = server.accept()) { s.getOutputStream().write("served".getBytes()); } catch (Exception e) { System.out.println(e); } });
                thread.start();
                try (var client = new java.net.Socket("127.0.0.1", server.getLocalPort())) { System.out.println(new String(client.getInputStream().readAllBytes())); }
                thread.join();
                System.out.println(new String(new ProcessBuilder("echo", "child").start().getInputStream().readAllBytes()));
                var garbage = new ArrayList<byte[]>(); for (int i = 0; i < 2000; i++) { garbage.add(new byte[50000]); if (i % 100 == 0) garbage.clear(); }
            }
        }
END
        exec java Main.java
    "#,
        ];
        assert_unchanged_behind(is_chosen, &argv);
    }
}

#[test]
fn compiler_and_its_output() {
    if available("cc") {
        assert_unchanged(&[
            "sh",
            "-c",
            r#"
        printf '#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void *p) { return p; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts("compiled"); }\n' > m.c
        cc -O2 -pthread -o m m.c && exec ./m
    "#,
        ]);
    }
}

#[test]
fn perl() {
    if available("perl") {
        assert_unchanged(&[
            "perl",
            "-MSocket",
            "-e",
            "fork or exit 0; wait; print `echo perl`, -e '/etc/passwd'",
        ]);
    }
}

#[test]
fn r() {
    if available("Rscript") {
        assert_unchanged(&[
            "Rscript",
            "-e",
            "print(summary(c(1, 2, 3))); system('echo child'); print(parallel::mclapply(1:2, sqrt))",
        ]);
    }
}
