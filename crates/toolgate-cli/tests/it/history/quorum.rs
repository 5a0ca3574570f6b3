//! A quorum needs distinct accounts, whatever names one account gives itself.

use std::process::Command;

use serde_json::json;
use toolgate::{
    Decision, Gate,
    approval::{ApprovalRequestRef, ApproverIdentity, IdentitySource},
    gate::StateDir,
    layers::Approval,
    session::TurnRequest,
    stack::{Suspension, ToolRequest},
};

use super::HistoryPlace;
use crate::account_name;

/// Makes a call of another user that needs `needed` approvals, and returns the id of the request.
async fn request_quorum(place: &HistoryPlace, needed: u32, approvers: Option<&[&str]>) -> String {
    let home = StateDir::new(place.dir.path().join("home")).expect("absolute");
    let named = approvers.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    let gate = Gate::builder()
        .address(home.default_database())
        .state_dir(home)
        .workspace(place.work())
        .builtin_tools()
        .edit_layer::<Approval>(move |options| {
            options.quorum = Some(needed);
            options.approvers.clone_from(&named);
        })
        .open()
        .await
        .expect("opens");
    let write = json!({ "path": "a.txt", "content": "x" });
    let request = ToolRequest::from_json("", "write_file", write);
    let turn = TurnRequest::new(gate.view().expect("a view"), vec![request]).principal("eve");
    let dispatcher = gate.dispatcher(None).await.expect("opens");
    let report = dispatcher
        .open_turn(turn)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    match &report.results[0].waits_for {
        Some(Suspension::Decision(request)) => request.approval_id.to_string(),
        other => panic!("not asked: {other:?}"),
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_toolgate"))
}

#[tokio::test]
async fn one_account_makes_no_quorum_whatever_name_it_gives() {
    let place = HistoryPlace::new();
    let id = request_quorum(&place, 2, None).await;
    let first = place.ends(0, &["approvals", "approve", &id, "--by", "bob"]);
    assert!(
        first
            .out
            .contains("1 more approval is needed, from another account"),
        "{first:?}"
    );
    for by in ["carol", "bob", "dave", "Eve", "root"] {
        let again = place.ends(1, &["approvals", "approve", &id, "--by", by]);
        assert!(again.err.contains("(duplicate)"), "{by}: {again:?}");
    }
    for variable in ["USER", "LOGNAME", "TOOLGATE_USER", "SUDO_USER", "USERNAME"] {
        let mut command = program();
        command.env(variable, "carol");
        let again = place.run_in(command, &["approvals", "approve", &id]);
        assert_eq!(again.code, 1, "{variable}: {again:?}");
    }
    let shown = &place.json(&["approvals", "show", &id])[0];
    assert_eq!(shown["state"], "pending", "{shown}");
    let votes = shown["votes"].as_array().expect("a list");
    assert_eq!(votes.len(), 1, "{shown}");
    assert_eq!(votes[0]["by"], account_name().as_str());
    assert_eq!(votes[0]["claimed_as"], "bob");
    assert_eq!(votes[0]["established"]["how"], "local_account");
    assert_eq!(place.read("a.txt"), None);
}

#[tokio::test]
async fn a_claimed_name_is_on_no_list_of_approvers() {
    let place = HistoryPlace::new();
    let id = request_quorum(&place, 1, Some(&["bob", "carol"])).await;
    for by in ["bob", "carol", "BOB"] {
        for verb in ["approve", "deny"] {
            let said = place.ends(1, &["approvals", verb, &id, "--by", by]);
            assert!(
                said.err.contains("not among those that may decide"),
                "{said:?}"
            );
        }
    }
    assert_eq!(
        place.json(&["approvals", "show", &id])[0]["state"],
        "pending"
    );
}

#[tokio::test]
async fn an_account_of_a_namespace_of_its_own_does_not_count() {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user"]);
    let works = Command::new("unshare")
        .args(["--user", "--map-root-user", "true"])
        .status();
    if !works.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system has no user namespaces");
        return;
    }
    let place = HistoryPlace::new();
    let id = request_quorum(&place, 2, None).await;
    unshare.arg(env!("CARGO_BIN_EXE_toolgate"));
    let said = place.run_in(unshare, &["approvals", "approve", &id]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("(unverified_approver)"), "{said:?}");
    place.ends(0, &["approvals", "approve", &id]);
}

#[tokio::test]
async fn the_requester_cannot_approve_and_is_told_so() {
    let place = HistoryPlace::new();
    place.configure("[layers.approval]\nquorum = 1\n");
    let id = place.request_approval("a.txt");
    for by in ["bob", "carol", "mallory", "root", "Ann"] {
        let said = place.ends(1, &["approvals", "approve", &id, "--by", by]);
        assert!(
            said.err.contains("your account requested this call"),
            "{said:?}"
        );
    }
    for variable in ["USER", "LOGNAME", "TOOLGATE_USER"] {
        let mut command = program();
        command.env(variable, "mallory");
        let said = place.run_in(command, &["approvals", "approve", &id]);
        assert_eq!(said.code, 1, "{variable}: {said:?}");
    }
    place.ends(0, &["approvals", "deny", &id]);
}

