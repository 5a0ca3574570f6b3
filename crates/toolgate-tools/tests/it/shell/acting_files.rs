//! Tests that a command does not change files that act later, unless the call unlocks them.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Value, json};
use toolgate_core::ErrorCategory;
use toolgate_tools::{KernelFeatures, NamespaceSupport, Sandbox, ShellOptions};

use crate::shell::support::{ShellBench, expect_report, kernels};

/// The files of the workspace that act later.
const ACTING: &[&str] = &[
    ".git/config",
    ".git/hooks/pre-push",
    ".git/modules/lib/config",
    ".git/modules/deep/er/config",
    ".git/worktrees/w/commondir",
    "AGENTS.md",
    "sub/.vscode/tasks.json",
    "sub/nested/.git/config",
    ".github/workflows/ci.yml",
    "Sub2/Claude.md",
];

/// Returns a kernel with namespaces, if the running one has them.
fn with_namespaces() -> Option<KernelFeatures> {
    let kernel = Sandbox::check().clone();
    (kernel.namespaces != NamespaceSupport::None).then_some(kernel)
}

/// Creates a workspace with a repository and other files that act later.
fn bench_with_repository(kernel: KernelFeatures) -> ShellBench {
    let bench = ShellBench::with_kernel(kernel, ShellOptions::default());
    let root = bench.workspace_dir();
    let git = std::process::Command::new("git")
        .args(["init", "-q", "-b", "main"])
        .arg(&root)
        .status();
    assert!(git.expect("git is installed").success());
    for path in ACTING {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        let old = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, format!("{old}# as it was\n")).expect("written");
    }
    for git_dir in [
        ".git/modules/lib",
        ".git/modules/deep/er",
        "sub/nested/.git",
    ] {
        fs::write(root.join(git_dir).join("HEAD"), "ref: refs/heads/main\n").expect("written");
    }
    bench
}

/// Returns the contents of the files that act later.
fn read_acting(root: &Path) -> BTreeMap<&'static str, Option<String>> {
    let read = |path: &&'static str| (*path, fs::read_to_string(root.join(path)).ok());
    ACTING.iter().map(read).collect()
}

#[tokio::test]
async fn no_command_changes_a_file_that_acts_later() {
    let Some(kernel) = with_namespaces() else {
        return;
    };
    let bench = bench_with_repository(kernel);
    let root = bench.workspace_dir();
    let before = read_acting(&root);
    for command in [
        "git config core.fsmonitor ./evil",
        "echo x >> .git/config",
        "rm -f .git/config",
        "mv .git/config old",
        "echo x > new && mv -f new .git/config",
        "mv .git old && mkdir .git && echo x > .git/config",
        "mv .git old; cp -r old .git; echo x > .git/config",
        "echo x > .git/hooks/pre-commit",
        "rm -rf .git/hooks && mkdir .git/hooks",
        "mkdir evil; mv -T evil .git/hooks",
        "git config --file .git/modules/lib/config a.b c",
        "echo x > .git/modules/deep/er/config",
        "mv .git/modules/lib .git/modules/lib2",
        "echo /evil > .git/worktrees/w/commondir",
        "echo x > AGENTS.md",
        "sed -i s/as/AS/ AGENTS.md",
        "ln -f AGENTS.md hard && echo x > hard",
        "ln -sf evil AGENTS.md",
        "chmod 600 AGENTS.md && touch -d 2001-01-01 AGENTS.md",
        "truncate -s 0 Sub2/Claude.md",
        "echo x > sub/.vscode/tasks.json",
        "echo x > sub/.vscode/settings.json",
        "mv .github gh",
        "echo x > .github/workflows/new.yml",
        "cd sub/nested && git config a.b c",
        "mount -o remount,rw,bind AGENTS.md; umount AGENTS.md; echo x > AGENTS.md",
        "unshare -m sh -c 'umount AGENTS.md; echo x > AGENTS.md'",
        "python3 -c \"open('.git/config','r+').write('x')\"",
        "dd if=/dev/zero of=.git/config bs=1 count=1 conv=notrunc",
        "cp /dev/null /proc/self/cwd/.git/config",
    ] {
        let report = bench.run(command).await;
        assert_ne!(report["exit_code"], 0, "{command}: {report}");
        assert_eq!(read_acting(&root), before, "{command}");
    }
    assert!(!root.join(".git/hooks/pre-commit").exists());
    assert!(!root.join("sub/.vscode/settings.json").exists());
}

