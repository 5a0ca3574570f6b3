//! Pending approvals are listed and shown, decided once, and rules are in effect until they are
//! revoked.

use crate::history::HistoryPlace;

#[test]
fn a_pending_approval_is_listed_shown_and_decided_once() {
    let place = HistoryPlace::new();
    assert!(
        place
            .ends(0, &["approvals", "list"])
            .err
            .contains("no approval is pending")
    );
    let id = place.request_approval("a.txt");
    let rows = place.json(&["approvals", "list"]);
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0]["approval_id"].as_str(), rows[0]["state"].as_str()),
        (Some(&*id), Some("pending"))
    );
    let short = &id[id.len() - 8..];
    let listed = place.ends(0, &["approvals", "list"]).out;
    assert!(
        listed.contains(short) && listed.contains("write_file") && listed.contains("pending"),
        "{listed}"
    );
    let shown = place.ends(0, &["approvals", "show", short]).out;
    assert!(
        shown.contains("+new")
            && shown.contains("a.txt")
            && shown.contains("writes in the workspace"),
        "{shown}"
    );
    let approved = place.ends(0, &["approvals", "approve", short]);
    assert!(
        approved.out.contains("approved write_file") && approved.err.contains("--resume"),
        "{approved:?}"
    );
    let again = place.ends(1, &["approvals", "deny", short]);
    assert!(again.err.contains("(duplicate)"), "{again:?}");
    assert!(place.json(&["approvals", "list"]).is_empty());
    assert_eq!(
        place.json(&["approvals", "list", "--all"])[0]["state"],
        "answered"
    );
    assert_eq!(place.json(&["sessions", "list"])[0]["state"], "decided");
}

#[test]
fn a_denial_keeps_its_reason_and_an_edit_its_arguments() {
    let place = HistoryPlace::new();
    let one = place.request_approval("a.txt");
    let two = place.request_approval("b.txt");
    let bad = place.ends(2, &["approvals", "approve", &one, "--edit", "{"]);
    assert!(bad.err.contains("hint:"), "{bad:?}");
    place.ends(2, &["approvals", "approve", &one, &two, "--edit", "{}"]);
    place.ends(
        0,
        &[
            "approvals",
            "approve",
            &one,
            "--edit",
            r#"{"path":"c.txt","content":"x"}"#,
            "--by",
            "ben",
        ],
    );
    let denied = place.json(&["approvals", "deny", &two, "--reason", "not on Friday"]);
    assert_eq!(denied[0]["taken"], "decided");
    let late = place.ends(1, &["--json", "approvals", "approve", &two]);
    assert!(late.out.contains("already_denied"), "{late:?}");
}

#[test]
fn all_pending_approvals_are_decided_only_after_confirmation() {
    let place = HistoryPlace::new();
    place.request_approval("a.txt");
    place.request_approval("b.txt");
    let asked = place.ends(2, &["approvals", "approve", "--all"]);
    assert!(asked.err.contains("--yes"), "{asked:?}");
    assert_eq!(place.json(&["approvals", "list"]).len(), 2);
    place.ends(0, &["approvals", "deny", "--all", "--yes"]);
    assert!(place.json(&["approvals", "list"]).is_empty());
}

#[test]
fn an_unknown_approval_is_an_error_with_a_hint() {
    let place = HistoryPlace::new();
    for text in ["abcdef12", "approval_nonsense", "x"] {
        let said = place.ends(2, &["approvals", "show", text]);
        assert!(
            said.err.contains("there is no approval") && said.err.contains("hint:"),
            "{said:?}"
        );
    }
    place.ends(2, &["approvals", "approve"]);
}

