//! Truncates results that are too long for a model, and stores the full text for later reads.

mod excerpt;
pub(crate) mod read_tool;
pub(crate) mod shared_text;
mod truncate;

use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerCapabilities, Next, Outcome, RedactionError,
    Redactor, SettledOutcome, Status, note_keys,
};

use crate::{
    BadOption, Configurable, ReadOutput, Resources, SharedRedactor,
    record::ui::detect::listed_files,
    shape::output_cap::{
        excerpt::{StoredText, longest_marker},
        read_tool::store_output,
        shared_text::{SharedText, exceeds_size},
        truncate::middle_range,
    },
};

/// A layer that truncates what the model reads to `max_bytes`: the beginning, a marker, the end.
///
/// The full text is stored, and the marker tells the model how to continue with the tool
/// `read_output`. The layer cannot know whether the model has that tool: register
/// [`ReadOutput`](crate::ReadOutput) with your own tools, or set `read_tool` to nothing, so that
/// the marker does not name it. If the text cannot be stored, it is truncated all the same and the
/// marker states that the rest is lost. The raw value is limited too: a larger one is replaced by a
/// small object that names the stored output. No tool is exempt, whatever it declares.
///
/// With a redactor, the text is redacted before it is stored and shown, so that a secret cannot be
/// read in two halves. If redaction fails, nothing of the result is shown and the status is
/// `redacted`. Layers that inspect results belong below this one; only the list of changed files in
/// a result (`files_changed` or `changes`) is kept in the notes, up to 1000 files, where
/// [`FileChanges`](crate::FileChanges) finds it.
///
/// ```
/// use toolgate_core::Stack;
/// use toolgate_layers::OutputCap;
/// use toolgate_testkit::echo;
///
/// let stack = Stack::over(echo()).layer(OutputCap::new(20_000)).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone)]
pub struct OutputCap {
    options: OutputCapOptions,
    redactor: Option<SharedRedactor>,
    because: Arc<str>,
}

/// Options of [`OutputCap`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutputCapOptions {
    /// Maximum number of bytes of a result that the model reads, including the marker; at least
    /// 512.
    pub max_bytes: usize,
    /// The share of the shown bytes that comes from the beginning, from 0 to 1; the rest comes from
    /// the end.
    pub head: f64,
    /// The text in the gap. `{shown}`, `{total}`, `{output}`, `{offset}` and `{read_tool}` are
    /// filled in. If there is no `read_tool`, a marker that names it is replaced by one that only
    /// states how much is missing.
    pub marker: String,
    /// The tool that the marker names for reading the rest. It has to be registered; an empty text
    /// means none.
    pub read_tool: Option<String>,
}

impl Default for OutputCapOptions {
    fn default() -> Self {
        let marker = "\n…[{shown} of {total} bytes shown; read more with {read_tool} \
             {\"output\":\"{output}\",\"offset\":{offset}}]…\n";
        let read_tool = Some(ReadOutput::NAME.to_owned());
        Self {
            max_bytes: 50_000,
            head: 0.7,
            marker: marker.to_owned(),
            read_tool,
        }
    }
}

impl OutputCap {
    /// Minimum cap: below it there would be little room beside the marker.
    pub const LEAST: usize = 512;

    /// Maximum number of bytes of an error that the operator reads.
    const OPERATOR: usize = 64 * 1024;

    /// Maximum number of changed files in the notes, and of bytes of their names.
    const MOST_FILES: usize = 1000;
    const FILES: usize = 256 * 1024;

    /// Caps results at `max_bytes`, or at [`LEAST`](Self::LEAST) if that is more.
    pub fn new(max_bytes: usize) -> Self {
        let max_bytes = max_bytes.max(Self::LEAST);
        Self::from_options(
            OutputCapOptions {
                max_bytes,
                ..OutputCapOptions::default()
            },
            None,
        )
    }

