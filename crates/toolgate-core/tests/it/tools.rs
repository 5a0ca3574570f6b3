//! The rules of tools, registries and views, with a whole stack around them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Annotations, ApprovalAnswer, ApprovalRequest, Arguments, Band, Call, ChangeSubject, Context,
    Decision, HookAction, Hooks, Layer, LayerName, Next, Outcome, Registry, Schema, Stack, Status,
    Suspension, Tool, ToolError, ToolOutput, ToolRequest, ToolSpec, Transform, Verdict, View,
    from_fn, tool_fn,
};
use toolgate_testkit::{FakeExecutor, run_twice, seed};

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// What to look for.
    query: String,
    limit: Option<u32>,
}

fn search() -> impl Tool {
    let tool = tool_fn("search", "Searches.", async |input: Search, _cx| {
        Ok::<_, ToolError>(format!("{} x{}", input.query, input.limit.unwrap_or(10)))
    });
    tool.with_annotations(Annotations::read_only())
}

/// Requires a `reason` from the model and removes it from the call: a transform and a layer in one.
struct Reason;

impl Transform for Reason {
    fn name(&self) -> LayerName {
        "reason".into()
    }
    fn transform(&self, mut spec: ToolSpec) -> Option<ToolSpec> {
        if let Ok(Some(input)) =
            spec.input
                .with_parameter("reason", json!({ "type": "string", "minLength": 1 }), true)
        {
            spec.input = input;
        }
        Some(spec)
    }
}

impl Layer for Reason {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let reason = call
            .arguments
            .get("reason")
            .and_then(|reason| reason.as_str())
            .map(str::to_owned);
        let stripped = call.arguments.without_argument("reason");
        next.run(call.with_arguments(stripped))
            .await
            .with_notes(|notes| notes.summary = reason)
    }
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        Some(Arc::new(Self))
    }
}

fn admitted(view: &View, tool: &str, arguments: &str) -> Call {
    let mut seed = seed(tool, json!({}));
    seed.admission = view.admit_request(&ToolRequest::from_text("1", tool, arguments));
    Call::new(seed)
}

