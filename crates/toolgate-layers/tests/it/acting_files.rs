//! Files that act later are changed only with an approver's decision about the call.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};
use toolgate_core::{
    Annotations, Call, ExecutorTag, MemoryStore, OnExisting, Registry, Schema, SideEffect,
    SourceTrust, Stack, Status, StoreHandle, Suspension, Timestamp, ToolSpec, acting_file_names,
};
use toolgate_layers::{
    Approval, Configurable, PathBase, Policy, PolicyEffect, PolicyOptions, Resources, RuleBook,
};
use toolgate_testkit::{FakeExecutor, call_with, echo, keyring_with, plain_view, seed_for};

/// Everything is allowed, as far as rules can allow it.
const ALLOW_ALL: &str = "default = \"allow\"\n[[rules]]\neffect = \"allow\"\ntool = \"*\"";

/// A workspace with a git directory, and links that lead into it.
struct LinkedWorkspace {
    dir: tempfile::TempDir,
}

impl LinkedWorkspace {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        fs::create_dir_all(root.join(".git/hooks")).expect("created");
        fs::create_dir_all(root.join("docs")).expect("created");
        fs::write(root.join(".git/config"), "").expect("written");
        symlink("../.git/config", root.join("docs/notes.md")).expect("linked");
        symlink(".git", root.join("data")).expect("linked");
        symlink("../.envrc", root.join("docs/not_there_yet")).expect("linked");
        Self { dir }
    }

    fn policy(&self, text: &str) -> Policy {
        let options: PolicyOptions = toml::from_str(text).expect("a policy");
        let base = PathBase::new(self.dir.path());
        Policy::configure(options, &Resources::new().with(base)).expect("a valid policy")
    }

    fn effect(&self, policy: &str, tool: &str, arguments: Value) -> PolicyEffect {
        self.policy(policy)
            .judge(&call_with(tool, arguments))
            .effect
    }
}

#[test]
fn a_change_of_a_file_that_acts_later_is_asked_about_whatever_the_rules_allow() {
    let space = LinkedWorkspace::new();
    for name in acting_file_names() {
        let path = format!("sub/{}", name.replace('*', "x"));
        let judged = space
            .policy(&format!("secrets_files = false\n{ALLOW_ALL}"))
            .judge(&call_with("write_file", json!({ "path": path })));
        assert_eq!(judged.effect, PolicyEffect::Ask, "{path}");
        assert!(judged.each_time, "{path}");
        assert_eq!(judged.rule.as_deref(), Some("files that act later"));
    }
}

#[test]
fn every_spelling_and_every_way_to_name_the_file_counts() {
    let space = LinkedWorkspace::new();
    let root = space.dir.path().display().to_string();
    let policy = format!("secrets_files = false\n{ALLOW_ALL}");
    for arguments in [
        json!({ "path": ".git/config" }),
        json!({ "path": ".GIT/Config" }),
        json!({ "path": ".git/./config" }),
        json!({ "path": "x/../.git/hooks/pre-commit" }),
        json!({ "path": ".git./config" }),
        json!({ "path": ".git /config" }),
        json!({ "path": ".g\u{200c}it/config" }),
        json!({ "path": ".git::$INDEX_ALLOCATION/config" }),
        json!({ "path": "GIT~1/config" }),
        json!({ "path": ".git\\config" }),
        json!({ "path": format!("{root}/.git/config") }),
        json!({ "path": format!("file://{root}/.git/config") }),
        json!({ "path": "docs/notes.md" }),
        json!({ "path": "docs/not_there_yet" }),
        json!({ "path": "data/hooks/post-checkout" }),
        json!({ "path": "sub/.git" }),
        json!({ "path": ".git/modules/a/config" }),
        json!({ "path": ".git/worktrees/a/config.worktree" }),
        json!({ "path": "agents.MD" }),
        json!({ "path": "~/.bashrc" }),
        json!({ "source": "a", "destination": ".vscode/tasks.json" }),
        json!({ "from": ".github/workflows/ci.yml", "to": "ci.yml" }),
        json!({ "edits": [{ "path": "a" }, { "path": "pkg/.cargo/config.toml" }] }),
        json!({ "whatever": ".husky/pre-commit" }),
        json!({ "patch": "*** Begin Patch\n*** Add File: .envrc\n+x\n*** End Patch\n" }),
        json!({ "patch": "*** Begin Patch\n*** Update File: a\n*** Move to: CLAUDE.md\n@@\n-x\n+y\n*** End Patch\n" }),
        json!({ "patch": "*** Begin Patch\n*** Delete File: .gitattributes\n*** End Patch\n" }),
        json!({ "patch": "diff --git a/x b/.gitmodules\nsimilarity index 100%\nrename from x\nrename to .gitmodules\n" }),
        json!({ "dir": ".git", "name": "config" }),
        json!({ "command": "cp x .git/config" }),
        json!({ "command": "echo x > .envrc" }),
        json!({ "command": "sh -c 'tee .git/hooks/pre-push'" }),
        json!({ "command": "cd .git && tee config" }),
        json!({ "command": "cp x .gi?/config" }),
        json!({ "command": "ln -sf x AGENTS.md" }),
    ] {
        let effect = space.effect(&policy, "change", arguments.clone());
        assert_eq!(effect, PolicyEffect::Ask, "{arguments}");
    }
}

