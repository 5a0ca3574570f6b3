//! Writes one receipt per settled call, and runs no call that cannot be recorded.

mod bounds;
mod build;
pub(crate) mod commitment;
pub(crate) mod jsonl;
pub(crate) mod receipt;
pub(crate) mod sanitize;
pub(crate) mod sink;
pub(crate) mod store;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Failure, Layer, LayerCapabilities, Next, Outcome,
    SettledOutcome, Timestamp, note_keys, run_contained, run_contained_sync,
};

use crate::{
    BadOption, BothReceipts, CommitmentKey, Configurable, JsonlReceipts, MemoryReceipts, PathBase,
    Receipt, ReceiptSink, Resources, SharedReceiptSink, SharedRedactor, SinkError, StoreReceipts,
    record::{passage::CallPassage, receipts::sanitize::RecordSanitizer},
};

/// Writes a [`Receipt`] for every call that settles, including blocked and denied calls and dry
/// runs.
///
/// While receipts can be written, the model notices nothing. Before a call, the sink checks that it
/// can write; if it cannot, the call does not run. If writing fails afterwards, the model reads
/// that the call ran without a receipt, and this layer rejects every later call until a new stack
/// is built. The layer is outermost, so that it sees what every other layer did with the call. A
/// suspended call gets its receipt when it settles. A call that ended outside the stack, because
/// its turn was interrupted or its process was lost, enters the stack once more ([`Call::closing_outcome`])
/// and gets its receipt then.
///
/// ```
/// use toolgate_layers::{MemoryReceipts, Receipts};
/// use toolgate_testkit::{call_with, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let kept = MemoryReceipts::default();
/// let stack = echo_under(Receipts::to(kept.clone()).redact(["token"]));
/// stack.run(call_with("echo", serde_json::json!({ "path": "a", "token": "hunter2" }))).await;
/// let text = serde_json::to_string(&kept.receipts()).unwrap();
/// assert!(text.contains("args_digest") && !text.contains("hunter2"));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Receipts {
    sink: SharedReceiptSink,
    keeper: RecordSanitizer,
    key: CommitmentKey,
    /// The reason the run has stopped, once a receipt was lost.
    lost: Arc<OnceLock<String>>,
}

impl Receipts {
    /// Creates a layer that writes to `sink`.
    pub fn to(sink: impl ReceiptSink) -> Self {
        let sink = SharedReceiptSink::new(sink);
        let key = CommitmentKey::process_key();
        Self {
            sink,
            keeper: RecordSanitizer::default(),
            key,
            lost: Arc::default(),
        }
    }

    /// Creates a layer that seals receipts into the ledger `main` of the store. See
    /// [`StoreReceipts`] for others.
    pub fn to_store() -> Self {
        Self::to(StoreReceipts::default())
    }

    /// Removes these keys at any depth before anything is hashed or noted. A commitment replaces
    /// each value.
    pub fn redact<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keeper = self
            .keeper
            .without_keys(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Redacts secrets before anything is hashed or noted.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.keeper = self.keeper.with_redactor(Some(redactor));
        self
    }

    /// Commits to redacted values under this key, so that its owner can prove later what they were.
    pub fn commitment_key(mut self, key: CommitmentKey) -> Self {
        self.key = key;
        self
    }

    /// Writes the receipt of a call that ended outside the stack.
    ///
    /// The outcome is known, so there is no check beforehand: it is too late to prevent the call.
    async fn record_closed_call(&self, call: Call, next: Next, end: &SettledOutcome) -> Outcome {
        let now = call.env().clock().now();
        // A lost process leaves no times behind; the receipt then has the time of its writing.
        let known = |at: Timestamp| if at == Timestamp::EPOCH { now } else { at };
        let outcome = next.clone().run(call.clone()).await;
        let started_at = known(end.started_at);
        let ended_at = known(end.ended_at);
        self.record_outcome(
            CallPassage {
                call: &call,
                next: &next,
                started_at,
                ended_at,
            },
            outcome,
        )
        .await
    }

