//! `cargo xtask dist`: an archive with the program and everything that belongs to it, its checksum and its
//! list of components.

mod archive;
mod check;
mod components;
mod licenses;
mod sbom;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use self::{archive::Archive, components::Components};
use crate::{cargo, root, target_directory};

pub(crate) use self::check::check;

/// Builds the program, packs it and checks the archive. `--binary FILE` packs that program and builds none;
/// `--out DIR` names the directory, by default `target/dist-archive`.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).map(PathBuf::from)
    };
    let out = option("--out").unwrap_or_else(|| target_directory().join("dist-archive"));
    // The script gets a prefix below it, which has to be absolute.
    let out = std::path::absolute(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let binary = match option("--binary") {
        Some(binary) => binary,
        None => build_program()?,
    };
    let start = Instant::now();
    let archive = pack(&binary, &out)?;
    println!(
        "{}: {} KiB, packed in {} s",
        archive.display(),
        file_size(&archive)? / 1024,
        start.elapsed().as_secs()
    );
    check(&out)
}

/// Builds the program as it is distributed.
fn build_program() -> Result<PathBuf, String> {
    let start = Instant::now();
    let arguments = [
        "build",
        "--locked",
        "--profile",
        "dist",
        "-p",
        "toolgate-cli",
    ];
    let status = cargo(&[&arguments[..], &["--features", "dist"]].concat()).status();
    if !status.is_ok_and(|status| status.success()) {
        return Err(
            "the program does not compile\nhint: the lines above give the reason".to_owned(),
        );
    }
    let binary = target_directory().join("dist/toolgate");
    let size = file_size(&binary)? / 1024;
    println!(
        "{}: {size} KiB, built in {} s",
        binary.display(),
        start.elapsed().as_secs()
    );
    Ok(binary)
}

/// The notice about the embedding model in the archive.
const MODEL_NOTICE: &str = "share/doc/toolgate/NOTICE-embedding-model.md";

/// Packs a program into `out` and returns the archive.
pub(crate) fn pack(binary: &Path, out: &Path) -> Result<PathBuf, String> {
    let target = host_target()?;
    let components = Components::of_program(&target)?;
    let stage = Archive::new(&format!("toolgate-{target}"), out)?;
    add_program(&stage, binary)?;
    add_generated_files(&stage)?;
    let documents = [
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
    ];
    for name in documents {
        stage.copy(&root().join(name), &format!("share/doc/toolgate/{name}"))?;
    }
    // The licence of the embedding model asks for a notice of origin and changes.
    let notice = root().join("crates/toolgate-models/assets/README.md");
    stage.copy(&notice, MODEL_NOTICE)?;
    for name in ["toolgate-verify.service", "toolgate-verify.timer"] {
        let unit = root().join("packaging/systemd").join(name);
        stage.copy(&unit, &format!("share/systemd/user/{name}"))?;
    }
    let licenses = licenses::collect(&components);
    stage.write("share/doc/toolgate/THIRD-PARTY-LICENSES.txt", &licenses)?;
    let sbom = sbom::render(&components)?;
    stage.write("share/doc/toolgate/toolgate.cdx.json", &sbom)?;
    write_file(&out.join(format!("toolgate-{target}.cdx.json")), &sbom)?;
    let archive = stage.finish()?;
    copy_file(
        &root().join("packaging/install.sh"),
        &out.join("install.sh"),
    )?;
    Ok(archive)
}

/// Adds the program without its symbols.
fn add_program(stage: &Archive, binary: &Path) -> Result<(), String> {
    let program = stage.copy(binary, "bin/toolgate")?;
    run_program(Command::new("strip").arg(&program), "strip")?;
    Ok(())
}

/// Adds what the program writes about itself: completions and manual pages.
fn add_generated_files(stage: &Archive) -> Result<(), String> {
    let program = stage.path("bin/toolgate");
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/toolgate"),
        ("zsh", "share/zsh/site-functions/_toolgate"),
        ("fish", "share/fish/vendor_completions.d/toolgate.fish"),
    ] {
        let script = run_program(Command::new(&program).args(["completions", shell]), shell)?;
        stage.write(path, &script)?;
    }
    let pages = stage.path("share/man/man1");
    create_directory(&pages)?;
    run_program(
        Command::new(&program).args(["man", "--to"]).arg(&pages),
        "man",
    )?;
    Ok(())
}

/// Returns the target that the compiler builds for by default.
pub(crate) fn host_target() -> Result<String, String> {
    let version = run_program(Command::new("rustc").arg("-vV"), "rustc")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not say its target".to_owned())
}

/// Runs a program and returns what it prints.
fn run_program(command: &mut Command, name: &str) -> Result<String, String> {
    let ran = command
        .output()
        .map_err(|error| format!("{name} could not be started: {error}"))?;
    if !ran.status.success() {
        return Err(format!(
            "{name} failed: {}",
            String::from_utf8_lossy(&ran.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

fn create_directory(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy_file(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to).map(drop);
    copied.map_err(|error| format!("{}: {error}", from.display()))
}

fn file_size(path: &Path) -> Result<u64, String> {
    let found = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(found.len())
}