#[tokio::test]
async fn a_repository_works_although_its_configuration_is_read_only() {
    let Some(kernel) = with_namespaces() else {
        return;
    };
    let bench = bench_with_repository(kernel);
    let report = bench
        .run(
            "echo text > file && git add file && git -c user.name=a -c user.email=a@b commit -qm one && \
             git branch other && git checkout -q other && git rm -q file && git stash -q 2>/dev/null; \
             git repack -q && git log --oneline | wc -l",
        )
        .await;
    assert_eq!(
        report["output"].as_str().map(str::trim),
        Some("1"),
        "{report}"
    );
    assert_eq!(report.get("acting_files"), None, "{report}");
}

#[tokio::test]
async fn a_command_that_fails_says_which_files_are_read_only_and_what_to_do() {
    let Some(kernel) = with_namespaces() else {
        return;
    };
    let bench = bench_with_repository(kernel);
    for (command, file) in [
        ("git config core.fsmonitor x", ".git/config"),
        ("echo x > AGENTS.md", "AGENTS.md"),
        ("rm .git/config", ".git/config"),
        ("echo x > .git/hooks/pre-commit", ".git/hooks"),
        ("touch sub/.vscode/new", "sub/.vscode"),
    ] {
        let settled = bench.call(json!({ "command": command })).await;
        let report = expect_report(&settled);
        assert_eq!(
            report["read_only_files"],
            json!([file]),
            "{command}: {report}"
        );
        let text = settled.model_text().into_owned();
        assert!(
            text.contains("unlock_files") && text.contains(file),
            "{text}"
        );
    }
    let fine = bench.run("grep -c 'Read-only file system' /dev/null").await;
    assert_eq!(fine.get("read_only_files"), None, "{fine}");
}

#[tokio::test]
async fn a_call_unlocks_exactly_the_files_that_it_names() {
    let Some(kernel) = with_namespaces() else {
        return;
    };
    for (unlocked, command, works) in [
        (".git/config", "git config a.b c", true),
        (".git/config", "echo x > .git/hooks/pre-push", false),
        (".git/config", "echo x > AGENTS.md", false),
        (".git/hooks", "echo x > .git/hooks/pre-push", true),
        (
            ".git",
            "git config a.b c && echo x > .git/hooks/pre-push",
            true,
        ),
        ("AGENTS.md", "echo x > AGENTS.md", true),
        ("sub/.vscode", "echo x > sub/.vscode/tasks.json", true),
        ("sub/.vscode", "echo x > Sub2/Claude.md", false),
    ] {
        let bench = bench_with_repository(kernel.clone());
        let before = read_acting(&bench.workspace_dir());
        let call = json!({ "command": command, "unlock_files": [unlocked] });
        let report = expect_report(&bench.call(call).await);
        assert_eq!(
            report["exit_code"] == 0,
            works,
            "{unlocked} {command}: {report}"
        );
        let is_same = read_acting(&bench.workspace_dir()) == before;
        assert_eq!(is_same, !works, "{unlocked} {command}");
        assert_eq!(report.get("acting_files"), None, "{report}");
    }
}

#[tokio::test]
async fn only_files_that_act_later_can_be_unlocked() {
    for kernel in kernels() {
        let bench = bench_with_repository(kernel);
        for file in [
            ".",
            "",
            "src",
            "../.git",
            "/etc/passwd",
            ".git/../src",
            "sub",
            ".git*",
            "./.git",
        ] {
            let call = json!({ "command": "true", "unlock_files": [file] });
            let error = bench.call(call).await.error.expect("rejected");
            assert_eq!(error.category, ErrorCategory::InvalidInput, "{file}");
        }
        let none = json!({ "command": "true", "unlock_files": null });
        assert_eq!(expect_report(&bench.call(none).await)["exit_code"], 0);
    }
}