    /// Writes the receipt and returns the outcome, or an error outcome if the receipt could not be
    /// written.
    async fn record_outcome(&self, passage: CallPassage<'_>, outcome: Outcome) -> Outcome {
        let Some(settled) = outcome.settled() else {
            return outcome;
        };
        match self.write_receipt(&passage, settled).await {
            Ok(None) => outcome,
            Ok(Some(uri)) => outcome.with_notes(|notes| notes.receipt_uri = Some(uri)),
            Err(error) => {
                let lost = || format!("the receipt of {} was lost: {error}", passage.call.id);
                Self::lost_receipt_outcome(passage.next, settled, self.lost.get_or_init(lost))
            }
        }
    }

    /// Checks that the sink can write. A panic of the sink counts as a failure.
    async fn prepare_sink(&self, call: &Call) -> Result<(), SinkError> {
        run_contained(async { self.sink.prepare(call).await })
            .await
            .unwrap_or_else(|report| Err(SinkError::new(report)))
    }

    /// Builds and writes the receipt. A panic of the redactor or the sink counts as a failure.
    async fn write_receipt(
        &self,
        passage: &CallPassage<'_>,
        settled: &SettledOutcome,
    ) -> Result<Option<String>, SinkError> {
        // A panic here has to count as a lost receipt, which stops the run.
        let receipt = run_contained_sync(|| {
            Arc::new(Receipt::from_passage(
                passage,
                settled,
                &self.keeper,
                &self.key,
            ))
        });
        let receipt = receipt.map_err(SinkError::new)?;
        let write = async { self.sink.write(passage.call, &receipt).await };
        run_contained(write)
            .await
            .unwrap_or_else(|report| Err(SinkError::new(report)))
    }

    /// Returns the outcome of a call that was not run because it could not have been recorded.
    fn not_recorded_outcome(next: &Next, why: &'static str, detail: &str) -> Outcome {
        next.note_reason(why);
        let error = CallError::new(
            ErrorCategory::Internal,
            "the call was not run because it could not be recorded",
        );
        Outcome::error(Failure::ExecutorError, error.with_operator_detail(detail))
    }

    /// Returns the outcome of a call whose receipt is lost. The tool's result is withheld and the
    /// run stops.
    fn lost_receipt_outcome(next: &Next, settled: &SettledOutcome, detail: &str) -> Outcome {
        next.note_reason("the receipt could not be written");
        let text = match next.trail().attempts() {
            0 => "the call did not run, and its receipt could not be written; the run stops here",
            _ => "the call ran, but its receipt could not be written; the run stops here",
        };
        let error = CallError::new(ErrorCategory::Internal, text).with_operator_detail(detail);
        let mut outcome = Outcome::error(Failure::LayerException, error).with_notes(|notes| {
            notes.insert(note_keys::RECEIPT_MISSING, &true);
            notes.insert(note_keys::SETTLED_AS, &settled.status);
        });
        if let Some(lost) = outcome.settled_mut() {
            // The executor really ran the call, even if the result is withheld.
            lost.executor.clone_from(&settled.executor);
        }
        outcome
    }
}

impl Layer for Receipts {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // Before the check for a lost receipt: the call has already happened, and its evidence is
        // still wanted.
        if let Some(end) = call.closing_outcome().cloned() {
            return Box::pin(self.record_closed_call(call, next, &end)).await;
        }
        // Fails closed: after a lost receipt the record has a gap, and the cause is likely to
        // persist.
        if let Some(detail) = self.lost.get() {
            return Self::not_recorded_outcome(&next, "an earlier receipt was lost", detail);
        }
        if call.is_rehearsal() {
            return next.run(call).await;
        }
        // Before the call: afterwards it is too late to prevent an effect that cannot be recorded.
        if let Err(error) = self.prepare_sink(&call).await {
            return Self::not_recorded_outcome(
                &next,
                "the receipt could not be written",
                &error.to_string(),
            );
        }
        let clock = call.env().clock();
        let started_at = clock.now();
        let outcome = next.clone().run(call.clone()).await;
        self.record_outcome(
            CallPassage {
                call: &call,
                next: &next,
                started_at,
                ended_at: clock.now(),
            },
            outcome,
        )
        .await
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
            .recording()
            .storing_notes()
            .answering()
    }
}

