//! `[hooks]` of the configuration: commands that run before and after calls.

use crate::admin::AdminPlace;

const CONFIG: &str = "
[[hooks.pre]]
tool = 'read_file'
command = './check.sh'
";

#[cfg(unix)]
#[test]
fn a_command_of_the_file_blocks_calls_and_its_script_is_part_of_the_trust() {
    let place = AdminPlace::new();
    place.write("a.txt", "hello\n");
    let script = place.write("check.sh", "#!/bin/sh\ngrep -q secret && exit 2\nexit 0\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("is ours");
    let place = place.configured(CONFIG);
    let read = |path: &str| place.run(["tools", "call", "read_file", &format!("path={path}")]);
    assert_eq!(read("a.txt").code, 0);
    let blocked = read("secret.txt");
    assert_ne!(blocked.code, 0);
    let said = format!("{}{}", blocked.out, blocked.err);
    assert!(said.contains("aborted by hook"), "{said}");

    std::fs::write(&script, "#!/bin/sh\nexit 0\n").expect("writes");
    let changed = read("secret.txt");
    assert_eq!(changed.code, 2, "{changed:?}");
    assert!(
        changed.err.contains("has changed since it was trusted"),
        "{changed:?}"
    );
}

#[test]
fn hooks_that_could_not_run_are_an_error_and_not_left_out() {
    for (text, problem) in [
        ("[[hooks.pre]]\ncommand = ''\n", "`command` is empty"),
        (
            "[[hooks.post]]\ncommand = 'true'\ntimeout = '1h'\n",
            "longer than 10m",
        ),
        (
            "[layers.hooks]\nenabled = false\n[[hooks.pre]]\ncommand = 'true'\n",
            "no layer `hooks`",
        ),
    ] {
        let place = AdminPlace::new();
        place.write("a.txt", "hello\n");
        place.write("toolgate.toml", text);
        let trusted = place.run(["config", "trust", "--yes"]);
        let ran = place.run(["tools", "call", "read_file", "path=a.txt"]);
        assert_ne!(ran.code, 0, "{text}");
        let said = format!("{}{}", trusted.err, ran.err);
        assert!(said.contains(problem), "{text}: {said}");
    }
}
