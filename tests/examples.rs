//! The examples do what their README says.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use record::{Outcome, Record};

const CELLBLOCK: &str = env!("CARGO_BIN_EXE_cellblock");

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(path)
}

/// Says why a test cannot run, if so: no cell with Python in it can be made here.
/// The macros write to what the harness keeps back.
fn cannot_run(test: &str) -> bool {
    let words = ["run", "--json", "--lang", "python", "-c", "display"];
    let output = Command::new(CELLBLOCK).args(words).output().unwrap();
    let why = match Command::new("python3").arg("--version").output() {
        Err(_) => "there is no python3 on this host".to_owned(),
        Ok(_) if !output.status.success() => String::from_utf8_lossy(&output.stdout)
            .chars()
            .take(500)
            .collect(),
        Ok(_) => return false,
    };
    let _ = writeln!(io::stderr(), "{test}: skipped, {why}");
    true
}

fn run(path: &str, words: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(example(path))
        .args(words)
        .env("CELLBLOCK", CELLBLOCK)
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(status.success(), "{path}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

#[test]
fn the_agent_learns_from_each_failure() {
    if cannot_run("the_agent_learns_from_each_failure") {
        return;
    }
    let told = run("agent-loop/agent.py", &[CELLBLOCK]);
    let lines: Vec<&str> = told.lines().collect();
    let attempts: Vec<&str> = lines
        .iter()
        .filter(|line| line.starts_with("  "))
        .map(|line| line.split(':').next().unwrap_or_default().trim())
        .map(|line| line.split(" in ").next().unwrap_or_default())
        // Whether the outcome is `memory` as well depends on what measures it.
        .map(|line| line.rsplit(", ").next().unwrap_or_default())
        .collect();
    assert_eq!(attempts, ["import", "network", "memory", "ok"], "{told}");
    assert_eq!(
        lines.last(),
        Some(&"answer: {'a': 19.63, 'b': 4.75, 'c': 11.84}"),
        "{told}"
    );
}

#[test]
fn the_analysis_leaves_a_plot_and_a_table() {
    if cannot_run("the_analysis_leaves_a_plot_and_a_table") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let stored = dir.path().join("record.json");
    let shown = run("data-analysis/run.sh", &[stored.to_str().unwrap()]);
    assert!(shown.starts_with("ok · python · exit code 0 · "), "{shown}");
    let record: Record = serde_json::from_slice(&fs::read(&stored).unwrap()).unwrap();
    assert_eq!(record.outcome, Outcome::Ok);
    let stdout = record.stdout.as_ref().unwrap().to_string();
    assert!(
        stdout.starts_with("30 years, 0.62 t for each 100 mm of rain, R² = 0.83"),
        "{stdout}"
    );
    let has = |name: &str| {
        record
            .results
            .iter()
            .any(|item| item.formats.contains_key(name))
    };
    assert!(has("image/svg+xml") || has("image/png"));
    let table = record
        .results
        .iter()
        .find(|item| item.is_main_result)
        .unwrap();
    assert!(
        table.formats["text/html"]
            .as_str()
            .unwrap()
            .contains("<table")
    );
    assert!(table.text.as_ref().unwrap().contains("yield (t)"));
}

#[test]
fn the_report_is_one_page() {
    if cannot_run("the_report_is_one_page") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    run("report/report.sh", &[page.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<title>ok: python</title>"));
    assert!(page.contains("<img alt=\""));
    assert!(page.contains("30 years, 0.62 t for each 100 mm of rain"));
    // The record is all that it is made of.
    assert!(page.ends_with("</html>\n") && !page.contains("<script"));
}

#[test]
fn the_slurm_script_serves_a_program_and_ends_with_it() {
    if cannot_run("the_slurm_script_serves_a_program_and_ends_with_it") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // It runs its arguments in two tasks, as on two nodes.
    let srun = "#!/bin/sh\n[ \"$1\" = --kill-on-bad-exit=1 ] || exit 9\nshift\n\"$@\" & \"$@\"\nstatus=$?\nwait $!\nexit $status\n";
    let program = "import json, os, sys, urllib.request\n\
        body = json.dumps({'language': 'python', 'code': 'print(6 * 7)'}).encode()\n\
        token = {'Authorization': 'Bearer ' + os.environ['CELLBLOCK_HTTP_TOKEN']}\n\
        ask = urllib.request.Request(os.environ['CELLBLOCK_URL'] + '/run_code', body, token)\n\
        ran = json.load(urllib.request.urlopen(ask))\n\
        said = ran['run_result']['stdout'].strip(), os.path.exists(os.environ['CELLBLOCK_SOCKET'])\n\
        os.write(1, b'%s %s\\n' % tuple(str(one).encode() for one in said))  # the other task writes as well\n\
        sys.exit(3)\n";
    let (bin, program_file) = (
        directory.path().join("srun"),
        directory.path().join("program"),
    );
    fs::write(&bin, srun).unwrap();
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&program_file, program).unwrap();
    let path = format!(
        "{}:{}",
        directory.path().display(),
        std::env::var("PATH").unwrap()
    );
    let output = Command::new("bash")
        .arg(example("slurm/cellblock.sbatch"))
        .arg("python3")
        .arg(&program_file)
        .env("PATH", path)
        .env("TMPDIR", directory.path())
        .env("CELLBLOCK", CELLBLOCK)
        .env("CELLBLOCK_OPTIONS", "--rootfs host")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "42 True\n42 True\n", "{output:?}");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "the script left something behind");
}

#[test]
fn the_kubernetes_manifest_parses() {
    // From python3-yaml, which the host may lack.
    let check = "import sys, yaml\n\
        kinds = {one['kind']: one for one in yaml.safe_load_all(open(sys.argv[1]))}\n\
        pod = kinds['Deployment']['spec']['template']['spec']\n\
        print(sorted(kinds), pod['containers'][0]['securityContext']['procMount'], pod['hostUsers'])";
    let has_yaml = Command::new("python3").args(["-c", "import yaml"]).output();
    if !has_yaml.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(
            io::stderr(),
            "the_kubernetes_manifest_parses: skipped, python3 has no yaml"
        );
        return;
    }
    let manifest = example("kubernetes/cellblock.yaml");
    let output = Command::new("python3")
        .args(["-c", check])
        .arg(manifest)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "['Deployment', 'NetworkPolicy', 'Service'] Unmasked False\n";
    assert_eq!(said, expected, "{output:?}");
}