/// The options of [`Receipts`]: the sink and the keys to leave out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiptsOptions {
    /// The destination of receipts.
    pub sink: ReceiptSinkName,
    /// The ledger of the store, for `store` and `both`. `{session}` is replaced by the id of the
    /// session, so that each session has its own ledger.
    pub ledger: String,
    /// The directory of the files, for `local` and `both`; a relative path starts from the
    /// workspace.
    pub dir: PathBuf,
    /// Keys that are removed from arguments, results and notes, at any depth, before they are
    /// hashed.
    pub redact: Vec<String>,
}

impl Default for ReceiptsOptions {
    fn default() -> Self {
        let sink = ReceiptSinkName::Store;
        let ledger = "main".to_owned();
        Self {
            sink,
            ledger,
            dir: ".toolgate/receipts".into(),
            redact: Vec::new(),
        }
    }
}

/// The sinks that a configuration file can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptSinkName {
    /// A ledger in the store, sealed together with the outcome.
    Store,
    /// A file per session, one line per receipt.
    Local,
    /// Memory, bounded.
    Memory,
    /// The sink that the program provides.
    Host,
    /// The local sinks first: the ledger in the store and the file per session. Then the program's
    /// sink, if it provides one. The entry of the ledger becomes durable with the outcome, after
    /// the other sinks have written.
    Both,
}

impl Configurable for Receipts {
    const NAME: &'static str = "receipts";
    const SUMMARY: &'static str =
        "Writes one receipt per settled call; a call that cannot be recorded does not run.";
    type Options = ReceiptsOptions;