    /// Redacts the text before it is stored.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    fn from_options(options: OutputCapOptions, redactor: Option<SharedRedactor>) -> Self {
        let because = format!(
            "the result was longer than {} bytes and was truncated",
            options.max_bytes
        )
        .into();
        Self {
            options,
            redactor,
            because,
        }
    }

    /// Checks whether nothing has to be truncated.
    fn is_within_cap(&self, settled: &SettledOutcome) -> bool {
        let most = self.options.max_bytes;
        let short = |error: &CallError| {
            error.model.len() <= most
                && error
                    .operator
                    .as_ref()
                    .is_none_or(|detail| detail.len() <= Self::OPERATOR)
        };
        !exceeds_size(&settled.value, most)
            && settled.text.as_ref().is_none_or(|text| text.len() <= most)
            && settled.error.as_ref().is_none_or(short)
    }

    /// Truncates value, text and error. Returns true if anything had to be truncated.
    async fn truncate_settled(
        &self,
        call: &Call,
        next: &Next,
        settled: &mut SettledOutcome,
    ) -> Result<bool, RedactionError> {
        let most = self.options.max_bytes;
        let mut cut = false;
        let read_as_text = settled.text.is_none() && settled.error.is_none();
        if exceeds_size(&settled.value, most) {
            let kept = self
                .store_text(call, next, settled.value.clone().into())
                .await?;
            if read_as_text {
                settled.text = Some(kept.to_excerpt(&self.options).into());
            }
            self.note_changed_files(call, settled)?;
            settled.value = kept.to_pointer();
            cut = true;
        }
        if let Some(text) = settled.text.take_if(|text| text.len() > most) {
            let kept = self.store_text(call, next, text.into()).await?;
            settled.text = Some(kept.to_excerpt(&self.options).into());
            if let Some(output) = kept.output {
                let full = json!({ "output": output, "bytes": kept.text.as_str().len() });
                settled
                    .notes
                    .fields_mut()
                    .insert(note_keys::FULL_TEXT, &full);
            }
            cut = true;
        }
        if let Some(error) = &mut settled.error {
            cut |= self.truncate_error(call, next, error).await?;
        }
        Ok(cut)
    }

    async fn truncate_error(
        &self,
        call: &Call,
        next: &Next,
        error: &mut CallError,
    ) -> Result<bool, RedactionError> {
        let mut cut = false;
        if error.model.len() > self.options.max_bytes {
            let kept = self
                .store_text(call, next, std::mem::take(&mut error.model).into())
                .await?;
            error.model = kept.to_excerpt(&self.options);
            cut = true;
        }
        if let Some(detail) = &mut error.operator
            && detail.len() > Self::OPERATOR
        {
            let gap = middle_range(detail, Self::OPERATOR - 64, self.options.head);
            let note = format!("\n…[{} bytes omitted]…\n", gap.len());
            detail.replace_range(gap, &note);
            detail.shrink_to_fit();
            cut = true;
        }
        Ok(cut)
    }

    /// Stores the full text, if possible.
    async fn store_text(
        &self,
        call: &Call,
        next: &Next,
        raw: SharedText,
    ) -> Result<StoredText, RedactionError> {
        let clean = match &self.redactor {
            Some(redactor) => redactor.changed_text(raw.as_str())?,
            None => None,
        };
        if clean.is_some() {
            next.note_redaction();
        }
        let text = clean.map_or(raw, Into::into);
        if call.is_rehearsal() {
            return Ok(StoredText { text, output: None });
        }
        // Shared with the store: a long text is not copied.
        let bytes = Bytes::from_owner(text.clone());
        let output = store_output(call.env().store(), call.turn().session, bytes)
            .await
            .ok();
        Ok(StoredText { text, output })
    }

    /// Notes the changed files that a value lists, before the value is replaced.
    fn note_changed_files(
        &self,
        call: &Call,
        settled: &mut SettledOutcome,
    ) -> Result<(), RedactionError> {
        if settled.status != Status::Ok || !call.annotations().may_write() {
            return Ok(());
        }
        let Some(files) = listed_files(&settled.value, Self::MOST_FILES, Self::FILES) else {
            return Ok(());
        };
        let files = match &self.redactor {
            Some(redactor) => redactor.redact(&files)?,
            None => files,
        };
        settled
            .notes
            .fields_mut()
            .insert(note_keys::FILES, files.as_value());
        Ok(())
    }
}

