//! A directory walk shows nothing that `read_file` would not.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use toolgate::Status;

use crate::access::{JudgedSpace, shown_text};

/// The name and the content of everything that a test hides.
const HIDDEN: &str = "canary";

fn space() -> JudgedSpace {
    JudgedSpace::new(&[
        ("open.txt", "needle in the open\n"),
        ("src/open.rs", "// needle\n"),
        ("private/canary.txt", "needle canary\n"),
        ("private/deep/canary.md", "needle canary\n"),
    ])
}

/// Returns the calls that walk the whole workspace, and the number of entries they may visit.
fn walks() -> [(&'static str, Value); 6] {
    [
        ("list_dir", json!({ "depth": 9 })),
        ("list_dir", json!({ "depth": 9, "hidden": true })),
        ("find_files", json!({ "glob": "**/*" })),
        ("find_files", json!({ "glob": "*.{txt,md,rs}" })),
        ("search_text", json!({ "pattern": "needle" })),
        (
            "search_text",
            json!({ "pattern": "needle", "glob": "*.*", "context": 3 }),
        ),
    ]
}

/// Checks that no walk shows a hidden name or text, that each still works, and that the ones that
/// left something out say so.
async fn assert_hidden(space: &JudgedSpace, policy: &str, note: &str) {
    for (tool, arguments) in walks() {
        let outcome = space.run(policy, tool, arguments.clone()).await;
        let shown = shown_text(&outcome);
        assert_eq!(outcome.status, Status::Ok, "{tool}: {shown}");
        assert!(
            !shown.contains(HIDDEN),
            "{policy}\n{tool} {arguments}: {shown}"
        );
        assert!(
            shown.contains("open"),
            "{policy}\n{tool} {arguments}: {shown}"
        );
        assert!(
            shown.contains(note),
            "{policy}\n{tool} {arguments}: {shown}"
        );
    }
}

#[tokio::test]
async fn a_walk_shows_no_entry_that_a_rule_denies() {
    let space = space();
    for rule in [
        "path = \"private/**\"",
        "path = \"private\"",
        "path = \"**/canary.*\"",
        "path = \"**/CANARY*\"",
        "path = \"canary.*\"",
        "tool = \"read_file\"\npath = \"private/**\"",
        "tool = [\"list_dir\", \"find_files\", \"search_text\"]\npath = \"private/**\"",
        "tool = \"read_*\"\narguments.path.matches = { regex = \"(?s).*canary.*\" }",
        "kind = \"read\"\npath = [\"private/canary.txt\", \"private/deep\"]",
    ] {
        let policy = format!("[[rules]]\neffect = \"deny\"\n{rule}");
        assert_hidden(&space, &policy, "not shown: not allowed by the policy]").await;
    }
    let absolute = space
        .root()
        .canonicalize()
        .expect("it exists")
        .join("private/**");
    let policy = format!(
        "[[rules]]\neffect = \"deny\"\npath = {:?}",
        absolute.display().to_string()
    );
    assert_hidden(&space, &policy, "not shown: not allowed by the policy]").await;
}

#[tokio::test]
async fn a_walk_leaves_out_what_needs_approval_and_counts_it() {
    let space = space();
    for rule in [
        "path = \"private/**\"",
        "path = \"private\"",
        "path = \"canary.*\"",
        "tool = \"read_file\"\npath = \"private/**\"",
        "tool = \"*\"\npath = \"**/canary.*\"",
        "side_effect = \"none\"\npath = \"private/**\"",
    ] {
        let policy = format!("[[rules]]\neffect = \"ask\"\n{rule}");
        assert_hidden(&space, &policy, "not shown: need approval]").await;
    }
    let outcome = space
        .run(
            "[[rules]]\neffect = \"ask\"\npath = \"private\"\n[[rules]]\neffect = \"deny\"\npath = \"*.rs\"",
            "list_dir",
            json!({ "depth": 3 }),
        )
        .await;
    assert_eq!(
        outcome.value["needs_approval"], 1,
        "the directory is one entry"
    );
    assert_eq!(outcome.value["denied"], 1);
}

#[tokio::test]
async fn a_walk_shows_no_file_that_holds_secrets() {
    for name in [
        "id_rsa",
        "keys/id_ed25519",
        "canary-secrets/secrets.yaml",
        "deploy/canary.pem",
        "canary.key",
        ".env",
        ".ssh/config",
        "config/canary.env",
        "credentials.json",
    ] {
        let space = JudgedSpace::new(&[("open.txt", "needle\n"), (name, "needle canary\n")]);
        for (tool, arguments) in walks() {
            let outcome = space.run("", tool, arguments.clone()).await;
            let shown = shown_text(&outcome).replace("canary-secrets", "");
            assert!(
                !shown.contains(HIDDEN),
                "{name} {tool} {arguments}: {shown}"
            );
            let file = name.rsplit('/').next().expect("a name");
            assert!(!shown.contains(file), "{name} {tool} {arguments}: {shown}");
        }
        let open = space
            .run(
                "secrets_files = false",
                "find_files",
                json!({ "glob": "*" }),
            )
            .await;
        assert_eq!(
            shown_text(&open).contains(name),
            !name.starts_with('.'),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_link_is_judged_by_where_it_leads() {
    let space = space();
    let root = space.root();
    symlink(root.join("private/canary.txt"), root.join("link-a")).expect("linked");
    symlink("private", root.join("link-b")).expect("linked");
    symlink("link-b/deep", root.join("link-c")).expect("linked");
    symlink("../private/canary.txt", root.join("src/link-d")).expect("linked");
    symlink("link-a", root.join("link-e")).expect("linked");
    let policy = "[[rules]]\neffect = \"deny\"\ntool = \"read_file\"\npath = \"private/**\"";
    for (tool, arguments) in walks() {
        let shown = shown_text(&space.run(policy, tool, arguments).await);
        assert!(!shown.contains("link-"), "{tool}: {shown}");
    }
    for path in [
        "link-a",
        "link-e",
        "src/link-d",
        "private/canary.txt",
        "./private/../link-a",
    ] {
        let arguments = json!({ "pattern": "needle", "path": path });
        let outcome = space.run(policy, "search_text", arguments).await;
        let shown = shown_text(&outcome);
        assert!(
            outcome.status != Status::Ok && !shown.contains("needle canary"),
            "{path}: {shown}"
        );
    }
    for path in ["link-b", "link-c", "private", "private/deep"] {
        for (tool, mut arguments) in walks() {
            arguments["path"] = json!(path);
            let shown = shown_text(&space.run(policy, tool, arguments).await);
            assert!(!shown.contains(HIDDEN), "{path} {tool}: {shown}");
        }
    }
}

#[tokio::test]
async fn an_approved_walk_shows_what_was_approved_and_nothing_else() {
    let space = space();
    space.write_file("other/canary.txt", "needle canary\n");
    let policy = "default = \"ask\"\n[[rules]]\neffect = \"ask\"\npath = \"private/**\"\n\
         [[rules]]\neffect = \"ask\"\npath = \"other/**\"\n[[rules]]\neffect = \"deny\"\npath = \"private/deep\"";
    let approved = |tool: &'static str, arguments| space.run_approved(policy, tool, arguments);
    let listed = shown_text(&approved("list_dir", json!({ "path": "private", "depth": 5 })).await);
    assert!(
        listed.contains("private/canary.txt") && !listed.contains("canary.md"),
        "{listed}"
    );
    let found = shown_text(
        &approved(
            "search_text",
            json!({ "path": "private", "pattern": "ne.dle" }),
        )
        .await,
    );
    assert!(
        found.contains("needle canary") && !found.contains("canary.md"),
        "{found}"
    );
    // The approver was asked about the whole workspace, or about a pattern, not about these paths.
    for arguments in [
        json!({ "pattern": "needle" }),
        json!({ "pattern": "private/x|needle" }),
        json!({ "pattern": "needle", "path": "." }),
        json!({ "pattern": "needle", "glob": "{private,other,src}/**" }),
        json!({ "pattern": "needle", "path": "src/.." }),
    ] {
        let found = shown_text(&approved("search_text", arguments.clone()).await);
        assert!(
            found.contains("open") && !found.contains(HIDDEN),
            "{arguments}: {found}"
        );
    }
}

#[tokio::test]
async fn under_a_default_that_denies_only_files_that_may_be_read_are_searched() {
    let space = space();
    let policy = "default = \"deny\"\n[[rules]]\neffect = \"allow\"\ntool = [\"list_dir\", \"find_files\", \"search_text\"]\n\
         [[rules]]\neffect = \"allow\"\ntool = \"read_file\"\npath = [\"src/**\", \"*.txt\"]";
    let found = shown_text(
        &space
            .run(policy, "search_text", json!({ "pattern": "needle" }))
            .await,
    );
    assert!(
        found.contains("src/open.rs") && found.contains("open.txt"),
        "{found}"
    );
    assert!(!found.contains(HIDDEN), "{found}");
    let ask = "[[rules]]\neffect = \"ask\"\ntool = \"read_file\"";
    let listed = shown_text(&space.run(ask, "list_dir", json!({ "depth": 4 })).await);
    assert!(
        listed.contains("private/canary.txt"),
        "to list is not to read: {listed}"
    );
    let found = shown_text(
        &space
            .run(ask, "search_text", json!({ "pattern": "needle" }))
            .await,
    );
    assert!(
        !found.contains("needle canary") && found.contains("need approval"),
        "{found}"
    );
}

#[tokio::test]
async fn no_message_names_or_quotes_a_hidden_file() {
    let space = space();
    space.write_file("canary.yaml", "token: needle canary\n");
    let policy = "default = \"allow\"\n[[rules]]\neffect = \"deny\"\ntool = \"read_file\"\npath = [\"canary.yaml\", \"private/**\"]";
    for (tool, arguments) in [
        ("read_file", json!({ "path": "canari.yaml" })),
        ("read_file", json!({ "path": "src/canary.yaml" })),
        ("read_file", json!({ "path": "canary.yml" })),
        ("list_dir", json!({ "path": "canary.yam" })),
        (
            "search_text",
            json!({ "pattern": "x", "path": "canary.yamls" }),
        ),
        (
            "edit_file",
            json!({ "path": "canary.yanl", "edits": [{ "old": "a", "new": "b" }] }),
        ),
    ] {
        let given = arguments["path"].as_str().expect("a path").to_owned();
        let shown = shown_text(&space.run(policy, tool, arguments).await).replace(&given, "");
        assert!(!shown.contains("canary.yaml"), "{tool} {given}: {shown}");
    }
    let allowed = shown_text(
        &space
            .run("", "read_file", json!({ "path": "canary.yml" }))
            .await,
    );
    assert!(allowed.contains("did you mean canary.yaml"), "{allowed}");
    let edits = json!([{ "old": "tokem: needle", "new": "x" }]);
    let patch = "--- a/canary.yaml\n+++ b/canary.yaml\n@@ -1 +1 @@\n-other\n+x\n";
    for (tool, arguments) in [
        (
            "edit_file",
            json!({ "path": "canary.yaml", "edits": edits }),
        ),
        (
            "edit_file",
            json!({ "path": "private/canary.txt", "edits": [{ "old": "NEEDLE", "new": "x" }] }),
        ),
        (
            "edit_file",
            json!({ "path": "private/canary.txt", "edits": [{ "old": "needle  canary", "new": "x" }] }),
        ),
        ("apply_patch", json!({ "patch": patch })),
        (
            "apply_patch",
            json!({ "patch": patch.replace("-other", "-token") }),
        ),
    ] {
        let outcome = space.run(policy, tool, arguments.clone()).await;
        let shown = shown_text(&outcome);
        assert!(
            outcome.status != Status::Ok && !shown.contains("needle canary"),
            "{arguments}: {shown}"
        );
        assert!(shown.contains("may not be shown"), "{arguments}: {shown}");
    }
}

#[tokio::test]
async fn without_a_policy_a_walk_shows_everything() {
    let space = space();
    let workspace = toolgate_tools::Workspace::open(space.root()).expect("a workspace");
    let registry = toolgate::tool::Registry::new();
    registry
        .register(toolgate_tools::ListDir::new(workspace))
        .expect("a free name");
    let stack = toolgate::stack::Stack::over(registry)
        .build()
        .expect("in order");
    let arguments = toolgate::Arguments::parse(r#"{"depth":3}"#).expect("an object");
    let outcome = stack
        .run(toolgate::stack::Call::detached("list_dir", arguments))
        .await;
    let shown = shown_text(outcome.settled().expect("settled"));
    assert!(
        shown.contains("private/canary.txt") && !shown.contains("not shown"),
        "{shown}"
    );
}