#[test]
fn config_check_says_where_a_quorum_cannot_be_reached() {
    for (text, reachable) in [
        ("[layers.approval]\nquorum = 2\n", false),
        ("[layers.approval]\nquorum = 1\n", false),
        ("[layers.approval]\napprovers = ['ann']\n", false),
        (
            "[layers.approval]\nquorum = 2\napprovers = ['ann', 'bob', 'cid']\n",
            false,
        ),
        ("[layers.approval]\nreason = 'because'\n", true),
        ("", true),
    ] {
        let place = HistoryPlace::new();
        place.configure(text);
        let said = place.ends(0, &["config", "check"]);
        assert_eq!(
            said.err.contains("cannot be reached"),
            !reachable,
            "{text}: {said:?}"
        );
        let json = &place.json(&["config", "check"])[0];
        assert_eq!(json["unreachable_quorum"].is_null(), reachable, "{json}");
    }
}

#[tokio::test]
async fn the_first_of_two_votes_does_not_say_that_the_session_continues() {
    let place = HistoryPlace::new();
    let id = request_quorum(&place, 2, None).await;
    let first = place.ends(0, &["approvals", "approve", &id]);
    let voters = format!("approved so far by {}", account_name());
    assert!(
        first.out.contains("counted") && first.out.contains(&voters),
        "{first:?}"
    );
    assert!(!first.err.contains("next:"), "{first:?}");
    assert!(!first.err.contains("continues"), "{first:?}");
}

/// Lets an account of this name vote through the service, as a program that authenticates people does.
async fn vote_as(
    place: &HistoryPlace,
    id: &str,
    name: &str,
    decision: fn(ApproverIdentity) -> Decision,
) {
    let home = StateDir::new(place.dir.path().join("home")).expect("absolute");
    let gate = Gate::builder()
        .address(home.default_database())
        .state_dir(home)
        .workspace(place.work())
        .open()
        .await
        .expect("opens");
    let id = id.parse().expect("an id");
    let service = gate.approvals();
    let found = service.find_approval(id).await.expect("loads");
    let request = found.and_then(|found| found.request).expect("is stored");
    let by = ApproverIdentity::new(name, IdentitySource::AuthenticatedToken);
    let on = ApprovalRequestRef::from(&*request);
    service.decide(on, decision(by)).await.expect("counts");
}

#[tokio::test]
async fn every_voter_is_named_wherever_the_decision_is_shown() {
    let place = HistoryPlace::new();
    let id = request_quorum(&place, 3, None).await;
    vote_as(&place, &id, "bob", Decision::approve).await;
    let second = place.ends(0, &["approvals", "approve", &id]);
    let me = account_name();
    for name in ["bob", &me] {
        assert!(second.out.contains(name), "{name}: {second:?}");
    }
    let pending = place.ends(0, &["approvals", "show", &id]).out;
    let line = pending
        .lines()
        .find(|line| line.contains("approved so far by"));
    assert!(
        line.is_some_and(|line| line.contains("bob") && line.contains(&me)),
        "{pending}"
    );
    vote_as(&place, &id, "carol", Decision::approve).await;
    let session = place.json(&["sessions", "list"])[0]["session"].clone();
    let session = session.as_str().expect("an id").to_owned();
    place.ends(0, &["run", "--resume", &session]);
    for args in [["approvals", "show", &id], ["sessions", "show", &session]] {
        let shown = place.ends(0, &args).out;
        let line = shown
            .lines()
            .find(|line| line.contains("approved by carol"));
        assert!(
            line.is_some_and(|line| line.contains("bob") && line.contains(&me)),
            "{args:?}: {shown}"
        );
    }
    let decided = place.json(&["approvals", "show", &id])[0]["decided_by"].clone();
    assert_eq!(decided.as_array().map(Vec::len), Some(3), "{decided}");
    assert_eq!(decided[0]["by"], "carol");
}

#[tokio::test]
async fn a_denial_names_the_approver_and_those_who_approved_before() {
    let place = HistoryPlace::new();
    let id = request_quorum(&place, 2, None).await;
    vote_as(&place, &id, "bob", Decision::approve).await;
    vote_as(&place, &id, "carol", |by| Decision::deny(by, None)).await;
    let shown = place.ends(0, &["approvals", "show", &id]).out;
    assert!(
        shown.contains("denied by carol; approved before by bob"),
        "{shown}"
    );
}
