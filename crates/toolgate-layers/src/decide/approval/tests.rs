//! Tests of [`Approval`].

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use toolgate_core::{
    Arguments, CallSeed, Clock, Decision, HostExecutor, LayerExt, SettledOutcome, Stack, Status,
    Suspension,
};
use toolgate_testkit::{FakeExecutor, TestClock, echo, run_twice, seed};

use super::*;
use crate::{
    CallVerdict, Config, DryRun, Policy, PolicyOptions, default_stack, explain, testing::*,
};

/// A stack with one approval layer, and the state needed to answer it.
struct ApprovalHarness {
    stack: Stack,
    tool: FakeExecutor,
    clock: TestClock,
    seed: CallSeed,
}

impl ApprovalHarness {
    fn new(layer: Approval) -> Self {
        Self::over(|tool| Stack::over(tool).layer(layer).build().expect("valid order"))
    }

    /// Builds the stack that a configuration file describes.
    fn configured(text: &str, parts: &Resources) -> Self {
        let layers = Config::parse(text)
            .and_then(|config| default_stack(&config, parts))
            .expect(text);
        Self::over(|tool| {
            Stack::over(tool)
                .any_layers(layers)
                .build()
                .expect("valid order")
        })
    }

    fn over(stack: impl FnOnce(FakeExecutor) -> Stack) -> Self {
        let tool = FakeExecutor::new();
        let clock = TestClock::new();
        let seed = seed_at(&clock, "change", json!({ "n": 1 }));
        Self {
            stack: stack(tool.clone()),
            tool,
            clock,
            seed,
        }
    }

    /// Approves every request until the call settles; returns the layers that asked.
    async fn approve_all(&mut self) -> (Vec<String>, Outcome) {
        let mut asked = Vec::new();
        loop {
            let outcome = self.enter().await;
            let Some(Suspension::Decision(request)) = outcome.suspension() else {
                return (asked, outcome);
            };
            asked.push(request.asked_by.as_ref().expect("named").to_string());
            assert!(asked.len() < 10, "{asked:?}");
            self.seed.resumed.answers.push(ApprovalAnswer::for_request(
                request,
                Decision::approve("ann"),
            ));
            self.seed.generation += 1;
        }
    }

    async fn enter(&self) -> Outcome {
        self.stack.run(Call::new(self.seed.clone())).await
    }

    /// Runs the call until it requests approval.
    async fn expect_request(&self) -> ApprovalRequest {
        match self.enter().await {
            Outcome::Suspended(suspension) => match *suspension {
                Suspension::Decision(request) => request,
                Suspension::Result => panic!("it waits for an external result"),
            },
            Outcome::Settled(settled) => panic!("no approval was requested: {settled:?}"),
        }
    }

    /// Answers the pending request and runs the call again.
    async fn answer(&mut self, decision: Decision) -> Outcome {
        let request = self.expect_request().await;
        self.seed
            .resumed
            .answers
            .push(ApprovalAnswer::for_request(&request, decision));
        self.seed.generation += 1;
        self.enter().await
    }

    fn run_count(&self) -> usize {
        self.tool.seen().len()
    }
}

fn ask_always() -> Approval {
    Approval::when(|_| Some("because".to_owned()))
}

fn consent_of(outcome: &Outcome) -> (String, String) {
    let notes = outcome
        .settled()
        .expect("settled")
        .notes
        .fields()
        .expect("noted")
        .clone();
    let consent = notes.consent.expect("consent is noted");
    (consent.decision, consent.decided_by.to_string())
}

#[tokio::test]
async fn a_call_waits_and_runs_once_approved() {
    let mut gate = ApprovalHarness::new(ask_always());
    let request = gate.expect_request().await;
    assert_eq!(
        (request.reason.as_deref(), gate.run_count()),
        (Some("because"), 0)
    );
    assert_eq!(request.arguments.as_map().get("n"), Some(&json!(1)));
    let outcome = gate.answer(Decision::approve("ann")).await;
    assert!(outcome.is_ok());
    assert_eq!(
        (gate.run_count(), consent_of(&outcome)),
        (1, ("approved".to_owned(), "ann".to_owned()))
    );
}

