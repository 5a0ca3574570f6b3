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
        json!({ "command": "sed -i s/a/b/ AGENTS.md" }),
        json!({ "command": "sed -n 1p AGENTS.md -i" }),
        json!({ "command": "sed -n 'w AGENTS.md' x" }),
        json!({ "command": "sed -n '1w AGENTS.md' AGENTS.md" }),
        json!({ "command": "sed -e 1p -e 'w x' AGENTS.md" }),
        json!({ "command": "sed -f x AGENTS.md" }),
        json!({ "command": "sed --in-place=x 1p AGENTS.md" }),
        json!({ "command": "sed -n 1p AGENTS.md > .envrc" }),
        json!({ "command": "find .git -delete" }),
        json!({ "command": "find .git -name config -exec rm '{}' +" }),
        json!({ "command": "find . -fprint AGENTS.md" }),
        json!({ "command": "find . -fls .envrc" }),
        json!({ "command": "find .git -ok rm '{}' ';'" }),
        json!({ "command": "git diff --output=AGENTS.md" }),
        json!({ "command": "git diff --outp AGENTS.md" }),
        json!({ "command": "git log -p --output AGENTS.md" }),
        json!({ "command": "git -c diff.external=x diff AGENTS.md" }),
        json!({ "command": "git diff > AGENTS.md" }),
        json!({ "command": "git show HEAD:x | tee AGENTS.md" }),
        json!({ "command": "git checkout AGENTS.md" }),
        json!({ "command": "git restore --source=x AGENTS.md" }),
        json!({ "command": "git mv x AGENTS.md" }),
        json!({ "command": "git commit -m x; cp y AGENTS.md" }),
        json!({ "command": "echo x | xargs rm AGENTS.md" }),
        json!({ "command": "cat AGENTS.md > .envrc" }),
        json!({ "command": "du -sh .git; rm -r .git" }),
        json!({ "path": "a", "target": "AGENTS.md" }),
        json!({ "content": ".github/workflows/ci.yml" }),
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
        json!({ "command": "git diff AGENTS.md" }),
        json!({ "command": "git diff --stat -- AGENTS.md .github" }),
        json!({ "command": "git log --oneline -5 -- .github" }),
        json!({ "command": "git --no-pager show HEAD -- AGENTS.md" }),
        json!({ "command": "git commit -m 'update AGENTS.md'" }),
        json!({ "command": "git add AGENTS.md && git commit -q -m 'Add AGENTS.md'" }),
        json!({ "command": "find . -not -path './.git/*'" }),
        json!({ "command": "find . -path ./.git -prune -o -type f -print" }),
        json!({ "command": "du -sh .git" }),
        json!({ "command": "sed -n 1,5p AGENTS.md" }),
        json!({ "command": "sed -n '$p' AGENTS.md | head -n 1" }),
        json!({ "path": "a", "content": ".github/workflows/ci.yml" }),
        json!({ "path": "a", "old_text": ".git/config", "new_text": ".github" }),
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
fn a_setting_of_git_that_acts_later_is_written_only_with_a_decision() {
    let space = LinkedWorkspace::new();
    for command in [
        "git config core.hooksPath ../hooks",
        "git config --global CORE.hookspath x",
        "git config set core.fsmonitor ./x",
        "git config --add include.path ../x",
        "git config includeIf.gitdir:~/x.path y",
        "git config core.sshCommand 'ssh -i x'",
        "git config core.editor x",
        "git config core.pager x",
        "git config pager.log x",
        "git config alias.st '!touch x'",
        "git config filter.lfs.smudge x",
        "git config url.https://evil.com/.insteadOf https://github.com/",
        "git config --edit",
        "git -C sub config core.hooksPath x",
        "sh -c 'git config core.hooksPath x'",
        "git config \"$KEY\" x",
        "git config core.hooks\"\"Path x",
        "K=core.hooksPath; git config $K x",
        "git clone -c core.hooksPath=x https://example.com/r",
        "git clone --config=core.fsmonitor=x r",
        "env A=b git config core.hooksPath x",
        "git config alias.st '-c core.fsmonitor=./x status'",
        "git config alias.st 'grep -O./x .'",
        "git config --rename-section x core",
        "git config rename-section x core",
        "git config c?re.fsmonitor ./x",
        "c=config; git $c core.pager x",
        "git $(echo config) core.pager x",
        "git config tar.x.command ./x",
        "git config sendemail.tocmd ./x",
        "git config protocol.ext.allow always",
    ] {
        let effect = space.effect(ALLOW_ALL, "run", json!({ "command": command }));
        assert_eq!(effect, PolicyEffect::Ask, "{command}");
    }
    for command in [
        "git config user.name Ann",
        "git config --get core.hooksPath",
        "git config core.hooksPath",
        "git config --global --list",
        "git config alias.co checkout",
        "git config pull.rebase true",
        "git status",
        "git clone https://example.com/r",
    ] {
        let effect = space.effect(ALLOW_ALL, "run", json!({ "command": command }));
        assert_eq!(effect, PolicyEffect::Allow, "{command}");
    }
}

#[test]
fn a_host_that_cannot_be_read_is_asked_about_under_a_rule_about_domains() {
    let space = LinkedWorkspace::new();
    let judge = |effect: &str, command: &str| {
        let rule = format!("[[rules]]\neffect = \"{effect}\"\ndomain = '*.evil.com'");
        let policy = format!("default = \"allow\"\n{rule}");
        space.effect(&policy, "run", json!({ "command": command }))
    };
    for command in [
        "curl $H",
        "curl \"$(cat u)\"",
        "wget -q https://${H}/x",
        "cat u | xargs curl $X",
        "$PROGRAM $H",
        "ssh `cat h`",
        "curl ev{i,o}l.com",
        "curl 'http://evi[l-l].com/'",
        "curl 'http://a.{e}vil.com'",
        "curl 'https://u:p@a.ev{il}.com:80/x'",
        "curl 'a.ev[i-i]l.com'",
        "curl http://a.evil[.-.]com/",
        "\"$X\" a",
    ] {
        for effect in ["deny", "ask"] {
            assert_ne!(
                judge(effect, command),
                PolicyEffect::Allow,
                "{effect}: {command}"
            );
        }
    }
    for command in [
        "curl example.com",
        "curl 'http://[::1]:80/x'",
        "curl -d '{\"a\": [1]}' example.com",
        "curl 'http://example.com/[1-3]'",
        "echo $HOME",
        "for f in *; do echo $f; done",
        "git log main..dev",
        "java com.example.Main",
    ] {
        assert_eq!(judge("deny", command), PolicyEffect::Allow, "{command}");
    }
    let all = "default = \"allow\"\n[[rules]]\neffect = \"deny\"\ndomain = '*'";
    for command in ["git log main..dev", "java com.example.Main"] {
        let effect = space.effect(all, "run", json!({ "command": command }));
        assert_eq!(effect, PolicyEffect::Allow, "{command}");
    }
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
