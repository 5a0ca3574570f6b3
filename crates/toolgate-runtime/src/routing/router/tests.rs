//! The rules of choosing among models, one test each.

use super::*;
use crate::{Candidate, RouteRule};
use std::sync::{Mutex, PoisonError};
use toolgate_core::{Message, Reply, TaskComplexity};

/// A model with scripted replies, one for each request.
struct RouterFake {
    name: ModelName,
    replies: Mutex<VecDeque<Vec<Result<Delta, ModelError>>>>,
    panics: bool,
}

fn name(model: &str) -> ModelName {
    ModelName::new("acme", model)
}

fn fake(model: &str, replies: Vec<Vec<Result<Delta, ModelError>>>) -> Arc<dyn Model> {
    Arc::new(RouterFake {
        name: name(model),
        replies: Mutex::new(replies.into()),
        panics: false,
    })
}

impl Model for RouterFake {
    fn name(&self) -> &ModelName {
        &self.name
    }
    fn reply<'a>(&'a self, _: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        assert!(!self.panics, "as the test wants it");
        let pieces = self
            .replies
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        Box::pin(stream::iter(
            pieces.expect("the test does not ask so often"),
        ))
    }
}

fn done(text: &str) -> Result<Delta, ModelError> {
    Ok(Delta::Done(Box::new(Reply::new(Message::assistant(text)))))
}

fn fails(model: &str, kind: ModelErrorKind) -> Result<Delta, ModelError> {
    Err(ModelError::new(kind, name(model), "oh"))
}

fn says(model: &str) -> Arc<dyn Model> {
    fake(model, vec![vec![Ok(Delta::Text("h".into())), done(model)]])
}

fn routing() -> RoutingConfig {
    let aliases = [("small", "acme:small"), ("large", "acme:large")];
    RoutingConfig {
        aliases: aliases
            .map(|(alias, name)| (alias.to_owned(), name.to_owned()))
            .into(),
        weights: [(TaskComplexity::Light, "small".to_owned())].into(),
        ..RoutingConfig::for_model(&name("large"))
    }
}

fn both() -> Vec<Arc<dyn Model>> {
    vec![says("small"), says("large")]
}

/// Returns the result of a request, in short.
async fn asked(router: &ModelRouter, request: ModelRequest) -> Vec<String> {
    let short = |piece: Result<Delta, ModelError>| match piece {
        Ok(Delta::Routed(routed)) => format!("{}: {}", routed.selected, routed.reason),
        Ok(Delta::Done(reply)) => format!("done {}", reply.message.text()),
        Ok(Delta::Retry(retry)) => format!("retry after {}", retry.error),
        Ok(Delta::Text(text)) => format!("text {text}"),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("error {error}"),
    };
    router.reply(&request).map(short).collect().await
}

fn weighing(weight: TaskComplexity) -> ModelRequest {
    ModelRequest {
        weight: Some(weight),
        ..ModelRequest::default()
    }
}

#[tokio::test]
async fn the_choice_is_reported_before_everything_else() {
    let router = ModelRouter::new(routing(), both(), Vec::new()).expect("sound");
    assert_eq!(router.name(), &name("large"));
    let said = asked(&router, ModelRequest::default()).await;
    assert_eq!(said, ["acme:large: as requested", "text h", "done large"]);
}

#[tokio::test]
async fn rules_go_before_weights_and_weights_before_what_was_requested() {
    let rule = RouteRule {
        model: "large".into(),
        weight: None,
        longer_than: Some(10),
        tools: None,
        media: None,
    };
    let with = RoutingConfig {
        rules: vec![rule],
        default: Some("large".into()),
        ..routing()
    };
    let router = || ModelRouter::new(with.clone(), both(), Vec::new()).expect("sound");
    assert_eq!(
        asked(&router(), weighing(TaskComplexity::Light)).await[0],
        "acme:small: the work is light"
    );
    assert_eq!(
        asked(&router(), weighing(TaskComplexity::Heavy)).await[0],
        "acme:large: as requested"
    );
    let long = ModelRequest {
        messages: [Arc::new(Message::user("x".repeat(11)))]
            .into_iter()
            .collect(),
        ..weighing(TaskComplexity::Light)
    };
    assert_eq!(
        asked(&router(), long).await[0],
        "acme:large: rule 1 of the configuration"
    );
    let requested = router().with_requested("small").expect("is there");
    assert_eq!(requested.name(), &name("small"));
    assert_eq!(
        asked(&requested, ModelRequest::default()).await[0],
        "acme:small: as requested"
    );
}

