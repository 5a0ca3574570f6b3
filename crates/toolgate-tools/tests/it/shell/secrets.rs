//! Tests that files with tokens outside the workspace cannot be read.

use std::fs;

use crate::shell::host::host_command;

#[test]
fn tokens_of_toolchains_cannot_be_read() {
    // Not below the temporary directory, which a command does not see in any case.
    let Ok(home) = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")) else {
        return;
    };
    fs::create_dir(home.path().join("bin")).expect("created");
    fs::write(home.path().join("bin/tool"), "readable").expect("written");
    for name in ["config.toml", "config", "credentials.toml", "credentials"] {
        fs::write(home.path().join(name), "token = 'CANARY-TOKEN'").expect("written");
    }
    for namespaces in [true, false] {
        let command = "cd $CARGO_HOME; cat bin/tool; cat config.toml config credentials.toml credentials; \
                       cat /etc/maven/settings.xml";
        let mut host = host_command(command, namespaces);
        let output = host.env("CARGO_HOME", home.path()).output().expect("run");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("readable"), "{text}");
        assert!(
            !text.contains("CANARY-TOKEN") && !text.contains("<settings"),
            "{text}"
        );
    }
}

/// A program that finds its configuration and cannot read it would fail.
#[test]
fn the_configuration_of_cargo_is_empty_where_there_are_namespaces() {
    let Ok(home) = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")) else {
        return;
    };
    // A command has a `/tmp` of its own: what lies there is not empty, it does not exist.
    if home.path().starts_with("/tmp") {
        return;
    }
    fs::write(home.path().join("config.toml"), "token = 'CANARY-TOKEN'").expect("written");
    let mut host = host_command("cat $CARGO_HOME/config.toml && echo empty", true);
    let output = host.env("CARGO_HOME", home.path()).output().expect("run");
    let text = String::from_utf8_lossy(&output.stdout);
    let apart = toolgate_tools::Sandbox::check().namespaces;
    if apart != toolgate_tools::NamespaceSupport::None {
        assert!(text.contains("\"empty\\n\""), "{text}");
    }
}
