//! How a policy judges an argument that is a patch, or only has the name of one.

use serde_json::{Value, json};
use toolgate_layers::{Configurable, PathBase, Policy, PolicyEffect, PolicyOptions, Resources};
use toolgate_testkit::call_with;

fn effect_of(policy: &str, arguments: &Value) -> PolicyEffect {
    let options: PolicyOptions = toml::from_str(policy).expect("a valid policy");
    let resources = Resources::new().with(PathBase::new("/nowhere"));
    let policy = Policy::configure(options, &resources).expect("a valid policy");
    policy.judge(&call_with("apply", arguments.clone())).effect
}

const ALLOW_ALL: &str = "default = \"allow\"";
const DENY_PROD: &str =
    "default = \"allow\"\n[[rules]]\neffect = \"deny\"\npath = [\"infra/prod/**\", \"Makefile\"]";
const ALLOW_SRC: &str = "default = \"ask\"\n[[rules]]\neffect = \"allow\"\npath = \"src/**\"";

#[test]
fn a_path_in_an_argument_called_patch_is_judged_like_any_path() {
    for arguments in [
        json!({ "patch": ".env" }),
        json!({ "patch": " .env" }),
        json!({ "diff": "/etc/shadow" }),
        json!({ "diff": "file:///etc/shadow" }),
        json!({ "patches": ["src/a", [".env"]] }),
        json!({ "patch": { "file": ".env" } }),
        json!({ "patch": "id_rsa" }),
    ] {
        assert_eq!(
            effect_of(ALLOW_ALL, &arguments),
            PolicyEffect::Deny,
            "{arguments}"
        );
    }
    for path in ["infra/prod/x", "Makefile", "infra/dev/../prod/x"] {
        let arguments = json!({ "patch": path });
        assert_eq!(
            effect_of(DENY_PROD, &arguments),
            PolicyEffect::Deny,
            "{path}"
        );
    }
    let inside = json!({ "patch": "src/a" });
    assert_eq!(effect_of(ALLOW_SRC, &inside), PolicyEffect::Ask);
    let words = json!({ "patch": "words" });
    assert_eq!(effect_of(DENY_PROD, &words), PolicyEffect::Allow);
}

#[test]
fn a_patch_that_is_not_valid_hides_no_file_and_nothing_allows_it() {
    let hunk = "@@ -1 +1 @@\n-a\n+b\n";
    for patch in [
        "--- a/F\n+++ b/F\n@@ -1,9 +1,9 @@\n-a\n+b\n".to_owned(),
        format!("--- F.orig\n+++ F\n{hunk}"),
        format!("--- F\n+++ /dev/other\n{hunk}"),
        format!("--- a/src/x\n+++ b/src/x\n{hunk}--- a/F\n"),
        format!("diff --git a/F b/F\n--- a/src/x\n+++ b/src/x\n{hunk}"),
        format!(
            "diff --git a/src/x b/src/x\nrename from src/x\nrename to F\n--- a/src/x\n+++ b/src/x\n{hunk}"
        ),
        "diff --git a/src/x b/F\ncopy from src/x\ncopy to F\n".to_owned(),
        "diff --git a/F b/F\nindex 1..2\nGIT binary patch\n".to_owned(),
        "*** Begin Patch\n*** Add File: src/x\n+y\n *** Delete File: F\n".to_owned(),
        format!("*** Begin Patch\n*** Update File: src/x\n--- a/F\n+++ b/F\n{hunk}"),
        "*** F\t2026\n--- F\t2026\n***************\n".to_owned(),
    ] {
        let touching = |path: &str| json!({ "patch": patch.replace('F', path) });
        for path in ["infra/prod/x", "Makefile"] {
            assert_eq!(
                effect_of(DENY_PROD, &touching(path)),
                PolicyEffect::Deny,
                "{patch}"
            );
        }
        assert_eq!(
            effect_of(ALLOW_ALL, &touching(".env")),
            PolicyEffect::Deny,
            "{patch}"
        );
        assert_eq!(
            effect_of(ALLOW_SRC, &touching("src/y")),
            PolicyEffect::Ask,
            "{patch}"
        );
    }
}

#[test]
fn a_valid_patch_of_either_format_is_allowed_by_its_files() {
    for patch in [
        "--- a/src/x\n+++ b/src/x\n@@ -1 +1 @@\n-a\n+b\n",
        "diff --git a/src/x b/src/y\nrename from src/x\nrename to src/y\n",
        "*** Begin Patch\n*** Update File: src/x\n*** Move to: src/y\n@@\n-a\n+b\n*** End Patch\n",
    ] {
        let inside = json!({ "patch": patch });
        assert_eq!(
            effect_of(ALLOW_SRC, &inside),
            PolicyEffect::Allow,
            "{patch}"
        );
        let outside = json!({ "patch": patch.replace("src/x", "lib/x") });
        assert_eq!(effect_of(ALLOW_SRC, &outside), PolicyEffect::Ask, "{patch}");
    }
}

#[test]
fn comments_that_look_like_a_header_are_not_names_of_their_words() {
    let lua = "--- Loads the settings. Never reads .env or Makefile.\n--- @param path string\n";
    for policy in [ALLOW_ALL, DENY_PROD] {
        let arguments = json!({ "content": lua });
        assert_eq!(effect_of(policy, &arguments), PolicyEffect::Allow);
    }
}
