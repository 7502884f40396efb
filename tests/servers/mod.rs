//! Servers of a Linux distribution in default cells: they share memory among their processes, which
//! counts where no cgroup holds the memory.

use std::path::Path;
use std::process::Command;

use crate::skip::skip;

/// Runs the script of this server, in which it says that it works.
fn works(server: &str, script: &str) {
    let directories = ["/usr/bin", "/usr/sbin"].map(Path::new);
    let is_there = match server {
        "postgres" => Path::new("/usr/lib/postgresql").exists(),
        "php-fpm" => Path::new("/etc/php").exists(),
        _ => directories
            .iter()
            .any(|directory| directory.join(server).exists()),
    };
    if !is_there {
        return skip(format!("there is no {server}"));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_cellblock"))
        .args([
            "exec",
            "--cgroup",
            "none",
            "--wall",
            "300s",
            "--cpu-time",
            "300s",
        ])
        .args(["--", "/bin/sh", "-c", script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "works\n", "{output:?}");
}

macro_rules! servers {
    ($($name:ident $server:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            works($server, include_str!(concat!($server, ".sh")));
        })*
    };
}

servers!(
    nginx "nginx",
    apache "apache2",
    php_fpm "php-fpm",
    postgresql "postgres",
    redis "redis-server",
    fakeroot "fakeroot-sysv",
);
