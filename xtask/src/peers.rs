//! A Python with the official clients of the model providers, for the tests: under `target`,
//! installed once per version.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::postgres::is_root;

/// The environment variable that names it for the tests.
pub(crate) const VARIABLE: &str = "TOOLGATE_TEST_PYTHON";

/// The list of packages to install, relative to the root of the project.
const REQUIREMENTS: &str = "crates/toolgate-models/tests/peers/requirements.txt";

/// Returns the Python that the environment names, or else installs one.
pub(crate) fn given_or_made(root: &Path) -> Result<PathBuf, String> {
    match std::env::var_os(VARIABLE) {
        Some(python) if !python.is_empty() => Ok(python.into()),
        _ => made(root),
    }
}

/// Prints how to use it.
pub(crate) fn print(root: &Path) -> Result<(), String> {
    println!("export {VARIABLE}='{}'", given_or_made(root)?.display());
    Ok(())
}

fn made(root: &Path) -> Result<PathBuf, String> {
    let requirements = root.join(REQUIREMENTS);
    let wanted = fs::read_to_string(&requirements)
        .map_err(|error| format!("{REQUIREMENTS} cannot be read: {error}"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |dir| root.join(dir));
    let dir = target.join("peers");
    let stamp = dir.join("installed.txt");
    let python = dir.join("python");
    // The stamp is written last, so an interrupted installation is repeated.
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) && runs(&python) {
        return Ok(python);
    }
    println!(
        "== installing the official clients of the model providers under {}",
        dir.display()
    );
    if dir.exists() {
        fs::remove_dir_all(&dir)
            .map_err(|error| format!("{} cannot be removed: {error}", dir.display()))?;
    }
    fs::create_dir_all(&dir)
        .map_err(|error| format!("{} cannot be made: {error}", dir.display()))?;
    install(&dir, &requirements)?;
    fs::write(&stamp, wanted)
        .map_err(|error| format!("{} cannot be written: {error}", stamp.display()))?;
    Ok(python)
}

/// Installs into a virtual environment, or beside the system's Python where it cannot make one.
fn install(dir: &Path, requirements: &Path) -> Result<(), String> {
    let system = system_python()?;
    let venv = dir.join("venv");
    if done(Command::new(&system).args(["-m", "venv"]).arg(&venv)) {
        let python = venv.join("bin/python");
        pip(&python, requirements, None)?;
        return write_launcher(dir, &python, None);
    }
    println!(
        "== Python cannot make virtual environments here (Debian: `python3-venv`); installing beside it"
    );
    let packages = dir.join("packages");
    pip(Path::new(&system), requirements, Some(&packages))?;
    write_launcher(dir, Path::new(&system), Some(&packages))
}

fn pip(python: &Path, requirements: &Path, target: Option<&Path>) -> Result<(), String> {
    let mut command = Command::new(python);
    command
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
        ])
        .arg(requirements);
    if let Some(target) = target {
        command.arg("--target").arg(target);
    }
    if done(&mut command) {
        Ok(())
    } else {
        Err(format!(
            "the official clients could not be installed with pip\nhint: install `python3-venv` and `python3-pip`, or set \
             {VARIABLE} to a Python that has what {REQUIREMENTS} lists"
        ))
    }
}

/// Returns a program of one name, whichever way the packages were installed.
fn write_launcher(dir: &Path, python: &Path, packages: Option<&Path>) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let launcher = dir.join("python");
    let path = packages
        .map(|packages| format!("PYTHONPATH='{}' ", packages.display()))
        .unwrap_or_default();
    let script = format!("#!/bin/sh\n{path}exec '{}' \"$@\"\n", python.display());
    let written = fs::write(&launcher, script)
        .and_then(|()| fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)));
    written.map_err(|error| format!("{} cannot be written: {error}", launcher.display()))
}

/// Returns a Python of this system that is new enough; installs Debian's if there is none.
fn system_python() -> Result<String, String> {
    let find = || {
        ["python3", "python"]
            .into_iter()
            .find(|name| runs(Path::new(name)))
    };
    if let Some(found) = find() {
        return Ok(found.to_owned());
    }
    if Path::new("/etc/debian_version").exists() && is_root()? {
        println!("== Python is not installed; installing Debian's package");
        let mut install = Command::new("apt-get");
        install.args([
            "install",
            "--yes",
            "--no-install-recommends",
            "python3",
            "python3-venv",
            "python3-pip",
        ]);
        if done(install.env("DEBIAN_FRONTEND", "noninteractive"))
            && let Some(found) = find()
        {
            return Ok(found.to_owned());
        }
    }
    Err(format!(
        "the tests need Python 3.10 or newer\nhint: install it, or set {VARIABLE} to one"
    ))
}

/// Checks whether it is a Python that can run the stub server.
fn runs(python: &Path) -> bool {
    done(Command::new(python).args(["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]))
}

fn done(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
