//! Puts the files of the languages together as the executable has them, so that a launch need not.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::{env, fs};

use sha2::{Digest as _, Sha256};

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=src");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    write_to(&out.join("driver.cjs"), &node_driver()?)?;
    let digest = digest(&files("python/cellblock_driver", "py")?)?;
    write_to(&out.join("python.digest"), &digest)?;
    compile_bash_driver(&out.join("driver.so"))?;
    compile_profiles(&out.join("profiles"))
}

/// The driver for Node in one file: the modules, and then what starts the one with the file's name.
fn node_driver() -> Result<String, String> {
    let folder = Path::new("src/javascript");
    let fail = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| fail(path, error));
    let entries = fs::read_dir(folder).map_err(|error| fail(folder, error))?;
    let mut modules = (entries.map(|entry| Ok(entry.map_err(|e| fail(folder, e))?.path())))
        .collect::<Result<Vec<PathBuf>, String>>()?;
    let load = folder.join("load.cjs");
    modules.retain(|path| path.extension().is_some_and(|it| it == "cjs") && *path != load);
    modules.sort();
    let mut driver = read(&load)? + "const sources = {\n";
    for path in &modules {
        let name = path.file_name().unwrap_or_default().display();
        driver += &format!("'./{name}'(require, module) {{\n{}}},\n", read(path)?);
    }
    Ok(driver + "};\nload(`./${require('path').basename(__filename)}`);\n")
}

/// A digest of files, in hexadecimal digits.
fn digest(paths: &[PathBuf]) -> Result<String, String> {
    let mut digest = Sha256::new();
    for path in paths {
        let content = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        digest.update(content.len().to_le_bytes());
        digest.update(content);
    }
    Ok(digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// A language's files with this extension, in the order of their names.
fn files(folder: &str, extension: &str) -> Result<Vec<PathBuf>, String> {
    let folder = Path::new("src").join(folder);
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let paths = fs::read_dir(&folder).map_err(fail)?;
    let mut paths = (paths.map(|entry| Ok(entry.map_err(fail)?.path())))
        .collect::<Result<Vec<PathBuf>, String>>()?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}

/// The driver for Bash: a shared object that needs no C library's headers, and finds what it calls in
/// the process that loads it. So a compiler for any C library will do. With `CELLBLOCK_NO_BASH_DRIVER`
/// there is none, and no Bash context starts: for `cargo check` where no compiler makes code for the
/// target.
fn compile_bash_driver(object: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-env-changed=CELLBLOCK_NO_BASH_DRIVER");
    if env::var_os("CELLBLOCK_NO_BASH_DRIVER").is_some() {
        return write_to(object, "");
    }
    let mut compiler = cc::Build::new();
    compiler.opt_level(2).debug(false).pic(true);
    let compiler = (compiler.try_get_compiler()).map_err(|error| error.to_string())?;
    let target = env::var("TARGET").unwrap_or_default();
    let fail = |why: &dyn Display| {
        let compiler = compiler.path().display();
        format!("src/shell/driver: {compiler}: {why}; CC_{target} names another C compiler")
    };
    // Of an earlier build.
    let _ = fs::remove_file(object);
    let output = compiler
        .to_command()
        .args([
            "-std=gnu11",
            "-ffreestanding",
            "-fno-stack-protector",
            "-fvisibility=hidden",
        ])
        // A function that a Bash does not have is an error when it loads the object, not later.
        .args(["-shared", "-nostdlib", "-s", "-Wl,-z,now", "-o"])
        .arg(object)
        .args(files("shell/driver", "c")?)
        .output()
        .map_err(|error| fail(&error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(fail(&format!("{}: {said}", output.status)));
    }
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").map_err(|error| fail(&error))?;
    let machine = match &*architecture {
        "x86_64" => 62,
        "aarch64" => 183,
        other => return Err(fail(&format!("the driver is not made for {other}"))),
    };
    match fs::read(object) {
        // The field e_machine of elf(5).
        Ok(bytes) if bytes.get(18..20) == Some(&[machine, 0]) => Ok(()),
        Ok(_) => Err(fail(&format!("it makes no code for {architecture}"))),
        Err(error) => Err(fail(&format!("it made nothing: {error}"))),
    }
}

/// Writes the profile of each language as JSON, with the name of its folder.
fn compile_profiles(out: &Path) -> Result<(), String> {
    let fail = |path: &Path, error: &dyn Display| format!("{}: {error}", path.display());
    fs::create_dir_all(out).map_err(|error| fail(out, &error))?;
    let directory = Path::new("src");
    let entries = fs::read_dir(directory).map_err(|error| fail(directory, &error))?;
    for entry in entries {
        let folder = entry.map_err(|error| fail(directory, &error))?.path();
        let path = folder.join("profile.toml");
        if path.exists() {
            let text = fs::read_to_string(&path).map_err(|error| fail(&path, &error))?;
            let profile: toml::Table = text.parse().map_err(|error| fail(&path, &error))?;
            let json = serde_json::to_string(&profile).map_err(|error| fail(&path, &error))?;
            let name = folder.file_name().unwrap_or_default();
            write_to(&out.join(name).with_extension("json"), &json)?;
        }
    }
    Ok(())
}

fn write_to(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
