//! A Chromium and the client that drives it, for the tests of exported pages: Debian's browser, and
//! `playwright-core` under `target`, installed once per version.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::postgres::is_root;

/// The environment variable that names the folder of the client for the tests.
pub(crate) const VARIABLE: &str = "TOOLGATE_TEST_BROWSER";

/// The client, with its version.
const CLIENT: &str = "playwright-core@1.56.1";

/// Returns the folder that the environment names, or else installs the client and a browser. Where
/// that is not possible, it says why and returns none: the tests in a browser are then skipped.
pub(crate) fn given_or_made(target: &Path) -> Option<PathBuf> {
    if let Some(given) = std::env::var_os(VARIABLE).filter(|given| !given.is_empty()) {
        return Some(given.into());
    }
    match make(target) {
        Ok(folder) => Some(folder),
        Err(problem) => {
            println!("== pages are not tested in a browser: {problem}");
            None
        }
    }
}

fn make(target: &Path) -> Result<PathBuf, String> {
    if !runs("node") || !runs("npm") {
        return Err("node and npm are not installed".to_owned());
    }
    install_chromium()?;
    let folder = target.join("browser");
    let stamp = folder.join("installed.txt");
    // The stamp is written last, so an interrupted installation is repeated.
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == CLIENT) {
        return Ok(folder);
    }
    println!("== installing {CLIENT} under {}", folder.display());
    let failed = |error| format!("{} cannot be written: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut install = Command::new("npm");
    // Without scripts: the client would load a browser of its own.
    install
        .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
        .arg("--prefix")
        .arg(&folder)
        .arg(CLIENT);
    if !done(&mut install) {
        return Err(format!("{CLIENT} could not be installed with npm"));
    }
    fs::write(&stamp, CLIENT).map_err(failed)?;
    Ok(folder)
}

/// Installs Debian's package, if there is no Chromium and this is possible.
fn install_chromium() -> Result<(), String> {
    if runs("chromium") {
        return Ok(());
    }
    if Path::new("/etc/debian_version").exists() && is_root()? {
        println!("== Chromium is not installed; installing Debian's package");
        let mut install = Command::new("apt-get");
        install.args(["install", "--yes", "--no-install-recommends", "chromium"]);
        if done(install.env("DEBIAN_FRONTEND", "noninteractive")) && runs("chromium") {
            return Ok(());
        }
    }
    Err("Chromium is not installed (on Debian: the package `chromium`)".to_owned())
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    done(
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    )
}

fn done(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
