//! The rules of retrying, one test each.

use super::*;
use futures::{FutureExt, future::poll_immediate};
use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Mutex, PoisonError},
};
use toolgate_core::{Message, ModelErrorKind, Reply};
use toolgate_testkit::TestClock;

struct RetryFake {
    name: ModelName,
    replies: Mutex<VecDeque<Vec<Result<Delta, ModelError>>>>,
}

impl Model for RetryFake {
    fn name(&self) -> &ModelName {
        &self.name
    }
    fn reply<'a>(&'a self, _: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
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

fn error(kind: ModelErrorKind, retry_after: Option<u64>) -> ModelError {
    let error = ModelError::new(kind, ModelName::new("acme", "m"), "");
    ModelError {
        retry_after: retry_after.map(Duration::from_secs),
        ..error
    }
}

fn done() -> Result<Delta, ModelError> {
    Ok(Delta::Done(Box::new(Reply::new(Message::assistant("ok")))))
}

fn retrying(
    replies: Vec<Vec<Result<Delta, ModelError>>>,
    attempts: u32,
) -> (RetryingModel<RetryFake>, TestClock) {
    let clock = TestClock::new();
    let fake = RetryFake {
        name: ModelName::new("acme", "m"),
        replies: Mutex::new(replies.into()),
    };
    let patience = RetryPolicy {
        attempts,
        max_wait: HumanDuration::from_secs(20),
    };
    (
        RetryingModel::new(fake, patience, Arc::new(clock.clone())),
        clock,
    )
}

/// Returns the kinds of pieces that arrive without the clock moving.
fn at_once(replies: Vec<Vec<Result<Delta, ModelError>>>, attempts: u32) -> Vec<String> {
    let (model, _clock) = retrying(replies, attempts);
    let request = ModelRequest::default();
    let mut reply = model.reply(&request);
    let mut kinds = Vec::new();
    while let Some(Some(piece)) = reply.next().now_or_never() {
        kinds.push(match piece {
            Ok(Delta::Retry(_)) => "again".to_owned(),
            Ok(Delta::Done(_)) => "done".to_owned(),
            Ok(_) => "piece".to_owned(),
            Err(error) => error.kind.as_str().to_owned(),
        });
    }
    kinds
}

#[tokio::test]
async fn it_waits_exactly_as_long_as_the_provider_asks() {
    let replies = vec![
        vec![Err(error(ModelErrorKind::RateLimited, Some(7)))],
        vec![done()],
    ];
    let (model, clock) = retrying(replies, 2);
    let request = ModelRequest::default();
    let mut reply = model.reply(&request);
    let told = reply.next().await.expect("a piece").expect("no failure");
    let Delta::Retry(retry) = told else {
        panic!("{told:?}")
    };
    assert_eq!(retry.delay, Duration::from_secs(7));
    {
        let mut next = pin!(reply.next());
        assert!(poll_immediate(&mut next).await.is_none());
        clock.advance(Duration::from_millis(6_999));
        assert!(poll_immediate(&mut next).await.is_none(), "not yet");
        clock.advance(Duration::from_millis(1));
        assert!(matches!(next.await, Some(Ok(Delta::Done(_)))));
    }
    assert!(reply.next().await.is_none());
}

#[test]
fn waits_grow_from_attempt_to_attempt_and_stay_under_the_limit() {
    let (model, _clock) = retrying(Vec::new(), 50);
    let wait = |attempt| {
        model
            .retry_delay(
                &error(ModelErrorKind::Server, None),
                attempt,
                Duration::ZERO,
            )
            .expect("is retried")
            .as_millis()
    };
    for _ in 0..100 {
        assert!((500..=600).contains(&wait(1)) && (2_000..=2_400).contains(&wait(3)));
        assert!(wait(49) <= 20_000);
    }
}

#[test]
fn only_temporary_failures_are_retried() {
    use ModelErrorKind as K;
    for kind in [
        K::RateLimited,
        K::Overloaded,
        K::Server,
        K::Timeout,
        K::Connection,
    ] {
        assert_eq!(
            at_once(vec![vec![Err(error(kind, None))]], 2),
            ["again"],
            "{kind}"
        );
        assert_eq!(
            at_once(vec![vec![Err(error(kind, None))]], 1),
            [kind.as_str()],
            "the attempts are used"
        );
    }
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
        assert_eq!(
            at_once(vec![vec![Err(error(kind, None))]], 9),
            [kind.as_str()]
        );
    }
}

#[test]
fn a_wait_longer_than_the_limit_is_a_failure_at_once() {
    let late = error(ModelErrorKind::RateLimited, Some(21));
    assert_eq!(at_once(vec![vec![Err(late)]], 9), ["rate_limited"]);
}

#[test]
fn a_server_on_this_machine_that_refuses_is_given_up_after_the_time_it_may_take_to_start() {
    let (model, _clock) = retrying(Vec::new(), 50);
    let refused = ModelError {
        retry_within: Some(Duration::from_secs(2)),
        ..error(ModelErrorKind::Connection, None)
    };
    for _ in 0..100 {
        let mut waited = Duration::ZERO;
        for attempt in 1.. {
            let Some(wait) = model.retry_delay(&refused, attempt, waited) else {
                break;
            };
            waited += wait;
        }
        assert_eq!(waited, Duration::from_secs(2));
    }
}

#[test]
fn a_reply_that_breaks_off_is_void_and_requested_again() {
    let broken = vec![
        Ok(Delta::Text("h".into())),
        Err(error(ModelErrorKind::Connection, None)),
    ];
    assert_eq!(at_once(vec![broken], 9), ["piece", "again"]);
}

#[test]
fn a_dropped_stream_does_not_wait() {
    let (model, clock) = retrying(vec![vec![Err(error(ModelErrorKind::Server, None))]], 2);
    let request = ModelRequest::default();
    let mut reply = model.reply(&request);
    assert!(matches!(
        reply.next().now_or_never(),
        Some(Some(Ok(Delta::Retry(_))))
    ));
    assert!(reply.next().now_or_never().is_none());
    drop(reply);
    assert_eq!(clock.sleeper_count(), 0);
}
