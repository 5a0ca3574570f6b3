//! Scopes only narrow: checked for random limits and calls.

use proptest::prelude::*;
use serde_json::{Value, json};
use toolgate_core::{Annotations, Arguments, SideEffect, Stack, ToolKind};
use toolgate_layers::{Capability, Scope, ScopeOptions, ScopePolicy};
use toolgate_testkit::{call_with, echo, echo_under};

fn any_options() -> impl Strategy<Value = ScopeOptions> {
    let tool = prop::sample::select(vec!["a", "b", "a*", "*"]).prop_map(str::to_owned);
    let level = prop::sample::select(vec![
        None,
        Some(SideEffect::ReadOnly),
        Some(SideEffect::ProcessExec),
    ]);
    let word = prop::sample::select(vec!["read", "edit", "*"]).prop_map(str::to_owned);
    let capability = prop::sample::select(vec![
        Capability::Workspace,
        Capability::Process,
        Capability::Network,
    ]);
    let capabilities =
        prop::collection::btree_map(capability, prop::collection::vec(word, 0..2), 0..3);
    let glob = prop::sample::select(vec!["src/**", "*", "x"]).prop_map(str::to_owned);
    let limits = prop::collection::btree_map(
        Just("path".to_owned()),
        prop::collection::vec(glob, 0..2),
        0..2,
    );
    let arguments = prop::collection::btree_map(tool.clone(), limits, 0..2);
    let tools = prop::option::of(prop::collection::vec(tool, 0..3));
    (tools, level, prop::option::of(capabilities), arguments).prop_map(
        |(tools, level, capabilities, arguments)| ScopeOptions {
            allowed_tools: tools,
            side_effect_level: level,
            capabilities,
            arguments,
            ..ScopeOptions::default()
        },
    )
}

fn any_call() -> impl Strategy<Value = (&'static str, Annotations, Value)> {
    let effect = prop::sample::select(vec![
        SideEffect::None,
        SideEffect::ReadOnly,
        SideEffect::Network,
    ]);
    let kind = prop::sample::select(vec![None, Some(ToolKind::Read), Some(ToolKind::Edit)]);
    let path = prop::sample::select(vec![None, Some("src/a"), Some("src/../a"), Some("x")]);
    (
        prop::sample::select(vec!["a", "b", "ab"]),
        effect,
        kind,
        path,
    )
        .prop_map(|(tool, effect, kind, path)| {
            let mut annotations = Annotations::default().with_side_effect(effect);
            annotations.kind = kind;
            (
                tool,
                annotations,
                path.map_or(json!({}), |path| json!({ "path": path })),
            )
        })
}

proptest! {
    #[test]
    fn an_intersection_allows_exactly_what_both_allow(a in any_options(), b in any_options(), call in any_call()) {
        let (a, b) = (ScopePolicy::new(a).expect("valid"), ScopePolicy::new(b).expect("valid"));
        let (tool, annotations, arguments) = call;
        let arguments = Arguments::try_from(arguments).expect("object");
        let allows = |policy: &ScopePolicy| policy.judge(tool, &annotations, &arguments).is_ok();
        prop_assert_eq!(allows(&a.intersect(&b)), allows(&a) && allows(&b));
    }

    #[test]
    fn nested_scopes_are_their_intersection(a in any_options(), b in any_options(), call in any_call()) {
        let (a, b) = (ScopePolicy::new(a).expect("valid"), ScopePolicy::new(b).expect("valid"));
        let nested = Stack::over(echo()).layer(Scope::new(a.clone())).layer(Scope::new(b.clone()));
        let nested = nested.build().expect("valid order");
        let (tool, _, arguments) = call;
        let status = futures::executor::block_on(nested.run(call_with(tool, arguments.clone()))).status();
        let one = echo_under(Scope::new(a.intersect(&b)));
        prop_assert_eq!(futures::executor::block_on(one.run(call_with(tool, arguments))).status(), status);
    }
}