#[test]
fn other_files_and_calls_that_only_read_are_not_asked_about() {
    let space = LinkedWorkspace::new();
    for arguments in [
        json!({ "path": "src/main.rs" }),
        json!({ "path": ".gitignore" }),
        json!({ "path": "build.rs" }),
        json!({ "path": "docs/git/config" }),
        json!({ "path": "a", "content": "see AGENTS.md and .git/config" }),
        json!({ "command": "cat AGENTS.md .github/workflows/ci.yml" }),
        json!({ "command": "ls -la .git" }),
        json!({ "command": "git add AGENTS.md" }),
        json!({ "command": "cargo test" }),
    ] {
        let effect = space.effect(ALLOW_ALL, "change", arguments.clone());
        assert_eq!(effect, PolicyEffect::Allow, "{arguments}");
    }
    let registry = Registry::new();
    let spec =
        ToolSpec::new("look", "", Schema::any_object()).with_annotations(Annotations::read_only());
    let native = ExecutorTag::Native;
    let added = registry.register_from(
        spec,
        native,
        SourceTrust::Trusted,
        echo(),
        OnExisting::Reject,
    );
    added.expect("registered");
    let seed = seed_for(
        &plain_view(&registry),
        "look",
        json!({ "path": ".git/config" }),
    );
    let judged = space.policy(ALLOW_ALL).judge(&Call::new(seed));
    assert_eq!(judged.effect, PolicyEffect::Allow);
}

#[test]
fn the_directories_above_a_workspace_do_not_count_except_git() {
    let dir = tempfile::tempdir().expect("a directory");
    let judge = |root: &str, path: &str| {
        let root = dir.path().join(root);
        fs::create_dir_all(&root).expect("created");
        let options: PolicyOptions = toml::from_str(ALLOW_ALL).expect("a policy");
        let parts = Resources::new().with(PathBase::new(&root));
        let policy = Policy::configure(options, &parts).expect("a valid policy");
        policy
            .judge(&call_with("write", json!({ "path": path })))
            .effect
    };
    assert_eq!(judge(".claude/worktrees/x", "a.rs"), PolicyEffect::Allow);
    assert_eq!(
        judge(".claude/worktrees/x", "../../settings.json"),
        PolicyEffect::Ask
    );
    assert_eq!(judge(".vscode", "tasks.json"), PolicyEffect::Ask);
    assert_eq!(judge("a/.git/hooks", "pre-commit"), PolicyEffect::Ask);
}

#[test]
fn a_rule_allows_such_a_file_only_by_its_very_path() {
    let space = LinkedWorkspace::new();
    let write = |rule: &str, arguments: Value| {
        let text = format!("default = \"ask\"\n[[rules]]\neffect = \"allow\"\npath = {rule}");
        space.effect(&text, "write", arguments)
    };
    let ci = json!({ "path": ".github/workflows/ci.yml" });
    assert_eq!(
        write("'.github/workflows/ci.yml'", ci.clone()),
        PolicyEffect::Allow
    );
    for wide in [
        "'.github/**'",
        "'**'",
        "'.github/workflows/*.yml'",
        "['**', 'other.yml']",
    ] {
        assert_eq!(write(wide, ci.clone()), PolicyEffect::Ask, "{wide}");
    }
    // The rule names the link, and the file is another one.
    assert_eq!(
        write("'docs/notes.md'", json!({ "path": "docs/notes.md" })),
        PolicyEffect::Ask
    );
    // Two files, one of them named.
    let both = json!({ "paths": [".github/workflows/ci.yml", ".envrc.local/.vscode/x"] });
    assert_eq!(
        write("['.github/workflows/ci.yml', '**']", both),
        PolicyEffect::Ask
    );
    // A rule that denies still denies.
    let deny = "[[rules]]\neffect = \"deny\"\npath = '.github/**'";
    assert_eq!(space.effect(deny, "write", ci.clone()), PolicyEffect::Deny);
    let off = format!("acting_files = false\n{ALLOW_ALL}");
    assert_eq!(space.effect(&off, "write", ci), PolicyEffect::Allow);
}