#[test]
fn a_rule_is_previewed_stored_and_revoked() {
    let place = HistoryPlace::new();
    let write = [
        "tools",
        "call",
        "write_file",
        "path=docs/a.txt",
        "content=x",
    ];
    place.ends(3, &write);
    place.request_approval("src.txt");
    let narrow = ["write_file", "--arg", "path=docs/*"];
    let preview = place.ends(
        0,
        &[&["approvals", "rules", "preview"][..], &narrow].concat(),
    );
    assert!(
        preview.out.contains("it would have matched no past call"),
        "such calls have an argument that the rule does not name: {preview:?}"
    );
    let rule = [&narrow[..], &["--any", "content"]].concat();
    let preview = place
        .ends(0, &[&["approvals", "rules", "preview"][..], &rule].concat())
        .out;
    assert!(
        preview.contains("it would have matched these past calls (1)"),
        "{preview}"
    );
    place.ends(2, &[&["approvals", "rules", "add"][..], &rule].concat());
    assert!(
        place.json(&["approvals", "rules", "list"]).is_empty(),
        "it was not confirmed"
    );
    place.ends(
        0,
        &[
            &[
                "approvals",
                "rules",
                "add",
                "--yes",
                "--id",
                "docs",
                "--for",
                "7d",
            ][..],
            &rule,
        ]
        .concat(),
    );
    let kept = place.json(&["approvals", "rules", "list"]);
    assert_eq!(
        (kept[0]["id"].as_str(), kept[0]["owner"].as_str()),
        (Some("docs"), Some(&*crate::account_name()))
    );
    place.ends(0, &write);
    place.ends(
        3,
        &["tools", "call", "write_file", "path=other.txt", "content=x"],
    );
    place.ends(0, &["approvals", "rules", "revoke", "docs"]);
    place.ends(
        3,
        &[
            "tools",
            "call",
            "write_file",
            "path=docs/b.txt",
            "content=x",
        ],
    );
    let gone = place.ends(1, &["approvals", "rules", "revoke", "docs"]);
    assert!(
        gone.err.contains("there is no rule docs") && gone.err.contains("hint:"),
        "{gone:?}"
    );
}

#[test]
fn a_rule_that_is_too_wide_or_malformed_is_rejected() {
    let place = HistoryPlace::new();
    for (args, problem) in [
        (
            &["write_file", "--scope", "everywhere"][..],
            "needs more than a tool name",
        ),
        (
            &["write_file", "--arg", "docs"][..],
            "does not name an argument",
        ),
        (&["write_file", "--scope", "moon"][..], "is not a scope"),
    ] {
        let said = place.run(&[&["approvals", "rules", "add", "--yes"][..], args].concat());
        assert!(said.code != 0 && said.err.contains(problem), "{said:?}");
    }
    place.ends(
        2,
        &["approvals", "rules", "add", "write_file", "--for", "soon"],
    );
}

#[test]
fn a_part_of_an_id_that_names_several_approvals_is_an_error_with_the_candidates() {
    let place = HistoryPlace::new();
    let ids = [
        place.request_approval("a.txt"),
        place.request_approval("b.txt"),
    ];
    let calls = ids.each_ref().map(|id| id.trim_start_matches("approval_"));
    // Ids begin with the time.
    let part = &calls[0][..4];
    assert!(calls[1].starts_with(part), "{calls:?}");
    for command in ["show", "approve", "deny"] {
        let said = place.ends(2, &["approvals", command, part]);
        assert!(said.err.contains("names 2 approvals"), "{said:?}");
        assert!(calls.iter().all(|id| said.err.contains(id)), "{said:?}");
    }
    assert_eq!(place.json(&["approvals", "list"]).len(), 2, "still pending");
}

#[test]
fn the_reason_that_the_model_stated_is_shown_to_the_approver() {
    let place = HistoryPlace::new();
    place.configure("[layers.require_reason]\n");
    let written = [
        "tools",
        "call",
        "write_file",
        "path=a.txt",
        "content=x",
        "reason=to keep the notes of the meeting",
    ];
    place.ends(3, &written);
    let id = place.json(&["approvals", "list"])[0]["approval_id"].clone();
    let shown = place.ends(0, &["approvals", "show", id.as_str().expect("an id")]);
    assert!(
        shown.out.contains("to keep the notes of the meeting"),
        "{shown:?}"
    );
}