#[tokio::test]
async fn what_was_created_or_could_not_be_protected_is_reported() {
    for kernel in kernels() {
        let protects = kernel.namespaces != NamespaceSupport::None;
        let bench = bench_with_repository(kernel);
        for (command, file) in [
            ("echo x > .envrc", ".envrc"),
            (
                "mkdir -p new/.vscode && echo x > new/.vscode/tasks.json",
                "new/.vscode",
            ),
            ("echo x > .git/commondir; true", ".git/commondir"),
            (
                "mkdir -p sub/deep && echo x > sub/deep/CLAUDE.md",
                "sub/deep/CLAUDE.md",
            ),
            ("ln -s file .npmrc", ".npmrc"),
        ] {
            let settled = bench.call(json!({ "command": command })).await;
            let report = expect_report(&settled);
            assert_eq!(report["acting_files"], json!([file]), "{command}: {report}");
            assert!(settled.model_text().contains(file));
            fs::remove_file(bench.workspace_dir().join(".git/commondir")).ok();
        }
        let changed = bench
            .run("echo x >> AGENTS.md; echo x >> .git/hooks/pre-push")
            .await;
        let expected = if protects {
            Value::Null
        } else {
            json!([".git/hooks", "AGENTS.md"])
        };
        assert_eq!(changed["acting_files"], expected, "{changed}");
    }
}

#[tokio::test]
async fn what_a_link_or_the_configuration_leads_to_is_read_only_too() {
    let Some(kernel) = with_namespaces() else {
        return;
    };
    let bench = bench_with_repository(kernel);
    let root = bench.workspace_dir();
    fs::create_dir_all(root.join("tools/hooks")).expect("created");
    fs::write(root.join("guide.md"), "as it was").expect("written");
    std::os::unix::fs::symlink("guide.md", root.join("GEMINI.md")).expect("linked");
    std::os::unix::fs::symlink(".", root.join(".cursor")).expect("linked");
    let config = fs::read_to_string(root.join(".git/config")).expect("readable");
    let config = format!("{config}[core]\n\thooksPath = tools/hooks\n");
    fs::write(root.join(".git/config"), config).expect("written");
    for command in [
        "echo x > guide.md",
        "echo x > GEMINI.md",
        "mv guide.md other.md",
        "echo x > tools/hooks/pre-commit",
        "echo x > .cursor/guide.md",
    ] {
        let report = bench.run(command).await;
        assert_ne!(report["exit_code"], 0, "{command}: {report}");
    }
    assert_eq!(
        fs::read_to_string(root.join("guide.md")).expect("there"),
        "as it was"
    );
    // A link to the whole workspace locks nothing.
    assert_eq!(bench.run("echo x > new.txt").await["exit_code"], 0);
}

#[tokio::test]
async fn a_workspace_may_have_more_such_files_than_a_process_may_open() {
    let Some(kernel) = with_namespaces() else {
        return;
    };
    let bench = ShellBench::with_kernel(kernel, ShellOptions::default());
    for number in 0..1500 {
        let dir = bench.workspace_dir().join(format!("d{number}"));
        fs::create_dir(&dir).expect("created");
        fs::write(dir.join("AGENTS.md"), "as it was").expect("written");
    }
    let report = bench
        .run("echo x > d1499/AGENTS.md; cat d1499/AGENTS.md")
        .await;
    let output = report["output"].as_str().expect("text");
    assert!(output.ends_with("as it was"), "{report}");
}

/// The first process of the namespace is a copy of ours, which never runs another program.
#[tokio::test]
async fn the_processes_of_the_sandbox_show_nothing_of_ours() {
    let Some(kernel) = with_namespaces() else {
        return;
    };
    let bench = ShellBench::with_kernel(kernel, ShellOptions::default());
    let ours: Vec<String> = std::env::args().collect();
    for file in ["cmdline", "environ", "task/1/cmdline", "auxv", "mem"] {
        let report = bench
            .run(&format!(
                "tr '\\0' '\\n' < /proc/1/{file}; ls /proc | grep -c '^[0-9]'"
            ))
            .await;
        let output = report["output"].as_str().expect("text");
        for argument in ours.iter().filter(|argument| argument.len() > 3) {
            assert!(!output.contains(argument.as_str()), "{file}: {output}");
        }
        assert!(!output.contains("CARGO"), "{file}: {output}");
    }
}