impl Configurable for OutputCap {
    const NAME: &'static str = "output_cap";
    const SUMMARY: &'static str =
        "Truncates results that are too long and stores the full text for later reads.";
    type Options = OutputCapOptions;

    fn configure(options: OutputCapOptions, parts: &Resources) -> Result<Self, BadOption> {
        if options.max_bytes < Self::LEAST {
            return Err(BadOption::new(
                "max_bytes",
                format!("must be at least {}", Self::LEAST),
            ));
        }
        if !(0.0..=1.0).contains(&options.head) {
            return Err(BadOption::new(
                "head",
                "must be a share from 0 to 1, such as 0.7",
            ));
        }
        let read_tool = options.read_tool.filter(|tool| !tool.trim().is_empty());
        let options = OutputCapOptions {
            read_tool,
            ..options
        };
        if longest_marker(&options) > Self::LEAST / 2 {
            return Err(BadOption::new(
                "marker",
                format!(
                    "must be shorter than {} bytes when filled in",
                    Self::LEAST / 2
                ),
            ));
        }
        Ok(Self::from_options(options, parts.get()))
    }
}

impl Layer for OutputCap {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let mut outcome = next.clone().run(call.clone()).await;
        let Outcome::Settled(settled) = &mut outcome else {
            return outcome;
        };
        if self.is_within_cap(settled) {
            return outcome;
        }
        // Boxed, so that calls with short results do not carry the larger future.
        match Box::pin(self.truncate_settled(&call, &next, settled)).await {
            Ok(false) => {}
            Ok(true) => next.note_reason(self.because.clone()),
            Err(RedactionError) => {
                next.note_reason("the long result could not be redacted and is withheld");
                **settled = withheld_outcome(settled);
            }
        }
        outcome
    }

    fn waits_for_outcome(&self, _: &Call) -> bool {
        true
    }

    fn wants_outcome(&self, _: &Call, outcome: &Outcome) -> bool {
        outcome
            .settled()
            .is_some_and(|settled| !self.is_within_cap(settled))
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn capabilities(&self) -> LayerCapabilities {
        // A result that is recovered after its process was lost can be as long as any other.
        let traits = LayerCapabilities::for_kind(Self::NAME).spilling().closing();
        if self.redactor.is_some() {
            traits
        } else {
            traits.recording()
        }
    }
}

