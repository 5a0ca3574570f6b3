//! A process that runs a command as Toolgate does, to be killed or to get another environment.
//!
//! It is this test program, started again with a variable that contains the command; without the
//! variable, nothing happens.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use toolgate_tools::{NamespaceSupport, ShellOptions};

use crate::shell::support::{ShellBench, kernels};

/// Starts a process that runs `command` in a sandbox and prints the report.
pub(crate) fn host_command(command: &str, namespaces: bool) -> Command {
    let mut host = Command::new(this_program());
    host.args([
        "--exact",
        "shell::host::runs_the_command_it_was_given",
        "--nocapture",
    ]);
    host.env("HOST_COMMAND", command)
        .env("HOST_NAMESPACES", if namespaces { "yes" } else { "no" });
    host.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    host
}

pub(crate) fn this_program() -> std::path::PathBuf {
    std::env::current_exe().expect("a program")
}

/// Returns options with which a command may run this test program.
pub(crate) fn with_this_program() -> ShellOptions {
    let dir = this_program()
        .parent()
        .map(Path::to_owned)
        .expect("in a directory");
    ShellOptions {
        read: vec![dir],
        ..ShellOptions::default()
    }
}

#[tokio::test]
async fn runs_the_command_it_was_given() {
    let Some(command) = std::env::var_os("HOST_COMMAND") else {
        return;
    };
    let kernels = kernels();
    let kernel = match std::env::var("HOST_NAMESPACES").as_deref() {
        Ok("yes") => kernels[0].clone(),
        _ => kernels[1].clone(),
    };
    assert!(
        kernel.namespaces == NamespaceSupport::None
            || std::env::var("HOST_NAMESPACES").as_deref() == Ok("yes")
    );
    let report = ShellBench::with_kernel(kernel, ShellOptions::default())
        .run(&command.to_string_lossy())
        .await;
    println!("{report:#}");
}

/// Kills a process and waits for it.
pub(crate) fn kill_and_wait(child: &mut Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
}