#[tokio::test]
async fn a_denied_call_never_runs_and_the_model_reads_why() {
    for (reason, text) in [
        (Some("too risky"), "Tool execution denied: too risky"),
        (None, "Tool execution denied."),
    ] {
        let mut gate = ApprovalHarness::new(ask_always());
        let outcome = gate.answer(Decision::deny("bob", reason)).await;
        let settled = outcome.settled().expect("settled");
        assert_eq!(
            (settled.status, &*settled.model_text()),
            (Status::Denied, text)
        );
        assert_eq!(
            (gate.run_count(), consent_of(&outcome)),
            (0, ("denied".to_owned(), "bob".to_owned()))
        );
    }
}

#[tokio::test]
async fn edited_arguments_are_what_runs_even_if_they_would_not_have_been_asked_about() {
    let over = |call: &Call| {
        (call.arguments.get("n")?.as_u64()? > 0).then(|| "more than nothing".to_owned())
    };
    let mut gate = ApprovalHarness::new(Approval::when(over));
    let edited = Arguments::parse(r#"{"n":0}"#).expect("object");
    let outcome = gate
        .answer(Decision::approve_with_edits("ann", edited.clone()))
        .await;
    assert!(outcome.is_ok());
    assert_eq!(gate.tool.seen()[0].arguments, edited);
    assert_eq!(consent_of(&outcome).0, "approved");
}

#[tokio::test]
async fn an_answer_about_other_arguments_does_not_count() {
    let mut gate = ApprovalHarness::new(ask_always());
    let request = gate.expect_request().await;
    gate.seed.resumed.answers.push(ApprovalAnswer::for_request(
        &request,
        Decision::approve("ann"),
    ));
    let other = seed_at(&gate.clock, "change", json!({ "n": 2 }));
    gate.seed.admission = other.admission;
    gate.seed.generation = 1;
    assert_eq!(gate.expect_request().await.generation, 1);
    assert_eq!(gate.run_count(), 0);
}

#[tokio::test]
async fn tools_effects_and_a_function_select_the_calls_that_need_approval() {
    let options = |tools: Option<&str>, ask_from| ApprovalOptions {
        tools: tools.map(|tool| vec![tool.to_owned()]),
        ask_from,
        ..Default::default()
    };
    let asks = |layer: &Approval, tool| {
        layer
            .own_reason(&call_at(&TestClock::new(), tool, json!({})))
            .is_some()
    };
    for (layer, look, change) in [
        (
            Approval::new(options(Some("loo*"), None)).expect("valid options"),
            true,
            false,
        ),
        (
            Approval::new(options(None, Some(SideEffect::ReadOnly))).expect("valid options"),
            true,
            true,
        ),
        (
            Approval::new(options(None, Some(SideEffect::Network))).expect("valid options"),
            false,
            true,
        ),
        (
            Approval::new(options(None, None)).expect("valid options"),
            false,
            true,
        ),
        (Approval::from_effect(SideEffect::ProcessExec), false, true),
        (
            Approval::when(|call| (call.tool == "look").then(String::new)),
            true,
            false,
        ),
    ] {
        assert_eq!(
            (asks(&layer, "look"), asks(&layer, "change")),
            (look, change),
            "{layer:?}"
        );
    }
    let parts = Resources::new().with(AskWhen::new(|call| (call.tool == "look").then(String::new)));
    let plugged = Approval::configure(ApprovalOptions::default(), &parts).expect("valid options");
    assert_eq!(
        (asks(&plugged, "look"), asks(&plugged, "change")),
        (true, false),
        "only the program's rule applies"
    );
    let both = Approval::configure(options(Some("change"), None), &parts).expect("valid options");
    assert_eq!((asks(&both, "look"), asks(&both, "change")), (true, true));
}

#[tokio::test]
async fn a_tool_without_annotations_needs_approval() {
    let unknown = toolgate_testkit::call("mystery");
    assert!(
        Approval::new(ApprovalOptions::default())
            .expect("valid options")
            .own_reason(&unknown)
            .is_some()
    );
}

#[tokio::test]
async fn a_condition_that_panics_requests_approval() {
    let gate = ApprovalHarness::new(Approval::when(|_| panic!("hunter2")));
    let reason = gate.expect_request().await.reason.expect("a reason");
    assert!(reason.contains("could not be determined") && !reason.contains("hunter2"));
}

#[tokio::test]
async fn a_request_expires_and_a_late_approval_does_not_run_the_call() {
    let hour = Duration::from_secs(3600);
    let mut gate = ApprovalHarness::new(ask_always().expires_after(hour));
    let request = gate.expect_request().await;
    assert_eq!(request.expires_at, Some(gate.clock.now().plus(hour)));
    gate.clock.advance(hour - Duration::from_secs(1));
    assert_eq!(
        gate.expect_request().await.expires_at,
        request.expires_at,
        "a second request does not prolong it"
    );
    gate.seed.resumed.answers.push(ApprovalAnswer::for_request(
        &request,
        Decision::approve("ann"),
    ));
    gate.seed.generation = 1;
    gate.clock.advance(Duration::from_secs(1));
    let outcome = gate.enter().await;
    assert_eq!(
        (outcome.status(), gate.run_count()),
        (Some(Status::Expired), 0)
    );
    assert_eq!(
        consent_of(&outcome),
        ("expired".to_owned(), "nobody".to_owned())
    );
    assert!(
        outcome
            .settled()
            .expect("settled")
            .model_text()
            .contains("in time")
    );

    let gate = ApprovalHarness::new(ask_always().expires_after(hour));
    gate.expect_request().await;
    gate.clock.advance(hour);
    assert_eq!(
        gate.enter().await.status(),
        Some(Status::Expired),
        "there was no answer at all"
    );
}

#[tokio::test]
async fn an_approval_in_time_runs_and_one_of_unknown_age_is_requested_again() {
    let hour = Duration::from_secs(3600);
    let mut gate = ApprovalHarness::new(ask_always().expires_after(hour));
    gate.clock.advance(Duration::from_secs(60));
    assert!(gate.answer(Decision::approve("ann")).await.is_ok());

    let mut gate = ApprovalHarness::new(ask_always().expires_after(hour));
    let request = gate.expect_request().await;
    gate.seed.resumed.answers.push(ApprovalAnswer::for_request(
        &request,
        Decision::approve("ann"),
    ));
    gate.seed.generation = 1;
    gate.seed.env = toolgate_testkit::env_at(&gate.clock);
    gate.expect_request().await;
    assert_eq!(
        gate.run_count(),
        0,
        "the store has no record of the request"
    );
}

#[tokio::test]
async fn a_call_approved_in_time_does_not_expire_when_its_external_result_is_late() {
    let minute = Duration::from_secs(60);
    let mut gate = ApprovalHarness::over(|_| {
        Stack::over(HostExecutor)
            .layer(ask_always().expires_after(minute))
            .build()
            .expect("valid options")
    });
    let outcome = gate.answer(Decision::approve("ann")).await;
    assert!(matches!(outcome.suspension(), Some(Suspension::Result)));
    gate.clock.advance(minute * 10);
    let mut done = SettledOutcome::new(Status::Ok);
    done.value = toolgate_core::Json::new(json!("paid")).expect("shallow");
    gate.seed.resumed.results.push((1, Arc::new(done)));
    gate.seed.generation += 1;
    let known = gate.enter().await;
    let settled = known.settled().expect("settled");
    assert_eq!(
        (settled.status, &*settled.model_text()),
        (Status::Ok, "paid")
    );
    assert_eq!(consent_of(&known).0, "approved");
    gate.seed.env = toolgate_testkit::env_at(&gate.clock);
    assert!(
        gate.enter().await.is_ok(),
        "even if the time of the request is no longer known"
    );
}

#[tokio::test]
async fn an_approval_given_in_time_stays_valid_while_another_request_is_pending() {
    let owner = ask_always()
        .expires_after(Duration::from_secs(60))
        .named("owner");
    let mut gate = ApprovalHarness::over(|tool| {
        Stack::over(tool)
            .layer(owner)
            .layer(ask_always().named("security"))
            .build()
            .expect("valid order")
    });
    assert!(
        gate.answer(Decision::approve("ann"))
            .await
            .suspension()
            .is_some()
    );
    let request = gate.expect_request().await;
    gate.clock.advance(Duration::from_secs(600));
    gate.seed.resumed.answers.push(ApprovalAnswer::for_request(
        &request,
        Decision::approve("bob"),
    ));
    gate.seed.generation += 1;
    assert!(gate.enter().await.is_ok());
    assert_eq!(gate.run_count(), 1);
}

#[tokio::test]
async fn a_late_approval_stays_late() {
    let minute = Duration::from_secs(60);
    let counted = CallbackCounts::default();
    let mut gate = ApprovalHarness::new(counted.watch(ask_always().expires_after(minute)));
    let request = gate.expect_request().await;
    gate.clock.advance(minute);
    gate.seed.resumed.answers.push(ApprovalAnswer::for_request(
        &request,
        Decision::approve("ann"),
    ));
    gate.seed.generation += 1;
    for _ in 0..2 {
        assert_eq!(gate.enter().await.status(), Some(Status::Expired));
    }
    assert_eq!(
        (gate.run_count(), counted.counts()),
        (0, [1, 0, 0]),
        "the approval callback does not run"
    );
}

#[tokio::test]
async fn a_rehearsal_sees_the_layers_below_a_request_that_expires() {
    let asking = ask_always().expires_after(Duration::from_secs(60));
    let stack = Stack::over(echo())
        .layer(asking)
        .layer(DryRun::all())
        .build()
        .expect("valid order");
    let explanation = explain(&stack, seed("pay", json!({}))).await;
    assert_eq!(explanation.verdict, CallVerdict::Settles(Status::DryRun));
}

#[tokio::test]
async fn a_second_rule_is_added_to_the_first() {
    let never = || AskWhen::new(|_| None);
    ApprovalHarness::new(ask_always().or_when(never()))
        .expect_request()
        .await;
    ApprovalHarness::new(
        Approval::when(|_| None).or_when(AskWhen::new(|_| Some("because".into()))),
    )
    .expect_request()
    .await;
    ApprovalHarness::new(Approval::when(|_| panic!("no")).or_when(never()))
        .expect_request()
        .await;
}

#[tokio::test]
async fn one_policy_requirement_leads_to_one_approval_request() {
    let deploys = |name: &str| format!("[layers.{name}]\nuse = 'approval'\ntools = ['deploy*']\n");
    for (text, asks) in [
        ("[layers.approval]\n".to_owned(), "approval"),
        (deploys("a_deploys") + "[layers.approval]\n", "approval"),
        (deploys("z_deploys") + "[layers.approval]\n", "approval"),
        (
            deploys("z_deploys") + "[layers.approval]\ntools = ['pay']\n",
            "z_deploys",
        ),
        (
            "[layers.z_deploys]\nuse = 'approval'\non = ['deploy*']\n[layers.approval]\n"
                .to_owned(),
            "approval",
        ),
    ] {
        let mut gate = ApprovalHarness::configured(&text, &Resources::new());
        let (asked, outcome) = gate.approve_all().await;
        assert_eq!(
            (asked, outcome.is_ok(), gate.run_count()),
            (vec![asks.to_owned()], true, 1),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_policy_over_some_tools_does_not_suppress_requests_about_others() {
    for text in [
        "[layers.policy]\non = ['shell']\ndefault = 'allow'\n",
        "[layers.policy]\nenabled = false\n[layers.p2]\nuse = 'policy'\non = ['shell']\ndefault = 'allow'\n",
        "[layers.approval]\nreason = 'x'\n[layers.policy]\non = ['shell']\ndefault = 'allow'\n",
    ] {
        ApprovalHarness::configured(text, &Resources::new())
            .expect_request()
            .await;
    }
    let unrestricted =
        ApprovalHarness::configured("[layers.policy]\ndefault = 'allow'\n", &Resources::new());
    assert!(
        unrestricted.enter().await.is_ok(),
        "a policy that sees every call decides what needs approval"
    );
}

#[tokio::test]
async fn a_policy_that_asks_without_an_approval_layer_below_blocks_and_says_so() {
    let orders = [
        "[layers.approval]\nenabled = false\n",
        "[layers.approval]\non = ['pay']\n",
    ];
    for text in orders {
        let gate = ApprovalHarness::configured(text, &Resources::new());
        let outcome = gate.enter().await;
        assert_eq!(outcome.status(), Some(Status::Blocked), "{text}");
        let told = outcome
            .settled()
            .expect("settled")
            .model_text()
            .into_owned();
        assert_eq!(
            told,
            "approval is required, and no approval layer asked for it: \
             no rule allows this and the tool may change something"
        );
        let explanation = explain(&gate.stack, gate.seed.clone()).await;
        assert_eq!(
            (explanation.verdict, explanation.text),
            (CallVerdict::Settles(Status::Blocked), Some(told)),
            "{text}"
        );
        assert_eq!(gate.run_count(), 0);
    }
}

fn parse_policy(text: &str) -> Policy {
    Policy::new(toml::from_str::<PolicyOptions>(text).expect(text)).expect(text)
}

/// Runs calls through two policies and an approval layer that asks only where they require it.
fn nested_policies(outer: Policy, inner: Policy) -> ApprovalHarness {
    ApprovalHarness::over(|tool| {
        Stack::over(tool)
            .layer(outer)
            .layer(inner)
            .layer(Approval::when_required())
            .build()
            .expect("valid order")
    })
}

#[tokio::test]
async fn one_request_names_the_reasons_and_versions_of_all_policies() {
    let asks = |name: &str| {
        parse_policy(&format!(
            "default = 'allow'\n[[rules]]\nname = '{name}'\neffect = 'ask'\ntool = 'change'"
        ))
    };
    let combined = |versions: &[&str]| {
        toolgate_core::Digest::of_bytes(versions.join("\n").as_bytes()).to_string()
    };
    let mut gate = nested_policies(asks("a"), asks("b"));
    let request = gate.expect_request().await;
    assert_eq!(
        request.reason.as_deref(),
        Some("rule \"a\" asks; rule \"b\" asks")
    );
    assert_eq!(
        request.policy_version,
        Some(combined(&[asks("a").version(), asks("b").version()]))
    );
    let (asked, outcome) = gate.approve_all().await;
    assert_eq!((asked.len(), outcome.is_ok()), (1, true));

    let lenient = || parse_policy("default = 'allow'");
    let request = nested_policies(lenient(), asks("b")).expect_request().await;
    assert_eq!(request.reason.as_deref(), Some("rule \"b\" asks"));
    assert_eq!(
        request.policy_version,
        Some(combined(&[lenient().version(), asks("b").version()])),
        "an approval is bound to a policy that allowed the call, too"
    );
    let both = lenient().combine(&asks("b"));
    let one = ApprovalHarness::over(|tool| {
        Stack::over(tool)
            .layer(both.clone())
            .layer(Approval::when_required())
            .build()
            .expect("valid order")
    });
    assert_eq!(
        one.expect_request().await.policy_version.as_deref(),
        Some(both.version())
    );
}

#[tokio::test]
async fn a_call_that_a_policy_over_some_tools_allows_keeps_the_default_condition() {
    let restricted = "[layers.policy]\non = ['change']\ndefault = 'allow'\n";
    ApprovalHarness::configured(restricted, &Resources::new())
        .expect_request()
        .await;
    let both = format!("{restricted}[layers.wide]\nuse = 'policy'\ndefault = 'allow'\n");
    let gate = ApprovalHarness::configured(&both, &Resources::new());
    assert!(gate.enter().await.is_ok(), "one of them judges every call");
}

#[tokio::test]
async fn conditions_that_a_program_gives_stay_under_a_policy() {
    for own in [
        Approval::from_effect(SideEffect::WorkspaceWrite),
        Approval::new(ApprovalOptions::default()).expect("valid options"),
    ] {
        let gate = ApprovalHarness::over(|tool| {
            Stack::over(tool)
                .layer(parse_policy("default = 'allow'"))
                .layer(own)
                .build()
                .expect("valid order")
        });
        gate.expect_request().await;
    }
}

#[derive(Clone, Default)]
struct CallbackCounts([Arc<AtomicUsize>; 3]);

impl CallbackCounts {
    fn watch(&self, layer: Approval) -> Approval {
        let [requests, approved, denied] = self.0.clone();
        let add = |counter: &AtomicUsize| {
            counter.fetch_add(1, Ordering::SeqCst);
            std::future::ready(())
        };
        layer
            .on_request(move |_, _| add(&requests))
            .on_approved(move |_| add(&approved))
            .on_denied(move |_| add(&denied))
    }

    fn counts(&self) -> [usize; 3] {
        self.0.clone().map(|counter| counter.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn callbacks_fire_once_however_often_the_call_comes_back() {
    let counted = CallbackCounts::default();
    let mut gate = ApprovalHarness::new(counted.watch(ask_always()));
    gate.expect_request().await;
    gate.expect_request().await;
    assert_eq!(counted.counts(), [1, 0, 0]);
    let first = gate.answer(Decision::approve("ann")).await;
    gate.clock.advance(Duration::from_secs(5));
    let second = gate.enter().await;
    assert_eq!(counted.counts(), [1, 1, 0]);
    let decided_at = |outcome: &Outcome| {
        let notes = outcome
            .settled()
            .expect("settled")
            .notes
            .fields()
            .expect("noted")
            .clone();
        notes.consent.expect("noted").decided_at
    };
    assert_eq!(
        decided_at(&first),
        decided_at(&second),
        "the decision does not get younger"
    );

    let counted = CallbackCounts::default();
    let mut gate = ApprovalHarness::new(counted.watch(ask_always()));
    gate.answer(Decision::deny("ann", None)).await;
    gate.enter().await;
    assert_eq!(counted.counts(), [1, 0, 1]);
}

#[tokio::test]
async fn callbacks_fire_once_across_two_processes() {
    let counted = CallbackCounts::default();
    let mut one = ApprovalHarness::new(counted.watch(ask_always()));
    let mut other = ApprovalHarness::new(counted.watch(ask_always()));
    other.seed.env = one.seed.env.clone();
    let request = one.expect_request().await;
    other.expect_request().await;
    for gate in [&mut one, &mut other] {
        gate.seed.resumed.answers.push(ApprovalAnswer::for_request(
            &request,
            Decision::approve("ann"),
        ));
        gate.seed.generation = 1;
        assert!(gate.enter().await.is_ok());
    }
    assert_eq!(counted.counts(), [1, 1, 0]);
}

#[tokio::test]
async fn a_callback_that_panics_changes_nothing() {
    let layer = ask_always()
        .on_request(|_, _| async { panic!("no") })
        .on_approved(|_| async { panic!("no") });
    let mut gate = ApprovalHarness::new(layer.on_denied(|_| async { panic!("no") }));
    assert!(gate.answer(Decision::approve("ann")).await.is_ok());
}

#[tokio::test]
async fn a_rehearsal_requests_approval_without_callbacks_or_records() {
    let counted = CallbackCounts::default();
    let mut gate = ApprovalHarness::new(
        counted
            .watch(ask_always())
            .expires_after(Duration::from_secs(60)),
    );
    gate.seed.rehearsal = true;
    gate.expect_request().await;
    gate.clock.advance(Duration::from_secs(600));
    gate.expect_request().await;
    assert_eq!(counted.counts(), [0, 0, 0]);
}

#[tokio::test]
async fn a_call_without_a_reason_to_ask_runs_at_once() {
    let gate = ApprovalHarness::new(Approval::when(|_| None));
    assert!(gate.enter().await.is_ok());
    run_twice(Approval::when(|_| None), gate.seed.clone())
        .await
        .assert_replays();
    run_twice(ask_always(), gate.seed).await.assert_replays();
}

/// Parses a decision from JSON, if it is one.
fn parse_decision(word: &str) -> Option<Decision> {
    serde_json::from_value(json!({ "decision": word, "by": "ann" })).ok()
}

#[tokio::test]
async fn a_word_that_is_no_decision_never_runs_a_tool() {
    let words = [
        "", "Approve", "APPROVE", "approved", "approve ", " approve", "yes", "y", "ok", "true",
        "allow", "sure",
    ];
    for word in words {
        let mut gate = ApprovalHarness::new(ask_always());
        if let Some(decision) = parse_decision(word) {
            gate.answer(decision).await;
        }
        gate.expect_request().await;
        assert_eq!(gate.run_count(), 0, "{word:?}");
    }
    let mut gate = ApprovalHarness::new(ask_always());
    gate.answer(parse_decision("approve").expect("a decision"))
        .await;
    assert_eq!(gate.run_count(), 1);
}

#[tokio::test]
async fn the_request_says_which_call_the_callback_is_about() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watched = seen.clone();
    let layer = ask_always().on_request(move |call, request| {
        watched
            .lock()
            .expect("not poisoned")
            .push((call.tool.clone(), request.approval_id));
        std::future::ready(())
    });
    let gate = ApprovalHarness::new(layer);
    let request = gate.expect_request().await;
    assert_eq!(
        *seen.lock().expect("not poisoned"),
        [("change".into(), request.approval_id)]
    );
}

#[test]
fn invalid_options_are_rejected() {
    for (options, key) in [
        (
            ApprovalOptions {
                expires_after: Some(HumanDuration::from_secs(0)),
                ..Default::default()
            },
            "expires_after",
        ),
        (
            ApprovalOptions {
                reason: Some(" ".into()),
                ..Default::default()
            },
            "reason",
        ),
        (
            ApprovalOptions {
                tools: Some(Vec::new()),
                ..Default::default()
            },
            "tools",
        ),
        (
            ApprovalOptions {
                tools: Some(vec!["[".into()]),
                ..Default::default()
            },
            "tools",
        ),
    ] {
        assert_eq!(Approval::new(options).expect_err("rejected").key, key);
    }
    assert!(
        serde_json::from_str::<ApprovalOptions>(r#"{ "ask_from": "WorkspaceWrite" }"#).is_err()
    );
    assert!(
        serde_json::from_str::<ApprovalOptions>(r#"{ "ask_from": "workspace_write" }"#).is_ok()
    );
}

/// A layer that requires approval for the reasons in a list that a test changes.
fn require_all(reasons: &Arc<Mutex<Vec<String>>>) -> impl Layer + use<> {
    let reasons = reasons.clone();
    toolgate_core::map_call(move |call: Call| {
        let reasons = reasons.lock().expect("no panic").clone();
        let require = |call: Call, reason: String| call.require_approval(reason, None);
        reasons.into_iter().fold(call, require)
    })
    .named("require")
    .in_band(Band::Decide)
}

fn requiring(reasons: &Arc<Mutex<Vec<String>>>) -> ApprovalHarness {
    ApprovalHarness::over(|tool| {
        Stack::over(tool)
            .layer(require_all(reasons))
            .layer(Approval::when_required())
            .build()
            .expect("valid order")
    })
}

#[tokio::test]
async fn an_approval_does_not_meet_a_requirement_that_was_added_after_it_was_asked() {
    let reasons = Arc::new(Mutex::new(vec!["it pays".to_owned()]));
    let mut harness = requiring(&reasons);
    let first = harness.expect_request().await;
    let approved = ApprovalAnswer::for_request(&first, Decision::approve("ann"));
    harness.seed.resumed.answers.push(approved);
    harness.seed.generation += 1;
    reasons
        .lock()
        .expect("no panic")
        .push("it is late".to_owned());

    let second = harness.expect_request().await;
    assert_eq!(harness.run_count(), 0);
    assert_eq!(second.changed, [ApprovalChange::Requirement]);
    assert_eq!(second.reason.as_deref(), Some("it pays; it is late"));
    assert!(harness.answer(Decision::approve("ann")).await.is_ok());
    assert_eq!(harness.run_count(), 1);
}

#[tokio::test]
async fn an_approval_still_meets_requirements_of_which_one_is_gone() {
    let reasons = Arc::new(Mutex::new(vec![
        "it pays".to_owned(),
        "it is late".to_owned(),
    ]));
    let mut harness = requiring(&reasons);
    let request = harness.expect_request().await;
    let approved = ApprovalAnswer::for_request(&request, Decision::approve("ann"));
    harness.seed.resumed.answers.push(approved);
    harness.seed.generation += 1;
    reasons.lock().expect("no panic").pop();
    assert!(harness.enter().await.is_ok());
}

#[tokio::test]
async fn a_reason_that_changes_on_every_pass_is_not_asked_about_without_end() {
    let reasons = Arc::new(Mutex::new(vec!["0".to_owned()]));
    let mut harness = requiring(&reasons);
    for pass in 1..=MAX_REQUESTS_PER_CALL {
        let request = harness.expect_request().await;
        let approved = ApprovalAnswer::for_request(&request, Decision::approve("ann"));
        harness.seed.resumed.answers.push(approved);
        harness.seed.generation += 1;
        *reasons.lock().expect("no panic") = vec![pass.to_string()];
    }
    let outcome = harness.enter().await;
    assert_eq!(outcome.status(), Some(Status::Blocked), "{outcome:?}");
    assert_eq!(harness.run_count(), 0);
}

#[tokio::test]
async fn a_dry_run_reports_that_a_required_approval_is_missing() {
    let reasons = Arc::new(Mutex::new(vec!["it pays".to_owned()]));
    let harness = ApprovalHarness::over(|tool| {
        Stack::over(tool)
            .layer(require_all(&reasons))
            .layer(DryRun::all())
            .build()
            .expect("valid order")
    });
    let outcome = harness.enter().await;
    assert_eq!(outcome.status(), Some(Status::Blocked));
    let explained = explain(&harness.stack, harness.seed.clone()).await;
    assert_eq!(explained.verdict, CallVerdict::Settles(Status::Blocked));
}