    /// Builds the layer. A [`CommitmentKey`] in the resources is the key for commitments to
    /// redacted values.
    fn configure(options: ReceiptsOptions, parts: &Resources) -> Result<Self, BadOption> {
        let ReceiptsOptions {
            sink,
            ledger,
            dir,
            redact,
        } = options;
        let store = StoreReceipts::for_ledger(&ledger)
            .map_err(|error| BadOption::new("ledger", error.to_string()))?;
        if dir.as_os_str().is_empty() {
            return Err(BadOption::new(
                "dir",
                "is empty; name a directory such as .toolgate/receipts",
            ));
        }
        if redact.iter().any(String::is_empty) {
            return Err(BadOption::new(
                "redact",
                "contains an empty name; name the keys to remove",
            ));
        }
        let local = || {
            let root = parts
                .get::<PathBase>()
                .map(|workspace| workspace.root().to_owned())
                .unwrap_or_default();
            JsonlReceipts::new(root.join(&dir))
        };
        let host = parts.get::<SharedReceiptSink>();
        let receipts = match sink {
            ReceiptSinkName::Store => Self::to(store),
            ReceiptSinkName::Local => Self::to(local()),
            ReceiptSinkName::Memory => Self::to(parts.get_or_default::<MemoryReceipts>()),
            ReceiptSinkName::Host => {
                let missing = "needs a sink that the program provides; use store or local";
                Self::to(host.ok_or_else(|| BadOption::new("sink", missing))?)
            }
            // The local sinks first, so that the host's copy can refer to a record that exists.
            ReceiptSinkName::Both => {
                let here = BothReceipts::new(store, local());
                match host {
                    Some(host) => Self::to(BothReceipts::new(here, host)),
                    None => Self::to(here),
                }
            }
        };
        let receipts = receipts
            .redact(redact)
            .commitment_key(parts.get().unwrap_or_else(CommitmentKey::process_key));
        Ok(match parts.get::<SharedRedactor>() {
            Some(redactor) => receipts.redactor(redactor),
            None => receipts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt_fn;
    use serde_json::json;
    use toolgate_core::{CallSeed, LayerExt, Stack, from_fn};
    use toolgate_core::{Refusal, Status};
    use toolgate_testkit::{FakeExecutor, call, echo, echo_under, run_twice, seed};

    fn failing() -> impl ReceiptSink {
        receipt_fn(async |_| Err(SinkError::new("disk full")))
    }

    /// A sink that reports beforehand that it cannot write.
    struct Closed;

    impl ReceiptSink for Closed {
        fn prepare<'a>(
            &'a self,
            _: &'a Call,
        ) -> futures::future::BoxFuture<'a, Result<(), SinkError>> {
            Box::pin(async { Err(SinkError::new("read-only")) })
        }
        fn write<'a>(
            &'a self,
            _: &'a Call,
            _: &'a Arc<Receipt>,
        ) -> futures::future::BoxFuture<'a, Result<Option<String>, SinkError>> {
            Box::pin(async { panic!("never called") })
        }
    }

    fn error_of(outcome: &Outcome) -> (Status, String, String) {
        let settled = outcome.settled().expect("settled");
        let error = settled.error.clone().expect("an error");
        (
            settled.status,
            error.model,
            error.operator.unwrap_or_default(),
        )
    }

    #[tokio::test]
    async fn blocked_calls_have_receipts_with_the_reason() {
        let kept = MemoryReceipts::default();
        let refusing = from_fn(async |_, next: Next| {
            next.note_reason("rule 7");
            Outcome::denied(Some("too risky"))
        });
        let stack = Stack::over(echo())
            .layer(Receipts::to(kept.clone()))
            .layer(refusing.named("gate").in_band(Band::Decide))
            .build()
            .expect("in order");
        stack.run(call("t")).await;
        let receipt = &kept.receipts()[0];
        assert_eq!((receipt.status, receipt.attempts), (Status::Denied, 0));
        assert_eq!(receipt.reason.as_deref(), Some("too risky"));
        assert_eq!(receipt.error_category, Some(ErrorCategory::Refused));
        let gate = &receipt.layers[0];
        assert!(
            gate.answered
                && gate.reason.as_deref() == Some("rule 7")
                && gate.name.as_str() == "gate"
        );
    }

    #[tokio::test]
    async fn a_call_that_cannot_be_recorded_does_not_run() {
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(Receipts::to(Closed))
            .build()
            .expect("in order");
        let (status, model, operator) = error_of(&stack.run(call("t")).await);
        assert_eq!(status, Status::ExecutorError);
        assert_eq!(
            model,
            "the call was not run because it could not be recorded"
        );
        assert_eq!(operator, "read-only");
        assert!(executor.seen().is_empty());
    }

    #[tokio::test]
    async fn a_receipt_lost_after_the_effect_is_reported_and_stops_the_run() {
        let executor = FakeExecutor::new()
            .then(Outcome::ok("done").with_notes(|notes| notes.summary = Some("inner".into())));
        let stack = Stack::over(executor.clone())
            .layer(Receipts::to(failing()))
            .build()
            .expect("in order");
        let outcome = stack.run(call("t")).await;
        let (status, model, operator) = error_of(&outcome);
        assert_eq!(status, Status::LayerException);
        assert_eq!(
            model,
            "the call ran, but its receipt could not be written; the run stops here"
        );
        assert!(operator.contains("disk full"));
        let notes = outcome
            .settled()
            .expect("settled")
            .notes
            .fields()
            .expect("notes");
        assert_eq!(notes.summary.as_deref(), Some("inner"));
        assert_eq!(notes.metadata["settled_as"], "ok");
        let (status, model, operator) = error_of(&stack.run(call("t")).await);
        assert_eq!(
            (status, model.contains("not run")),
            (Status::ExecutorError, true)
        );
        assert!(operator.contains("disk full"));
        assert_eq!(
            executor.seen().len(),
            1,
            "nothing runs after the run has stopped"
        );
    }

    #[tokio::test]
    async fn a_lost_receipt_of_a_blocked_call_does_not_claim_that_it_ran() {
        let refusing = from_fn(async |_, _| Outcome::refused(Refusal::Blocked, "no"));
        let stack = Stack::over(echo())
            .layer(Receipts::to(failing()))
            .layer(refusing)
            .build()
            .expect("in order");
        assert!(
            error_of(&stack.run(call("t")).await)
                .1
                .starts_with("the call did not run")
        );
    }

    #[tokio::test]
    async fn a_sink_that_panics_counts_as_failed() {
        let sink = receipt_fn(
            |_| -> std::future::Ready<Result<Option<String>, SinkError>> { panic!("hunter2") },
        );
        let (status, model, operator) =
            error_of(&echo_under(Receipts::to(sink)).run(call("t")).await);
        assert_eq!(status, Status::LayerException);
        assert!(model.starts_with("the call ran") && operator.contains("hunter2"));
    }

    #[tokio::test]
    async fn a_suspended_call_gets_one_receipt_when_it_settles() {
        let kept = MemoryReceipts::default();
        let twice = run_twice(Receipts::to(kept.clone()), seed("t", json!({ "n": 1 }))).await;
        twice.assert_replays();
        assert!(twice.first.suspension().is_some());
        let receipts = kept.receipts();
        assert_eq!(receipts.len(), 1);
        assert_eq!(
            (receipts[0].generation, receipts[0].status),
            (1, Status::Ok)
        );
    }

    #[tokio::test]
    async fn a_rehearsal_leaves_no_receipt() {
        let kept = MemoryReceipts::default();
        let stack = echo_under(Receipts::to(kept.clone()));
        let outcome = stack
            .run(Call::new(CallSeed {
                rehearsal: true,
                ..seed("t", json!({}))
            }))
            .await;
        assert_eq!(outcome.status(), Some(Status::DryRun));
        assert!(kept.receipts().is_empty());
    }

    #[test]
    fn options_that_make_no_sense_are_rejected() {
        let configure = |options: serde_json::Value, parts: &Resources| {
            let options = serde_json::from_value(options).map_err(|error| error.to_string())?;
            Receipts::configure(options, parts)
                .map(drop)
                .map_err(|bad| bad.key.to_owned())
        };
        let parts = Resources::new();
        assert_eq!(configure(json!({}), &parts), Ok(()));
        assert_eq!(configure(json!({ "dir": "" }), &parts), Err("dir".into()));
        assert_eq!(
            configure(json!({ "redact": [""] }), &parts),
            Err("redact".into())
        );
        assert_eq!(
            configure(json!({ "sink": "host" }), &parts),
            Err("sink".into())
        );
        assert_eq!(
            configure(json!({ "ledger": "a b" }), &parts),
            Err("ledger".into())
        );
        assert_eq!(
            configure(json!({ "ledger": "sessions/{session}" }), &parts),
            Ok(())
        );
        assert!(configure(json!({ "sink": "Local" }), &parts).is_err());
        assert!(configure(json!({ "sinks": "local" }), &parts).is_err());
        let parts = parts.with(SharedReceiptSink::new(MemoryReceipts::default()));
        assert_eq!(configure(json!({ "sink": "both" }), &parts), Ok(()));
    }

    #[tokio::test]
    async fn a_configured_layer_writes_below_the_workspace_and_shares_memory_with_screens() {
        let dir = tempfile::tempdir().expect("a directory");
        let parts = Resources::new().with(PathBase::new(dir.path()));
        let options = ReceiptsOptions {
            sink: ReceiptSinkName::Local,
            ..ReceiptsOptions::default()
        };
        let layer = Receipts::configure(options, &parts).expect("fine");
        assert!(echo_under(layer).run(call("t")).await.is_ok());
        let file = dir
            .path()
            .join(".toolgate/receipts")
            .join(format!("{}.jsonl", call("t").turn().session));
        assert!(file.is_file());
        let options = ReceiptsOptions {
            sink: ReceiptSinkName::Memory,
            ..ReceiptsOptions::default()
        };
        echo_under(Receipts::configure(options, &parts).expect("fine"))
            .run(call("t"))
            .await;
        assert_eq!(
            parts
                .get::<MemoryReceipts>()
                .expect("there")
                .receipts()
                .len(),
            1
        );
    }
}