#[tokio::test]
async fn hooks_decide_last_in_order_and_see_the_earlier_choice() {
    let first = |decision: &RoutingDecision<'_>| {
        assert_eq!(
            (decision.requested, decision.selected),
            (&name("large"), &name("small"))
        );
        assert_eq!(
            (decision.reason, decision.weight),
            ("the work is light", Some(TaskComplexity::Light))
        );
        Some(Candidate::new("acme:large", "first"))
    };
    let second = |decision: &RoutingDecision<'_>| {
        assert_eq!(
            (decision.selected, decision.reason),
            (&name("large"), "first")
        );
        Some(Candidate::new("small", "second"))
    };
    let hooks: Vec<Box<dyn RoutingHook>> = vec![
        Box::new(first),
        Box::new(second),
        Box::new(|_: &RoutingDecision<'_>| None),
    ];
    let router = ModelRouter::new(routing(), both(), hooks).expect("sound");
    assert_eq!(
        asked(&router, weighing(TaskComplexity::Light)).await[0],
        "acme:small: second"
    );
}

#[tokio::test]
async fn a_hook_that_panics_or_names_an_unknown_model_fails_the_request() {
    let wrong = |_: &RoutingDecision<'_>| Some(Candidate::new("huge", "why not"));
    let router = ModelRouter::new(routing(), both(), vec![Box::new(wrong)]).expect("sound");
    let said = asked(&router, ModelRequest::default()).await;
    assert_eq!(said.len(), 1);
    assert!(
        said[0].contains("routing hook 1 names the unknown model \"huge\""),
        "{said:?}"
    );
    let broken = |_: &RoutingDecision<'_>| -> Option<Candidate> { panic!("hunter2") };
    let router = ModelRouter::new(routing(), both(), vec![Box::new(broken)]).expect("sound");
    let said = asked(&router, ModelRequest::default()).await;
    assert_eq!(
        said,
        ["error acme:large: the model is not configured: routing hook 1 panicked"]
    );
}

#[tokio::test]
async fn after_a_temporary_failure_the_next_model_is_asked_and_the_reason_reported() {
    use ModelErrorKind as K;
    for kind in [
        K::RateLimited,
        K::Overloaded,
        K::Server,
        K::Timeout,
        K::Connection,
    ] {
        let models = vec![
            fake("large", vec![vec![fails("large", kind)]]),
            says("small"),
        ];
        let with = RoutingConfig {
            fallback: vec!["large".into(), "small".into()],
            ..routing()
        };
        let said = asked(
            &ModelRouter::new(with, models, Vec::new()).expect("sound"),
            ModelRequest::default(),
        )
        .await;
        let told = format!("acme:small: instead of acme:large: {kind}: oh");
        let failed = format!("retry after acme:large: {kind}: oh");
        let expected = [
            "acme:large: as requested",
            &failed,
            &told,
            "text h",
            "done small",
        ];
        assert_eq!(said, expected);
    }
}

#[tokio::test]
async fn after_any_other_failure_no_other_model_is_asked() {
    use ModelErrorKind as K;
    for kind in [
        K::Auth,
        K::Quota,
        K::BadRequest,
        K::TooLong,
        K::NotFound,
        K::Refused,
        K::Malformed,
        K::Budget,
        K::Setup,
    ] {
        let models = vec![
            fake("large", vec![vec![fails("large", kind)]]),
            fake("small", vec![]),
        ];
        let with = RoutingConfig {
            fallback: vec!["small".into()],
            ..routing()
        };
        let said = asked(
            &ModelRouter::new(with, models, Vec::new()).expect("sound"),
            ModelRequest::default(),
        )
        .await;
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[1].starts_with("error acme:large"), "{said:?}");
    }
}