#[tokio::test]
async fn a_required_parameter_can_be_injected_and_stripped() {
    let registry = Registry::new();
    let strict = json!({
        "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"], "additionalProperties": false
    });
    struct Strict(Schema);
    impl Tool for Strict {
        fn spec(&self) -> ToolSpec {
            ToolSpec::new("open", "Opens.", self.0.clone())
        }
        async fn invoke(&self, arguments: Arguments, _: Context) -> Result<ToolOutput, ToolError> {
            assert!(arguments.get("reason").is_none(), "the tool never sees it");
            Ok("opened".into())
        }
    }
    registry
        .register(Strict(Schema::new(strict).expect("valid")))
        .expect("free");
    let stack = Stack::over(registry.clone())
        .layer(Reason)
        .build()
        .expect("in order");
    let view = toolgate_testkit::plain_view(&registry)
        .apply_transforms(&stack.transforms())
        .expect("additive");
    let outcome = stack
        .run(admitted(
            &view,
            "open",
            r#"{"path":"a","reason":"to read it"}"#,
        ))
        .await;
    assert_eq!(outcome.settled().expect("settled").model_text(), "opened");
    let summary = outcome
        .settled()
        .and_then(|s| s.notes.fields())
        .and_then(|n| n.summary.clone());
    assert_eq!(summary.as_deref(), Some("to read it"));
    let missing = stack.run(admitted(&view, "open", r#"{"path":"a"}"#)).await;
    assert_eq!(
        missing.status(),
        Some(Status::SchemaViolation),
        "required in the view"
    );
    let bad = stack
        .run(admitted(
            &view,
            "open",
            r#"{"path":"a","reason":"r","x":1}"#,
        ))
        .await;
    assert_eq!(
        bad.status(),
        Some(Status::SchemaViolation),
        "the tool's own schema holds too"
    );
}

#[tokio::test]
async fn arguments_that_a_layer_made_invalid_do_not_reach_the_deciding_layers_or_the_tool() {
    let registry = Registry::new();
    registry.register(search()).expect("free");
    let spoil = |band| {
        use toolgate_core::LayerExt;
        toolgate_core::map_call(|call| {
            call.with_arguments(Arguments::parse(r#"{"query":7}"#).expect("object"))
        })
        .in_band(band)
    };
    let view = toolgate_testkit::plain_view(&registry);
    let decide = from_fn(async |_: Call, _: Next| -> Outcome { panic!("was entered") });
    use toolgate_core::LayerExt;
    let stack = Stack::over(registry.clone())
        .layer(spoil(Band::Shape))
        .layer(decide.in_band(Band::Decide))
        .build();
    let outcome = stack
        .expect("in order")
        .run(admitted(&view, "search", r#"{"query":"x"}"#))
        .await;
    assert_eq!(outcome.status(), Some(Status::SchemaViolation));
    let stack = Stack::over(registry)
        .layer(spoil(Band::Bound))
        .build()
        .expect("in order");
    let outcome = stack
        .run(admitted(&view, "search", r#"{"query":"x"}"#))
        .await;
    assert_eq!(outcome.status(), Some(Status::SchemaViolation));
}

#[tokio::test]
async fn edited_arguments_run_exactly_as_the_approver_wrote_them_after_validation() {
    struct Ask;
    impl Layer for Ask {
        async fn handle(&self, call: Call, next: Next) -> Outcome {
            match next.decision_on(&call).map(|d| d.verdict.clone()) {
                Some(Verdict::Approve | Verdict::ApproveWithEdits { .. }) => next.run(call).await,
                Some(Verdict::Deny { reason }) => Outcome::denied(reason.as_deref()),
                None => Outcome::await_decision(ApprovalRequest::for_call(&call)),
            }
        }
        fn band(&self) -> Band {
            Band::Decide
        }
    }
    let registry = Registry::new();
    registry.register(search()).expect("free");
    // Both layers above change the model's arguments; neither changes the approver's edits.
    let shout = Hooks::new().before("*", async |call: Call| {
        let query = call
            .arguments
            .get("query")
            .and_then(|q| q.as_str())
            .unwrap_or_default()
            .to_owned()
            + "!";
        HookAction::Replace(
            call.arguments
                .with_argument("query", json!(query))
                .expect("shallow"),
        )
    });
    let stack = Stack::over(registry.clone())
        .layer(Reason)
        .layer(shout)
        .layer(Ask)
        .build()
        .expect("in order");
    let view = View::for_stack(&registry, &stack).expect("additive");
    let mut seed = seed("search", json!({}));
    seed.admission = view.admit_request(&ToolRequest::from_text(
        "1",
        "search",
        r#"{"query":"a","reason":"r"}"#,
    ));
    let outcome = stack.run(Call::new(seed.clone())).await;
    let Some(Suspension::Decision(request)) = outcome.suspension() else {
        panic!("not asked")
    };
    assert!(
        request.arguments.get("reason").is_none(),
        "approvers see what will run"
    );
    let edit =
        |text: &str| Decision::approve_with_edits("ann", Arguments::parse(text).expect("object"));
    let resumed = |decision| {
        let mut seed = seed.clone();
        seed.resumed
            .answers
            .push(ApprovalAnswer::for_request(request, decision));
        Call::new(seed)
    };
    assert_eq!(request.arguments.get("query"), Some(&json!("a!")));
    let good = stack.run(resumed(edit(r#"{"query":"b","limit":2}"#))).await;
    assert_eq!(good.settled().expect("settled").model_text(), "b x2");
    let who = good.settled().and_then(|s| s.notes.fields()).map(|n| {
        n.layers_that_changed(ChangeSubject::Arguments, "/limit")
            .len()
    });
    assert_eq!(who, Some(1), "the trail names the edit");
    let bad = stack.run(resumed(edit(r#"{"query":7}"#))).await;
    assert_eq!(bad.status(), Some(Status::SchemaViolation));
}

#[tokio::test]
async fn a_tool_that_was_removed_or_changed_since_it_was_shown_does_not_run() {
    let registry = Registry::new();
    registry.register(search()).expect("free");
    let stack = Stack::over(registry.clone()).build().expect("in order");
    let view = toolgate_testkit::plain_view(&registry);
    let call = || admitted(&view, "search", r#"{"query":"x"}"#);
    assert!(stack.run(call()).await.is_ok());
    let other = tool_fn(
        "search",
        "Deletes everything.",
        async |input: Search, _cx| Ok::<_, ToolError>(input.query),
    );
    registry.replace(other).expect("replaced");
    assert_eq!(stack.run(call()).await.status(), Some(Status::Blocked));
    registry.remove("search");
    assert_eq!(stack.run(call()).await.status(), Some(Status::ToolNotFound));
}

#[tokio::test]
async fn the_registry_can_be_used_from_many_threads() {
    let registry = Registry::new();
    registry.register(search()).expect("free");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let registry = registry.clone();
            scope.spawn(move || {
                for n in 0..200 {
                    let name = format!("t{thread}_{n}");
                    registry
                        .register_host(ToolSpec::new(name.as_str(), "x", Schema::any_object()))
                        .expect("free");
                    assert!(registry.get(&name).is_some());
                    let stack = Stack::over(registry.clone()).build().expect("in order");
                    let call = Call::detached(
                        "search",
                        Arguments::parse(r#"{"query":"q"}"#).expect("object"),
                    );
                    assert!(futures::executor::block_on(stack.run(call)).is_ok());
                    assert!(
                        registry
                            .entries()
                            .windows(2)
                            .all(|pair| pair[0].spec.name < pair[1].spec.name)
                    );
                    registry.remove(&name);
                }
            });
        }
    });
    assert_eq!(registry.len(), 1);
}

#[tokio::test]
async fn hooks_run_global_first_then_by_tool_and_after_hooks_in_reverse() {
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let before = |name: &'static str| {
        let log = log.clone();
        move |_: Call| {
            log.lock().expect("no panic").push(name);
            std::future::ready(HookAction::Continue)
        }
    };
    let after = |name: &'static str| {
        let log = log.clone();
        move |_: Call, outcome: Outcome| {
            log.lock().expect("no panic").push(name);
            std::future::ready(outcome)
        }
    };
    let hooks = Hooks::new()
        .before("echo", before("tool 1"))
        .before("*", before("all 1"))
        .before("other", before("never"))
        .before("echo", before("tool 2"))
        .before("*", before("all 2"))
        .after("echo", after("after tool"))
        .after("*", after("after all 1"))
        .after("*", after("after all 2"));
    toolgate_testkit::echo_under(hooks)
        .run(toolgate_testkit::call("echo"))
        .await;
    let expected = [
        "all 1",
        "all 2",
        "tool 1",
        "tool 2",
        "after tool",
        "after all 2",
        "after all 1",
    ];
    assert_eq!(*log.lock().expect("no panic"), expected);
}

#[tokio::test]
async fn a_hook_may_abort_with_a_reason_or_a_result_or_replace_the_arguments() {
    let run = |action: HookAction| async move {
        let executor = FakeExecutor::new();
        let hooks = Hooks::new().before("*", move |_| std::future::ready(action.clone()));
        let stack = Stack::over(executor.clone())
            .layer(hooks)
            .build()
            .expect("in order");
        (
            stack
                .run(toolgate_testkit::call_with("t", json!({ "a": 1 })))
                .await,
            executor.seen(),
        )
    };
    let text = |outcome: &Outcome| {
        outcome
            .settled()
            .expect("settled")
            .model_text()
            .into_owned()
    };
    let (outcome, seen) = run(HookAction::Abort {
        reason: "  ".into(),
        result: None,
    })
    .await;
    assert_eq!(
        (text(&outcome).as_str(), seen.len()),
        ("aborted by hook", 0)
    );
    let (outcome, _) = run(HookAction::Abort {
        reason: "too late".into(),
        result: None,
    })
    .await;
    assert_eq!(text(&outcome), "aborted by hook: too late");
    assert_eq!(outcome.status(), Some(Status::Blocked));
    let own = Outcome::ok("cached").settled().cloned().map(Arc::new);
    let (outcome, seen) = run(HookAction::Abort {
        reason: String::new(),
        result: own,
    })
    .await;
    assert_eq!((text(&outcome).as_str(), seen.len()), ("cached", 0));
    let (outcome, seen) = run(HookAction::Replace(
        Arguments::parse(r#"{"a":2}"#).expect("object"),
    ))
    .await;
    assert!(outcome.is_ok());
    assert_eq!(seen[0].arguments.get("a"), Some(&json!(2)));
}

#[tokio::test]
async fn hooks_run_once_per_call_also_when_it_resumes_after_a_suspension() {
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = count.clone();
    let hooks = Hooks::new().before("*", move |call: Call| {
        let n = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        std::future::ready(HookAction::Replace(
            call.arguments
                .with_argument("n", json!(n))
                .expect("shallow"),
        ))
    });
    let twice = run_twice(hooks, seed("echo", json!({}))).await;
    twice.assert_replays();
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert!(twice.first.suspension().is_some() && twice.second.is_ok());
}

#[tokio::test]
#[should_panic(expected = "other arguments on the second time")]
async fn run_twice_notices_a_layer_that_forgets_what_it_did() {
    let count = std::sync::atomic::AtomicU32::new(0);
    let forgetful = toolgate_core::map_call(move |call| {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let arguments = call
            .arguments
            .with_argument("n", json!(n))
            .expect("shallow");
        call.with_arguments(arguments)
    });
    run_twice(forgetful, seed("echo", json!({})))
        .await
        .assert_replays();
}

#[tokio::test]
async fn hooks_are_listed_added_and_removed_while_calls_run() {
    let hooks = std::sync::Arc::new(Hooks::new());
    let shared = hooks.clone();
    let through = toolgate_core::from_fn(move |call, next| {
        let shared = shared.clone();
        async move { shared.handle(call, next).await }
    });
    let stack = Stack::over(toolgate_testkit::echo())
        .layer(through)
        .build()
        .expect("in order");
    assert!(stack.run(toolgate_testkit::call("pay")).await.is_ok());
    let id = hooks.add_before("pay", |_| {
        std::future::ready(HookAction::Abort {
            reason: "closed".into(),
            result: None,
        })
    });
    hooks.add_after("*", |_, outcome| std::future::ready(outcome));
    let listed: Vec<_> = hooks
        .list()
        .into_iter()
        .map(|entry| (entry.moment, entry.tool))
        .collect();
    use toolgate_core::HookMoment::{After, Before};
    assert_eq!(listed, [(Before, "pay".into()), (After, "*".into())]);
    let blocked = stack.run(toolgate_testkit::call("pay")).await;
    assert_eq!(blocked.status(), Some(Status::Blocked));
    assert!(hooks.remove(id));
    assert!(!hooks.remove(id), "it is gone");
    assert!(stack.run(toolgate_testkit::call("pay")).await.is_ok());
}
