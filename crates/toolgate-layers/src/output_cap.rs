//! Cuts results that are too long for a model, and keeps the whole where the model can read on.

use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{Band, Call, CallError, Layer, LayerTraits, Next, Outcome, Settled};

use crate::{
    BadOption, Configurable, Parts, SharedRedactor,
    cut_text::middle,
    kept_text::{Kept, longest_marker},
    long_text::{LongText, exceeds},
    read_output::keep,
};

/// Shortens what the model reads to `max_bytes`: the beginning, a marker, the end.
///
/// The whole text is kept in the store, and the marker tells the model how to read on with the `read_output` tool. If it
/// cannot be kept, the text is cut all the same and the marker says that the rest is lost. The raw value is bounded
/// too: a larger one is replaced by a small object that names where it is kept. No tool is exempt and nothing a tool says
/// about itself is asked.
///
/// With a redactor, what is kept is redacted first and the model reads from the redacted text, so that a secret cannot be
/// fetched in two halves. Layers that look into results belong below this one.
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

/// What can be set for [`OutputCap`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutputCapOptions {
    /// The most bytes of a result that the model reads, the marker included; at least 512.
    pub max_bytes: usize,
    /// The share of the kept bytes that comes from the beginning, from 0 to 1; the rest comes from the end.
    pub head: f64,
    /// What stands in the gap. `{shown}`, `{total}`, `{output}` and `{offset}` are filled in.
    pub marker: String,
}

impl Default for OutputCapOptions {
    fn default() -> Self {
        let marker = "\n…[{shown} of {total} bytes shown; read more with read_output \
             {\"output\":\"{output}\",\"offset\":{offset}}]…\n";
        Self { max_bytes: 50_000, head: 0.7, marker: marker.to_owned() }
    }
}

impl OutputCap {
    /// The smallest cap: below it there would be little but the marker.
    pub const LEAST: usize = 512;

    /// The most bytes of an error that the operator reads.
    const OPERATOR: usize = 64 * 1024;

    /// Caps results at `max_bytes`, or at [`LEAST`](Self::LEAST) if that is more.
    pub fn new(max_bytes: usize) -> Self {
        let max_bytes = max_bytes.max(Self::LEAST);
        Self::with(OutputCapOptions { max_bytes, ..OutputCapOptions::default() }, None)
    }

    /// Takes secrets out of what is kept.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    fn with(options: OutputCapOptions, redactor: Option<SharedRedactor>) -> Self {
        let because = format!("the result was longer than {} bytes and was cut", options.max_bytes).into();
        Self { options, redactor, because }
    }

    /// Bounds everything that was said. Returns whether anything had to be cut.
    async fn bound(&self, call: &Call, settled: &mut Settled) -> bool {
        let most = self.options.max_bytes;
        let mut cut = false;
        let read_as_text = settled.text.is_none() && settled.error.is_none();
        if exceeds(&settled.value, most) {
            let kept = self.kept(call, settled.value.clone().into()).await;
            if read_as_text {
                settled.text = Some(kept.shortened(&self.options).into());
            }
            settled.value = kept.pointer();
            cut = true;
        }
        if let Some(text) = settled.text.take_if(|text| text.len() > most) {
            let kept = self.kept(call, text.into()).await;
            settled.text = Some(kept.shortened(&self.options).into());
            if let Some(output) = kept.output {
                let full = json!({ "output": output, "bytes": kept.text.as_str().len() });
                settled.notes.edit().metadata.insert("full_text".into(), full);
            }
            cut = true;
        }
        if let Some(error) = &mut settled.error {
            cut |= self.bound_error(call, error).await;
        }
        cut
    }

    async fn bound_error(&self, call: &Call, error: &mut CallError) -> bool {
        let mut cut = false;
        if error.model.len() > self.options.max_bytes {
            let kept = self.kept(call, std::mem::take(&mut error.model).into()).await;
            error.model = kept.shortened(&self.options);
            cut = true;
        }
        if let Some(detail) = &mut error.operator
            && detail.len() > Self::OPERATOR
        {
            let gap = middle(detail, Self::OPERATOR - 64, self.options.head);
            let note = format!("\n…[{} bytes left out]…\n", gap.len());
            detail.replace_range(gap, &note);
            detail.shrink_to_fit();
            cut = true;
        }
        cut
    }

    /// Keeps the whole text, as far as that is allowed and possible.
    async fn kept(&self, call: &Call, raw: LongText) -> Kept {
        let safe = match &self.redactor {
            Some(redactor) => redactor.text(raw.as_str()).map(LongText::from),
            None => Some(raw.clone()),
        };
        let Some(text) = safe else { return Kept { text: raw, output: None } };
        if call.is_rehearsal() {
            return Kept { text, output: None };
        }
        let bytes = Bytes::from_owner(text.clone());
        let output = keep(call.env().store(), call.turn().session, bytes).await.ok();
        Kept { text, output }
    }
}

