//! Writes one receipt per settled call, and lets nothing happen that cannot be written down.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerTraits, Next, Outcome, Settled, Status,
    Timestamp, contained, contained_sync,
};

use crate::{
    BadOption, BothReceipts, CommitmentKey, Configurable, JsonlReceipts, MemoryReceipts, Parts,
    Receipt, ReceiptSink, SharedReceiptSink, SharedRedactor, SinkError, StoreReceipts, Workspace,
    keep::Keeper, passage::Passage,
};

/// Writes a [`Receipt`] for every call that settles, also for those that were refused, denied or only pretended.
///
/// The model notices nothing while receipts can be written. Before a call the sink is asked whether it can write;
/// if not, the call does not run. If writing fails afterwards the model is told that the call ran without a
/// receipt, and every later call through this layer is refused until a new one is built. It stands outermost, so
/// that it sees what every other layer made of the call; a suspended call gets its receipt when it settles. A call that
/// ends outside the stack, because its turn was interrupted or its process was lost, comes by once more
/// ([`Call::closing`]) and gets its receipt then.
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
    keeper: Keeper,
    key: CommitmentKey,
    /// Why the run has stopped, once a receipt was lost.
    lost: Arc<OnceLock<String>>,
}

impl Receipts {
    /// Writes to `sink`.
    pub fn to(sink: impl ReceiptSink) -> Self {
        let (sink, key) = (SharedReceiptSink::new(sink), CommitmentKey::of_process());
        Self {
            sink,
            keeper: Keeper::default(),
            key,
            lost: Arc::default(),
        }
    }

    /// Seals receipts into the ledger `main` of the store. See [`StoreReceipts`] for others.
    pub fn to_store() -> Self {
        Self::to(StoreReceipts::default())
    }

    /// Removes these keys at any depth before anything is hashed or noted. A commitment takes the place of each value.
    pub fn redact<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keeper = self
            .keeper
            .without(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Takes secrets out before anything is hashed or noted.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.keeper = self.keeper.redacting(Some(redactor));
        self
    }

    /// Commits to redacted values under this key, so that whoever has it can prove later what they were.
    pub fn commitment_key(mut self, key: CommitmentKey) -> Self {
        self.key = key;
        self
    }

    /// Writes the receipt of a call that ended outside the stack. The outcome is known; nothing can be kept from
    /// happening any more.
    async fn close(&self, call: Call, next: Next, end: &Settled) -> Outcome {
        let now = call.env().clock().now();
        let known = |at: Timestamp| if at == Timestamp::EPOCH { now } else { at };
        let outcome = next.clone().run(call.clone()).await;
        let (started_at, ended_at) = (known(end.started_at), known(end.ended_at));
        self.recorded(
            Passage {
                call: &call,
                next: &next,
                started_at,
                ended_at,
            },
            outcome,
        )
        .await
    }

    /// The outcome, if its receipt could be written.
    async fn recorded(&self, passage: Passage<'_>, outcome: Outcome) -> Outcome {
        let Some(settled) = outcome.settled() else {
            return outcome;
        };
        match self.write(&passage, settled).await {
            Ok(None) => outcome,
            Ok(Some(uri)) => outcome
                .noting(|notes| drop(notes.metadata.insert("receipt_uri".into(), uri.into()))),
            Err(error) => {
                let lost = || format!("the receipt of {} was lost: {error}", passage.call.id);
                Self::lost(passage.next, settled, self.lost.get_or_init(lost))
            }
        }
    }

    async fn prepare(&self, call: &Call) -> Result<(), SinkError> {
        contained(async { self.sink.prepare(call).await })
            .await
            .unwrap_or_else(|report| Err(SinkError::new(report)))
    }

    async fn write(
        &self,
        passage: &Passage<'_>,
        settled: &Settled,
    ) -> Result<Option<String>, SinkError> {
        let receipt =
            contained_sync(|| Arc::new(Receipt::of(passage, settled, &self.keeper, &self.key)));
        let receipt = receipt.map_err(SinkError::new)?;
        let write = async { self.sink.write(passage.call, &receipt).await };
        contained(write)
            .await
            .unwrap_or_else(|report| Err(SinkError::new(report)))
    }

    /// Nothing happened, because it could not have been written down.
    fn not_recorded(next: &Next, why: &'static str, detail: &str) -> Outcome {
        next.because(why);
        let error = CallError::new(
            ErrorCategory::Internal,
            "the call was not run because it could not be recorded",
        );
        Outcome::error(Status::ExecutorError, error.with_operator(detail))
    }