#[tokio::test]
async fn a_reply_that_breaks_off_is_void_and_another_model_is_asked() {
    let broken = vec![
        Ok(Delta::Text("h".into())),
        fails("large", ModelErrorKind::Connection),
    ];
    let models = vec![fake("large", vec![broken]), says("small")];
    let with = RoutingConfig {
        fallback: vec!["small".into()],
        ..routing()
    };
    let router = ModelRouter::new(with, models, Vec::new()).expect("sound");
    let said = asked(&router, ModelRequest::default()).await;
    assert_eq!(said.len(), 6, "{said:?}");
    assert!(said[2].starts_with("retry after acme:large"), "{said:?}");
    assert_eq!(said[5], "done small");
}

#[tokio::test]
async fn when_all_have_failed_the_last_failure_is_returned() {
    let models = vec![
        fake("large", vec![vec![fails("large", ModelErrorKind::Server)]]),
        fake(
            "small",
            vec![vec![fails("small", ModelErrorKind::Overloaded)]],
        ),
    ];
    let with = RoutingConfig {
        fallback: vec!["small".into()],
        ..routing()
    };
    let said = asked(
        &ModelRouter::new(with, models, Vec::new()).expect("sound"),
        ModelRequest::default(),
    )
    .await;
    assert_eq!(
        said.last().expect("something"),
        "error acme:small: the provider is overloaded: oh"
    );
}

#[tokio::test]
async fn a_model_that_panics_fails_alone() {
    let broken = RouterFake {
        name: name("large"),
        replies: Mutex::default(),
        panics: true,
    };
    let models: Vec<Arc<dyn Model>> = vec![Arc::new(broken), says("small")];
    let with = RoutingConfig {
        fallback: vec!["small".into()],
        fallback_on: vec![ModelErrorKind::Malformed],
        ..routing()
    };
    let said = asked(
        &ModelRouter::new(with, models, Vec::new()).expect("sound"),
        ModelRequest::default(),
    )
    .await;
    assert_eq!(said.last().expect("something"), "done small");
}

#[test]
fn an_invalid_routing_is_rejected_with_the_setting_that_is_wrong() {
    let refused = |routing: RoutingConfig| {
        ModelRouter::new(routing, both(), Vec::new())
            .expect_err("cannot work")
            .to_string()
    };
    let wrong = RoutingConfig {
        default: Some("medium".into()),
        ..routing()
    };
    let text = "routing.default names the unknown model \"medium\"; known models: large, small, acme:small, acme:large";
    assert_eq!(refused(wrong), text);
    for wrong in [
        RoutingConfig {
            weights: [(TaskComplexity::Heavy, "huge".to_owned())].into(),
            ..routing()
        },
        RoutingConfig {
            aliases: [("huge".to_owned(), "acme:huge".to_owned())].into(),
            ..RoutingConfig::for_model(&name("large"))
        },
        RoutingConfig {
            fallback: vec!["huge".into()],
            ..routing()
        },
        RoutingConfig {
            rules: vec![RouteRule {
                model: "huge".into(),
                weight: None,
                longer_than: None,
                tools: None,
                media: None,
            }],
            ..routing()
        },
    ] {
        assert!(refused(wrong).contains("huge"));
    }
    let never = RoutingConfig {
        fallback_on: vec![ModelErrorKind::Auth],
        ..routing()
    };
    assert_eq!(
        refused(never),
        "routing.fallback_on has Auth, after which no other model is asked"
    );
    let twice = ModelRouter::new(
        routing(),
        vec![says("large"), says("large"), says("small")],
        Vec::new(),
    );
    assert_eq!(
        twice.expect_err("two of a name"),
        RoutingError::DuplicateModel(name("large"))
    );
    assert!(serde_json::from_str::<RoutingConfig>(r#"{ "default": "a", "falback": [] }"#).is_err());
    assert!(
        serde_json::from_str::<RoutingConfig>(r#"{ "default": "a", "weights": { "huge": "b" } }"#)
            .is_err()
    );
}