impl Configurable for OutputCap {
    const NAME: &'static str = "output_cap";
    const SUMMARY: &'static str = "Cuts results that are too long and keeps the whole where the model can read on.";
    type Options = OutputCapOptions;

    fn configure(options: OutputCapOptions, parts: &Parts) -> Result<Self, BadOption> {
        if options.max_bytes < Self::LEAST {
            return Err(BadOption::new("max_bytes", format!("has to be at least {}", Self::LEAST)));
        }
        if !(0.0..=1.0).contains(&options.head) {
            return Err(BadOption::new("head", "has to be a share from 0 to 1, such as 0.7"));
        }
        if longest_marker(&options.marker) > Self::LEAST / 2 {
            return Err(BadOption::new("marker", format!("has to stay below {} bytes, filled in", Self::LEAST / 2)));
        }
        Ok(Self::with(options, parts.get()))
    }
}

impl Layer for OutputCap {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let mut outcome = next.clone().run(call.clone()).await;
        if let Outcome::Settled(settled) = &mut outcome
            && self.bound(&call, settled).await
        {
            next.because(self.because.clone());
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn traits(&self) -> LayerTraits {
        let traits = LayerTraits::of(Self::NAME);
        if self.redactor.is_some() { traits } else { traits.recording() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::ops::Range;
    use toolgate_core::{
        Batch, CallSeed, Digest, Env, ErrorCategory, Event, Json, MemoryStore, Record, RecordKey, RedactionFailed,
        Redactor, SessionId, Stack, Status, Store, StoreError, StoreHandle, ToolError, ToolOutput,
    };
    use toolgate_testkit::{Scripted, call, run_twice, seed};

    async fn through(layer: OutputCap, call: Call, outcome: Outcome) -> Settled {
        let stack = Stack::over(Scripted::new().then(outcome)).layer(layer).build().expect("in order");
        stack.run(call).await.settled().expect("settled").clone()
    }

    async fn read_back(call: &Call, settled: &Settled, range: Range<u64>) -> String {
        let digest: Digest = settled.value["output"].as_str().expect("named").parse().expect("a digest");
        let bytes = call.env().store().blob(digest, range).await.expect("reads").expect("kept");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn a_result_of_200_mb_is_cut_kept_and_readable_in_ranges() {
        const SIZE: usize = 200_000_000;
        let call = call("cat");
        let mut huge = "0123456789".repeat(SIZE / 10);
        huge.replace_range(SIZE / 2..SIZE / 2 + 6, "MIDDLE");
        let settled = through(OutputCap::new(50_000), call.clone(), Outcome::ok(huge)).await;
        let text = settled.text.as_deref().expect("shortened");
        assert!(text.len() <= 50_000 && text.len() > 49_000, "{}", text.len());
        assert!(text.starts_with("0123456789") && text.ends_with("0123456789"));
        assert!(
            text.contains(" of 200,000,000 bytes shown; read more with read_output {\"output\":\"sha256:"),
            "{text}"
        );
        assert!(settled.value_size() < 1000);
        assert_eq!(settled.value["bytes"], SIZE);
        let middle = (SIZE / 2) as u64;
        assert_eq!(read_back(&call, &settled, middle - 2..middle + 8).await, "89MIDDLE67");
        assert_eq!(read_back(&call, &settled, SIZE as u64 - 3..u64::MAX).await, "789");
    }

    #[tokio::test]
    async fn what_fits_is_left_alone() {
        let exactly = "x".repeat(512);
        let settled = through(OutputCap::new(512), call("cat"), Outcome::ok(exactly.clone())).await;
        assert_eq!((settled.text, settled.value.as_str()), (None, Some(exactly.as_str())));
        let layers = settled.notes.fields().map(|notes| notes.layers.clone()).expect("noted");
        assert_eq!((layers[0].changed, layers[0].reason.clone()), (false, None));
        let more = through(OutputCap::new(512), call("cat"), Outcome::ok(exactly + "x")).await;
        assert!(more.text.is_some_and(|text| text.len() <= 512));
    }

    #[tokio::test]
    async fn nested_json_is_cut_as_the_model_would_have_read_it() {
        let call = call("list");
        let rows: Vec<_> = (0..1000).map(|n| json!({ "n": n, "name": "é\u{1b}" })).collect();
        let whole = Json::new(json!(rows)).expect("flat").to_string();
        let settled = through(OutputCap::new(2000), call.clone(), Outcome::ok(json!(rows))).await;
        assert!(settled.model_size() <= 2000 && settled.value_size() < 2000);
        assert_eq!(read_back(&call, &settled, 0..u64::MAX).await, whole);
    }

    #[tokio::test]
    async fn a_large_value_behind_few_words_is_bounded_and_the_words_stay() {
        let output = ToolOutput::from(json!({ "rows": "x".repeat(5000) })).with_text("5000 rows");
        let settled = through(OutputCap::new(1000), call("list"), Outcome::ok(output)).await;
        assert_eq!(settled.text.as_deref(), Some("5000 rows"));
        assert_eq!(settled.value["truncated"], true);
    }

    #[tokio::test]
    async fn many_words_about_a_small_value_are_cut_and_the_value_stays() {
        let call = call("list");
        let output = ToolOutput::from(json!({ "rows": 3 })).with_text("x".repeat(5000));
        let settled = through(OutputCap::new(1000), call.clone(), Outcome::ok(output)).await;
        assert!(settled.model_size() <= 1000);
        assert_eq!(*settled.value.as_value(), json!({ "rows": 3 }));
        assert_eq!(settled.notes.fields().expect("noted").metadata["full_text"]["bytes"], 5000);
    }

    #[tokio::test]
    async fn errors_are_bounded_for_the_model_and_the_operator() {
        let error = ToolError::new("é".repeat(50_000))
            .with_operator("o".repeat(1 << 20))
            .with_category(ErrorCategory::Transient);
        let settled = through(OutputCap::new(1000), call("cat"), Outcome::failed(error)).await;
        let error = settled.error.expect("still an error");
        assert!(error.model.len() <= 1000 && error.model.contains("of 100,000 bytes shown"));
        assert!(error.operator.is_some_and(|detail| detail.len() <= 64 * 1024));
        assert_eq!((settled.status, error.category), (Status::ExecutorError, ErrorCategory::Transient));
    }

    #[tokio::test]
    async fn a_tool_cannot_exempt_itself() {
        let output = ToolOutput::from("x".repeat(5000)).noting(|notes| {
            notes.metadata.insert("output_cap".into(), json!(false));
            notes.metadata.insert("truncated".into(), json!(true));
        });
        let settled = through(OutputCap::new(1000), call("read_output"), Outcome::ok(output)).await;
        assert!(settled.model_size() <= 1000);
    }

    #[tokio::test]
    async fn a_text_that_cannot_be_kept_is_cut_all_the_same_and_the_marker_says_so() {
        let env = Env::detached();
        let env = Env::new(env.clock().clone(), StoreHandle::new(Broken), env.probe().clone());
        let call = Call::new(CallSeed { env, ..seed("cat", json!({})) });
        let settled = through(OutputCap::new(1000), call, Outcome::ok("x".repeat(5000))).await;
        assert!(settled.is_short() && settled.model_text().contains("the rest was not kept"));
        assert_eq!((settled.status, &settled.value["output"]), (Status::Ok, &Value::Null));
    }

    #[tokio::test]
    async fn what_is_kept_is_redacted_or_not_kept() {
        let layer = || OutputCap::new(1000).redactor(SharedRedactor::new(Censor));
        let (first, second) = (call("cat"), call("cat"));
        let long = "s3cret ".repeat(1000);
        let settled = through(layer(), first.clone(), Outcome::ok(long.clone())).await;
        assert!(!settled.model_text().contains("s3cret"));
        assert!(!read_back(&first, &settled, 0..u64::MAX).await.contains("s3cret"));
        let settled = through(layer(), second, Outcome::ok(long + "poison")).await;
        assert_eq!(settled.value["output"], Value::Null);
        assert!(settled.is_short());
    }

    #[tokio::test]
    async fn a_rehearsal_keeps_nothing() {
        let seed = CallSeed { rehearsal: true, ..seed("cat", json!({})) };
        let remember = toolgate_core::from_fn(async |_, _| Outcome::ok("x".repeat(5000)));
        let stack = Stack::over(Scripted::new()).layer(OutputCap::new(1000)).layer(remember).build().expect("in order");
        let outcome = stack.run(Call::new(seed.clone())).await;
        assert!(outcome.settled().expect("settled").is_short());
        let digest = Digest::of_bytes("x".repeat(5000).as_bytes());
        assert!(seed.env.store().blob(digest, 0..1).await.expect("reads").is_none());
    }

    #[tokio::test]
    async fn a_call_that_suspends_comes_back_the_same() {
        run_twice(OutputCap::new(1000), seed("cat", json!({ "n": 1 }))).await.assert_replays();
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |change: &dyn Fn(&mut OutputCapOptions)| {
            let mut options = OutputCapOptions::default();
            change(&mut options);
            OutputCap::configure(options, &Parts::new()).map(drop).map_err(|error| error.key)
        };
        assert_eq!(refused(&|_| {}), Ok(()));
        assert_eq!(refused(&|options| options.max_bytes = 0), Err("max_bytes"));
        assert_eq!(refused(&|options| options.head = f64::NAN), Err("head"));
        assert_eq!(refused(&|options| options.head = 1.1), Err("head"));
        assert_eq!(refused(&|options| options.marker = "x".repeat(1000)), Err("marker"));
        assert_eq!(refused(&|options| options.marker = "{output}".repeat(10)), Err("marker"));
        assert_eq!(refused(&|options| options.marker = "\n...[truncated]".into()), Ok(()));
    }

    trait Short {
        fn is_short(&self) -> bool;
    }

    impl Short for Settled {
        fn is_short(&self) -> bool {
            self.model_size() <= 1000 && self.value_size() <= 1000
        }
    }

    struct Censor;

    impl Redactor for Censor {
        fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
            Ok(value.clone())
        }
        fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
            if text.contains("poison") { Err(RedactionFailed) } else { Ok(text.replace("s3cret", "*")) }
        }
    }

    /// A store that can do nothing.
    struct Broken;

    fn broken<T>() -> Result<T, StoreError> {
        Err(StoreError::Backend("the disk is full".into()))
    }

    impl Store for Broken {
        async fn append(&self, _: SessionId, _: u64, _: Batch) -> Result<u64, StoreError> {
            broken()
        }
        async fn events(&self, _: SessionId, _: u64, _: usize) -> Result<Vec<Arc<Event>>, StoreError> {
            broken()
        }
        async fn revision(&self, _: SessionId) -> Result<u64, StoreError> {
            broken()
        }
        async fn once(&self, _: RecordKey, _: Record) -> Result<Option<Record>, StoreError> {
            broken()
        }
        async fn record(&self, _: &RecordKey) -> Result<Option<Record>, StoreError> {
            broken()
        }
        async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
            MemoryStore::new().put_blob(bytes).await?;
            broken()
        }
        async fn blob(&self, _: Digest, _: Range<u64>) -> Result<Option<Bytes>, StoreError> {
            broken()
        }
    }
}
