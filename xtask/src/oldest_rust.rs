//! Checks that the workspace builds with the oldest Rust that its manifest states.

use std::{path::Path, process::Command};

/// Checks the stated minimum: by this run if the compiler is that version, otherwise with the
/// toolchain of that version.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let stated = stated_version(root)?;
    let used = printed_version(Command::new("rustc").arg("--version"))?;
    if is_version(&used, &stated) {
        println!("this run uses Rust {used}: the stated minimum is tested");
        return Ok(());
    }
    println!("this run uses Rust {used}; checking with {stated}");
    let toolchain = format!("+{stated}");
    let status = Command::new("cargo")
        .args([
            &*toolchain,
            "check",
            "--workspace",
            "--all-features",
            "--locked",
        ])
        .current_dir(root)
        .status()
        .map_err(|error| format!("cargo {toolchain} could not be started: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!(
        "the workspace does not build with Rust {stated}, which Cargo.toml states as the oldest\n\
         hint: `rustup toolchain install {stated}` installs it"
    ))
}

/// Returns the `rust-version` of the workspace.
fn stated_version(root: &Path) -> Result<String, String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))
        .map_err(|error| format!("Cargo.toml cannot be read: {error}"))?;
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let version = line.map(|value| value.trim().trim_matches('"').to_owned());
    version.ok_or_else(|| "Cargo.toml states no rust-version".to_owned())
}

fn printed_version(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("rustc could not be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().nth(1);
    version
        .map(str::to_owned)
        .ok_or_else(|| "rustc printed no version".to_owned())
}

/// Checks whether `used`, such as `1.95.2`, is a release of `stated`, such as `1.95`.
fn is_version(used: &str, stated: &str) -> bool {
    let mut parts = used.split(['.', '-']);
    stated.split('.').all(|part| parts.next() == Some(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_belongs_to_its_version_and_to_no_other() {
        assert!(is_version("1.95.0", "1.95") && is_version("1.95.2", "1.95"));
        assert!(!is_version("1.96.0", "1.95") && !is_version("1.9.5", "1.95"));
        assert!(!is_version("1.95.1", "1.95.0"));
    }
}