#[test]
fn the_stricter_of_two_policies_keeps_the_demand_for_a_decision_each_time() {
    let space = LinkedWorkspace::new();
    let ask = space
        .policy("acting_files = false\n[[rules]]\nname = \"all\"\neffect = \"ask\"\ntool = \"*\"");
    let built_in = space.policy(ALLOW_ALL);
    for policy in [ask.combine(&built_in), built_in.combine(&ask)] {
        let judged = policy.judge(&call_with("write", json!({ "path": ".envrc.d/.vscode" })));
        assert!(judged.each_time && judged.effect == PolicyEffect::Ask);
    }
}

#[tokio::test]
async fn a_standing_rule_does_not_stand_for_the_decision() {
    let space = LinkedWorkspace::new();
    let book = RuleBook::new(StoreHandle::new(MemoryStore::new()), keyring_with("k1", 7));
    for (id, path) in [("config", ".git/config"), ("code", "a.rs")] {
        let rule = json!({ "id": id, "effect": "allow", "tool": "write", "owner": "ann",
            "created_at": Timestamp::EPOCH, "scope": { "scope": "global" },
            "arguments": { "/path": { "equals": path } } });
        let rule = serde_json::from_value(rule).expect("a rule");
        book.add(rule).await.expect("stored");
    }
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(space.policy("default = \"ask\""))
        .layer(Approval::when_required().with_rules(book))
        .build()
        .expect("valid order");
    let outcome = stack
        .run(call_with("write", json!({ "path": ".git/config" })))
        .await;
    let Some(Suspension::Decision(request)) = outcome.suspension() else {
        panic!("it requests approval")
    };
    let reason = request.reason.as_deref().expect("a reason");
    assert!(
        reason.contains("files that act later") && reason.contains(".git"),
        "{reason}"
    );
    assert!(executor.seen().is_empty());
    let other = stack
        .run(call_with("write", json!({ "path": "a.rs" })))
        .await;
    assert!(other.is_ok(), "the rule allows the rest");
}

#[tokio::test]
async fn without_an_approval_layer_the_call_is_blocked() {
    let space = LinkedWorkspace::new();
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(space.policy(ALLOW_ALL))
        .build()
        .expect("valid order");
    let outcome = stack
        .run(call_with("write", json!({ "path": ".envrc.d/.git" })))
        .await;
    assert_eq!(outcome.status(), Some(Status::Blocked));
    assert!(executor.seen().is_empty());
}

#[test]
fn a_mode_that_allows_edits_does_not_allow_these() {
    let space = LinkedWorkspace::new();
    let registry = Registry::new();
    let mut annotations = Annotations::default();
    annotations.side_effect = Some(SideEffect::WorkspaceWrite);
    let spec = ToolSpec::new("edit_file", "", Schema::any_object()).with_annotations(annotations);
    let native = ExecutorTag::Native;
    let added = registry.register_from(
        spec,
        native,
        SourceTrust::Trusted,
        echo(),
        OnExisting::Reject,
    );
    added.expect("registered");
    let view = plain_view(&registry);
    let auto_edit =
        space.policy("[[rules]]\neffect = \"allow\"\nside_effect = \"workspace_write\"");
    for (path, effect) in [
        ("src/lib.rs", PolicyEffect::Allow),
        (".git/config", PolicyEffect::Ask),
        ("toolgate.toml", PolicyEffect::Ask),
        ("docs/notes.md", PolicyEffect::Ask),
        (".claude/settings.json", PolicyEffect::Ask),
        ("skills/a/SKILL.md", PolicyEffect::Ask),
    ] {
        let call = Call::new(seed_for(&view, "edit_file", json!({ "path": path })));
        assert_eq!(auto_edit.judge(&call).effect, effect, "{path}");
    }
}