/// Returns an outcome without the result, which could not be redacted.
fn withheld_outcome(settled: &SettledOutcome) -> SettledOutcome {
    let mut rest = SettledOutcome::new(Status::Redacted);
    let text = "the call was made, but its result is withheld because it could not be redacted";
    rest.error = Some(CallError::new(ErrorCategory::Internal, text));
    rest.executor = settled.executor.clone();
    rest.notes = settled.notes.clone();
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileChangeKind, FileChanges};
    use serde_json::Value;
    use std::ops::Range;
    use toolgate_core::{
        Annotations, CallEnv, CallSeed, Digest, Json, MemoryStore, Registry, Schema, Stack,
        StoreError, StoreHandle, ToolError, ToolOutput, ToolSpec,
    };
    use toolgate_testkit::{
        FakeExecutor, FaultyStore, ReportProbe, StoreFault, call, run_twice, seed, seed_for,
    };

    async fn run_through(layer: OutputCap, call: Call, outcome: Outcome) -> SettledOutcome {
        let stack = Stack::over(FakeExecutor::new().then(outcome))
            .layer(layer)
            .build()
            .expect("valid order");
        stack.run(call).await.settled().expect("settled").clone()
    }

    async fn read_back(call: &Call, settled: &SettledOutcome, range: Range<u64>) -> String {
        let digest: Digest = settled.value["output"]
            .as_str()
            .expect("named")
            .parse()
            .expect("a digest");
        let bytes = call
            .env()
            .store()
            .blob(digest, range)
            .await
            .expect("the store answers")
            .expect("stored");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn a_result_of_200_mb_is_truncated_stored_and_readable_in_ranges() {
        const SIZE: usize = 200_000_000;
        let call = call("cat");
        let mut huge = "0123456789".repeat(SIZE / 10);
        huge.replace_range(SIZE / 2..SIZE / 2 + 6, "MIDDLE");
        let settled = run_through(OutputCap::new(50_000), call.clone(), Outcome::ok(huge)).await;
        let text = settled.text.as_deref().expect("shortened");
        assert!(
            text.len() <= 50_000 && text.len() > 49_000,
            "{}",
            text.len()
        );
        assert!(text.starts_with("0123456789") && text.ends_with("0123456789"));
        assert!(
            text.contains(
                " of 200,000,000 bytes shown; read more with read_output {\"output\":\"sha256:"
            ),
            "{text}"
        );
        assert!(settled.value_size() < 1000);
        assert_eq!(settled.value["bytes"], SIZE);
        let middle = (SIZE / 2) as u64;
        assert_eq!(
            read_back(&call, &settled, middle - 2..middle + 8).await,
            "89MIDDLE67"
        );
        assert_eq!(
            read_back(&call, &settled, SIZE as u64 - 3..u64::MAX).await,
            "789"
        );
    }

    #[tokio::test]
    async fn a_result_within_the_cap_is_unchanged() {
        let exactly = "x".repeat(512);
        let settled = run_through(
            OutputCap::new(512),
            call("cat"),
            Outcome::ok(exactly.clone()),
        )
        .await;
        assert_eq!(
            (settled.text, settled.value.as_str()),
            (None, Some(exactly.as_str()))
        );
        assert!(settled.notes.is_empty(), "the layer was not entered");
        let more = run_through(OutputCap::new(512), call("cat"), Outcome::ok(exactly + "x")).await;
        assert!(more.text.is_some_and(|text| text.len() <= 512));
    }

    #[tokio::test]
    async fn nested_json_is_truncated_as_the_model_would_have_read_it() {
        let call = call("list");
        let rows: Vec<_> = (0..1000)
            .map(|n| json!({ "n": n, "name": "é\u{1b}" }))
            .collect();
        let whole = Json::new(json!(rows)).expect("flat").to_string();
        let settled =
            run_through(OutputCap::new(2000), call.clone(), Outcome::ok(json!(rows))).await;
        assert!(settled.model_size() <= 2000 && settled.value_size() < 2000);
        assert_eq!(read_back(&call, &settled, 0..u64::MAX).await, whole);
    }

    #[tokio::test]
    async fn a_large_value_with_a_short_text_is_replaced_and_the_text_stays() {
        let output = ToolOutput::from(json!({ "rows": "x".repeat(5000) })).with_text("5000 rows");
        let settled = run_through(OutputCap::new(1000), call("list"), Outcome::ok(output)).await;
        assert_eq!(settled.text.as_deref(), Some("5000 rows"));
        assert_eq!(settled.value["truncated"], true);
    }

    #[tokio::test]
    async fn a_long_text_about_a_small_value_is_truncated_and_the_value_stays() {
        let call = call("list");
        let output = ToolOutput::from(json!({ "rows": 3 })).with_text("x".repeat(5000));
        let settled = run_through(OutputCap::new(1000), call.clone(), Outcome::ok(output)).await;
        assert!(settled.model_size() <= 1000);
        assert_eq!(*settled.value.as_value(), json!({ "rows": 3 }));
        assert_eq!(
            settled.notes.fields().expect("noted").metadata["full_text"]["bytes"],
            5000
        );
    }

    #[tokio::test]
    async fn errors_are_bounded_for_the_model_and_the_operator() {
        let error = ToolError::new("é".repeat(50_000))
            .with_operator_detail("o".repeat(1 << 20))
            .with_category(ErrorCategory::Transient);
        let settled = run_through(OutputCap::new(1000), call("cat"), Outcome::failed(error)).await;
        let error = settled.error.expect("still an error");
        assert!(error.model.len() <= 1000 && error.model.contains("of 100,000 bytes shown"));
        assert!(
            error
                .operator
                .is_some_and(|detail| detail.len() <= 64 * 1024)
        );
        assert_eq!(
            (settled.status, error.category),
            (Status::ExecutorError, ErrorCategory::Transient)
        );
    }

    #[tokio::test]
    async fn a_tool_cannot_exempt_itself() {
        let output = ToolOutput::from("x".repeat(5000)).with_notes(|notes| {
            notes.metadata.insert("output_cap".into(), json!(false));
            notes.metadata.insert("truncated".into(), json!(true));
        });
        let settled = run_through(
            OutputCap::new(1000),
            call("read_output"),
            Outcome::ok(output),
        )
        .await;
        assert!(settled.model_size() <= 1000);
    }

    #[tokio::test]
    async fn a_text_that_cannot_be_stored_is_truncated_and_the_marker_states_it() {
        let env = CallEnv::detached();
        let env = CallEnv::new(
            env.clock().clone(),
            StoreHandle::new(failing_store()),
            env.probe().clone(),
        );
        let call = Call::new(CallSeed {
            env,
            ..seed("cat", json!({}))
        });
        let settled = run_through(OutputCap::new(1000), call, Outcome::ok("x".repeat(5000))).await;
        assert!(settled.is_short() && settled.model_text().contains("the rest was not stored"));
        assert_eq!(
            (settled.status, &settled.value["output"]),
            (Status::Ok, &Value::Null)
        );
    }

    #[tokio::test]
    async fn the_stored_text_is_redacted() {
        let layer = || OutputCap::new(1000).redactor(SharedRedactor::new(CensorRedactor));
        let first = call("cat");
        let settled =
            run_through(layer(), first.clone(), Outcome::ok("s3cret ".repeat(1000))).await;
        assert!(!settled.model_text().contains("s3cret"));
        assert!(
            !read_back(&first, &settled, 0..u64::MAX)
                .await
                .contains("s3cret")
        );
    }

    #[tokio::test]
    async fn a_long_result_that_cannot_be_redacted_is_withheld_whole() {
        let long = "s3cret ".repeat(1000) + "poison";
        let few = ToolOutput::from(json!([long])).with_text("few words");
        let many = ToolOutput::from("small").with_text(long.clone());
        for outcome in [
            Outcome::ok(long.clone()),
            Outcome::ok(few),
            Outcome::ok(many),
            Outcome::failed(ToolError::new(long.clone())),
        ] {
            let layer = OutputCap::new(1000).redactor(SharedRedactor::new(CensorRedactor));
            let settled = run_through(layer, call("cat"), outcome).await;
            assert_eq!(settled.status, Status::Redacted);
            assert_eq!(
                (settled.value.as_value(), &settled.text),
                (&Value::Null, &None)
            );
            let text =
                "the call was made, but its result is withheld because it could not be redacted";
            assert!(settled.model_text().contains(text));
            assert!(
                !serde_json::to_string(&settled)
                    .expect("serialized")
                    .contains("s3cret")
            );
        }
    }

    #[tokio::test]
    async fn the_changed_files_of_a_large_result_are_noted() {
        let registry = Registry::new();
        for (name, annotations) in [
            ("codemod", Annotations::default()),
            ("log", Annotations::read_only()),
        ] {
            let spec =
                ToolSpec::new(name, "Works.", Schema::any_object()).with_annotations(annotations);
            registry.register_host(spec).expect("a new name");
        }
        let view = toolgate_testkit::plain_view(&registry);
        let run = async |tool: &str, paths: Vec<String>| {
            let probe = ReportProbe::new();
            let files: Vec<_> = paths
                .iter()
                .map(|path| json!({ "path": path, "type": "added" }))
                .collect();
            let script = FakeExecutor::new().then(Outcome::ok(json!({ "files_changed": files })));
            let stack = Stack::over(script)
                .layer(FileChanges::new())
                .layer(OutputCap::new(512))
                .build()
                .expect("valid order");
            let seed = probe.attach(seed_for(&view, tool, json!({})));
            let outcome = stack.run(Call::new(seed)).await;
            assert!(outcome.settled().expect("settled").value_size() < 1000);
            probe.files()
        };
        let changes = run("codemod", (0..900).map(|n| format!("src/{n}.rs")).collect()).await;
        assert_eq!((changes.len(), changes[0].path.as_str()), (900, "src/0.rs"));
        assert_eq!(changes[0].change, FileChangeKind::Created);
        assert_eq!(
            run("codemod", (0..3000).map(|n| format!("{n}")).collect())
                .await
                .len(),
            1000
        );
        let long = |n: usize| format!("{n}/{}", "d".repeat(4000));
        assert!(
            (50..70).contains(&run("codemod", (0..900).map(long).collect()).await.len()),
            "limited in bytes too"
        );
        assert!(
            run("log", (0..900).map(|n| format!("src/{n}.rs")).collect())
                .await
                .is_empty(),
            "it only reads"
        );
    }

    #[tokio::test]
    async fn a_rehearsal_stores_nothing() {
        let seed = CallSeed {
            rehearsal: true,
            ..seed("cat", json!({}))
        };
        let remember = toolgate_core::from_fn(async |_, _| Outcome::ok("x".repeat(5000)));
        let stack = Stack::over(FakeExecutor::new())
            .layer(OutputCap::new(1000))
            .layer(remember)
            .build()
            .expect("valid order");
        let outcome = stack.run(Call::new(seed.clone())).await;
        assert!(outcome.settled().expect("settled").is_short());
        let digest = Digest::of_bytes("x".repeat(5000).as_bytes());
        assert!(
            seed.env
                .store()
                .blob(digest, 0..1)
                .await
                .expect("the store answers")
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_call_that_suspends_resumes_with_the_same_outcome() {
        run_twice(OutputCap::new(1000), seed("cat", json!({ "n": 1 })))
            .await
            .assert_replays();
    }

    #[test]
    fn invalid_options_are_rejected() {
        let refused = |change: &dyn Fn(&mut OutputCapOptions)| {
            let mut options = OutputCapOptions::default();
            change(&mut options);
            OutputCap::configure(options, &Resources::new())
                .map(drop)
                .map_err(|error| error.key)
        };
        assert_eq!(refused(&|_| {}), Ok(()));
        assert_eq!(refused(&|options| options.max_bytes = 0), Err("max_bytes"));
        assert_eq!(refused(&|options| options.head = f64::NAN), Err("head"));
        assert_eq!(refused(&|options| options.head = 1.1), Err("head"));
        assert_eq!(
            refused(&|options| options.marker = "x".repeat(1000)),
            Err("marker")
        );
        assert_eq!(
            refused(&|options| options.marker = "{output}".repeat(10)),
            Err("marker")
        );
        assert_eq!(
            refused(&|options| options.marker = "\n...[truncated]".into()),
            Ok(())
        );
        assert_eq!(
            refused(&|options| options.read_tool = Some("x".repeat(300))),
            Err("marker")
        );
        let empty = OutputCapOptions {
            read_tool: Some(" ".into()),
            ..OutputCapOptions::default()
        };
        let layer = OutputCap::configure(empty, &Resources::new()).expect("valid options");
        assert_eq!(layer.options.read_tool, None, "an empty text means none");
    }

    trait ShortOutcome {
        fn is_short(&self) -> bool;
    }

    impl ShortOutcome for SettledOutcome {
        fn is_short(&self) -> bool {
            self.model_size() <= 1000 && self.value_size() <= 1000
        }
    }

    struct CensorRedactor;

    impl Redactor for CensorRedactor {
        fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
            Ok(value.clone())
        }
        fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
            if text.contains("poison") {
                Err(RedactionError)
            } else {
                Ok(text.replace("s3cret", "*"))
            }
        }
    }

    /// Returns a store that fails every operation.
    fn failing_store() -> FaultyStore<MemoryStore> {
        FaultyStore::new(MemoryStore::new(), |_, _| {
            StoreFault::Fail(StoreError::Backend("the disk is full".into()))
        })
    }
}