    /// It happened, and the evidence is lost. What the tool answered is withheld: the run stops here.
    fn lost(next: &Next, settled: &Settled, detail: &str) -> Outcome {
        next.because("the receipt could not be written");
        let text = match next.trail().attempts() {
            0 => "the call did not run, and its receipt could not be written; the run stops here",
            _ => "the call ran, but its receipt could not be written; the run stops here",
        };
        let error = CallError::new(ErrorCategory::Internal, text).with_operator(detail);
        let mut outcome = Outcome::error(Status::LayerException, error).noting(|notes| {
            notes.metadata.insert("receipt_missing".into(), true.into());
            notes
                .metadata
                .insert("settled_as".into(), settled.status.as_str().into());
        });
        if let Some(lost) = outcome.settled_mut() {
            lost.executor.clone_from(&settled.executor);
        }
        outcome
    }
}

impl Layer for Receipts {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if let Some(end) = call.closing().cloned() {
            return Box::pin(self.close(call, next, &end)).await;
        }
        if let Some(detail) = self.lost.get() {
            return Self::not_recorded(&next, "an earlier receipt was lost", detail);
        }
        if call.is_rehearsal() {
            return next.run(call).await;
        }
        if let Err(error) = self.prepare(&call).await {
            return Self::not_recorded(
                &next,
                "the receipt could not be written",
                &error.to_string(),
            );
        }
        let clock = call.env().clock();
        let started_at = clock.now();
        let outcome = next.clone().run(call.clone()).await;
        self.recorded(
            Passage {
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

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).recording().answering()
    }
}

/// Where receipts go and what they leave out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiptsOptions {
    /// Where receipts go.
    pub sink: ReceiptSinkName,
    /// The ledger of the store, for `store` and `both`. `{session}` is replaced by the id of the session, so that each
    /// has a ledger of its own.
    pub ledger: String,
    /// The directory of the files, for `local` and `both`; a relative path starts at the workspace.
    pub dir: PathBuf,
    /// Keys that are removed from arguments, results and notes, at any depth, before they are hashed.
    pub redact: Vec<String>,
}

impl Default for ReceiptsOptions {
    fn default() -> Self {
        let (sink, ledger) = (ReceiptSinkName::Store, "main".to_owned());
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
    /// The sink that the program brings along.
    Host,
    /// What is kept here first: the ledger in the store and the file per session. Then the sink that the program brings
    /// along, if it does. The entry of the ledger becomes durable with the outcome, after the others were told.
    Both,
}

impl Configurable for Receipts {
    const NAME: &'static str = "receipts";
    const SUMMARY: &'static str =
        "Writes one receipt per settled call; what cannot be recorded does not run.";
    type Options = ReceiptsOptions;

    /// A [`CommitmentKey`] among the parts is the key under which redacted values are committed to.
    fn configure(options: ReceiptsOptions, parts: &Parts) -> Result<Self, BadOption> {
        let ReceiptsOptions {
            sink,
            ledger,
            dir,
            redact,
        } = options;
        let store = StoreReceipts::named(&ledger)
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
                "holds an empty name; name the keys to remove",
            ));
        }
        let local = || {
            let root = parts
                .get::<Workspace>()
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
                let missing = "needs a sink that the program brings along; use store or local";
                Self::to(host.ok_or_else(|| BadOption::new("sink", missing))?)
            }
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
            .commitment_key(parts.get().unwrap_or_else(CommitmentKey::of_process));
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
    use toolgate_testkit::{Scripted, call, echo, echo_under, run_twice, seed};

    fn failing() -> impl ReceiptSink {
        receipt_fn(async |_| Err(SinkError::new("disk full")))
    }

    /// A sink that says beforehand that it cannot write.
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
            Box::pin(async { panic!("never asked") })
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
    async fn refused_calls_have_receipts_that_say_why() {
        let kept = MemoryReceipts::default();
        let refusing = from_fn(async |_, next: Next| {
            next.because("rule 7");
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
        assert_eq!(
            receipt.reason.as_deref(),
            Some("Tool execution denied: too risky")
        );
        assert_eq!(receipt.error_category, Some(ErrorCategory::Refused));
        let gate = &receipt.layers[0];
        assert!(
            gate.answered
                && gate.reason.as_deref() == Some("rule 7")
                && gate.name.as_str() == "gate"
        );
    }

    #[tokio::test]
    async fn what_cannot_be_recorded_does_not_run() {
        let executor = Scripted::new();
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
    async fn a_receipt_lost_after_the_effect_is_admitted_and_stops_the_run() {
        let executor = Scripted::new()
            .then(Outcome::ok("done").noting(|notes| notes.summary = Some("inner".into())));
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
    async fn a_lost_receipt_of_a_refused_call_does_not_claim_that_it_ran() {
        let refusing = from_fn(async |_, _| Outcome::refused(Status::Blocked, "no"));
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
    async fn a_sink_that_panics_is_a_sink_that_failed() {
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
    fn options_that_make_no_sense_are_refused() {
        let configure = |options: serde_json::Value, parts: &Parts| {
            let options = serde_json::from_value(options).map_err(|error| error.to_string())?;
            Receipts::configure(options, parts)
                .map(drop)
                .map_err(|bad| bad.key.to_owned())
        };
        let parts = Parts::new();
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
        let parts = Parts::new().with(Workspace::new(dir.path()));
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
