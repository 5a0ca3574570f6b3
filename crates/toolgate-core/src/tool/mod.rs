//! Tools: `#[tool]` on a function, a typed closure, or `impl Tool`.

pub(crate) mod annotations;
pub(crate) mod argument;
pub(crate) mod host_values;
pub(crate) mod policy_override;
pub(crate) mod registry;
pub(crate) mod state;
pub(crate) mod transform;
pub(crate) mod view;

use std::{fmt, future::Future, marker::PhantomData, ops::Deref, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Annotations, Arguments, Call, CallError, Digest, ErrorCategory, Executor, FilledTool,
    HostValues, IdempotencyKey, Json, Labels, LogLevel, Notes, Outcome, Progress,
    ReconciledAttempt, Schema, Timestamp, ToolName, error_chain, note_keys,
};

/// A tool that a model can call.
///
/// Implement it by hand when a tool needs a schema of its own; otherwise [`tool_fn`] or the
/// `#[tool]` attribute are shorter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    note = "a `#[tool]` function that takes `State` is a tool once it has it: `{Self}.with_state(…)`"
)]
pub trait Tool: Send + Sync + 'static {
    /// Returns the spec of the tool. Called once, when the tool is registered.
    fn spec(&self) -> ToolSpec;

    /// Runs the tool. The arguments have passed the tool's schema.
    ///
    /// # Errors
    ///
    /// [`ToolError`] if the tool failed. The call settles with it; nothing else is aborted.
    ///
    /// # Cancel safety
    ///
    /// The runtime drops the future when the call is cancelled or times out. Work that does not end
    /// with the future has to be registered with [`Context::on_stop`].
    fn invoke(
        &self,
        arguments: Arguments,
        cx: Context,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;

    /// Finds out whether a call would fail before it changes anything, for explanations.
    ///
    /// It may read, and changes nothing. Implement it with the code that [`Tool::invoke`] runs first,
    /// not with a copy: an explanation has to agree with the tool. By default nothing is known
    /// beforehand.
    ///
    /// # Errors
    ///
    /// The [`ToolError`] that the call would settle with.
    fn rehearse(
        &self,
        _arguments: Arguments,
        _cx: Context,
    ) -> impl Future<Output = Result<(), ToolError>> + Send {
        async { Ok(()) }
    }

    /// Finds out whether the call with this key took effect before the process was lost.
    ///
    /// Only called for tools whose annotations have `reconcile`.
    fn reconcile(
        &self,
        _arguments: Arguments,
        _key: IdempotencyKey,
    ) -> impl Future<Output = ReconciledAttempt> + Send {
        async { ReconciledAttempt::Unknown }
    }

    /// Returns the parameters that the program fills. Called once, when the tool is registered.
    fn host_values(&self) -> HostValues {
        HostValues::default()
    }

    /// Lets the program fill a parameter that the model does not see.
    ///
    /// The value is computed for every call, before anything is decided about it. Without a value
    /// (`None`) the call does not run. If the value changes while a call waits for approval,
    /// approval is requested again.
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use toolgate_core::{Call, Registry, Tool, ToolError, View, tool_fn};
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Refund { tenant: String, amount: u32 }
    ///
    /// let refund = tool_fn("refund", "Sends money back.", async |refund: Refund, _cx| {
    ///     Ok::<_, ToolError>(format!("{} for {}", refund.amount, refund.tenant))
    /// });
    /// let registry = Registry::new();
    /// registry.register(refund.fill("tenant", |_: &Call| Some("north")))?;
    /// let view = toolgate_testkit::plain_view(&registry);
    /// let shown = &view.get("refund").unwrap().spec;
    /// assert_eq!(shown.input.parameters().collect::<Vec<_>>(), ["amount"]);
    /// # Ok::<(), toolgate_core::RegisterError>(())
    /// ```
    fn fill<V: Serialize>(
        self,
        parameter: &str,
        value: impl Fn(&Call) -> Option<V> + Send + Sync + 'static,
    ) -> FilledTool<Self>
    where
        Self: Sized,
    {
        FilledTool::new(self, parameter, value)
    }
}

/// The description of a tool for the model and for the runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The tool's name.
    pub name: ToolName,
    /// The purpose of the tool, as a text for the model.
    pub description: String,
    /// The schema of the arguments.
    pub input: Schema,
    /// The schema of the result, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Schema>,
    /// The effects of the tool.
    #[serde(default)]
    pub annotations: Annotations,
}

impl ToolSpec {
    /// Creates a spec with no output schema and no annotations.
    pub fn new(name: impl Into<ToolName>, description: impl Into<String>, input: Schema) -> Self {
        let name = name.into();
        let description = description.into();
        Self {
            name,
            description,
            input,
            output: None,
            annotations: Annotations::default(),
        }
    }

    /// Sets the annotations.
    pub fn with_annotations(mut self, annotations: Annotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// Sets the schema of the result.
    pub fn with_output(mut self, output: Schema) -> Self {
        self.output = Some(output);
        self
    }

    /// Returns the digest of the whole spec, which reveals an unannounced change of the tool.
    pub fn fingerprint(&self, source: &str) -> Digest {
        let whole = serde_json::json!({
            "name": self.name,
            "description": self.description,
            "input": self.input,
            "output": self.output,
            "annotations": self.annotations,
            "source": source,
        });
        Json::from_shallow(whole).digest()
    }
}

/// The output of a tool: a value, and optionally a different text for the model.
#[derive(Debug, Clone, Default)]
pub struct ToolOutput {
    pub(crate) value: Value,
    pub(crate) text: Option<String>,
    pub(crate) notes: Notes,
}

impl ToolOutput {
    /// Serializes any value.
    ///
    /// # Errors
    ///
    /// [`ToolError`] if the value cannot be represented as JSON.
    pub fn from_value(value: impl Serialize) -> Result<Self, ToolError> {
        let failed = |error| {
            ToolError::new("the tool returned a value that is not JSON")
                .with_operator_detail(format!("{error}"))
        };
        serde_json::to_value(value).map(Self::from).map_err(failed)
    }

    /// Creates output from the bytes a program printed. Invalid UTF-8 is replaced, and a note says
    /// so.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::from(text),
            Err(error) => {
                let output = Self::from(String::from_utf8_lossy(error.as_bytes()).into_owned());
                output
                    .with_notes(|notes| notes.insert(note_keys::ENCODING, "invalid UTF-8 replaced"))
            }
        }
    }

    /// Creates output of text with images and files, for models that can read those.
    pub fn from_media(text: impl Into<String>, media: &[crate::Media]) -> Self {
        let text = text.into();
        let block = |media: &crate::Media| match &media.source {
            crate::MediaSource::Data(data) => {
                let kind = if media.is_image() {
                    "image"
                } else {
                    "resource"
                };
                serde_json::json!({ "type": kind, "mimeType": media.media_type, "data": data, "name": media.name })
            }
            crate::MediaSource::Url(url) => {
                serde_json::json!({ "type": "resource_link", "mimeType": media.media_type, "uri": url })
            }
        };
        let words = serde_json::json!({ "type": "text", "text": text });
        let blocks: Vec<Value> = std::iter::once(words)
            .chain(media.iter().map(block))
            .collect();
        Self::from(serde_json::json!({ "content": blocks })).with_text(text)
    }

    /// Sets the text that the model reads instead of the plain value.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Attaches notes.
    pub fn with_notes(mut self, write: impl FnOnce(&mut crate::NoteFields)) -> Self {
        write(self.notes.fields_mut());
        self
    }
}

impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Value::from(text).into()
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Value::from(text).into()
    }
}

impl From<()> for ToolOutput {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// The error of a tool, with separate texts for the model and the operator.
///
/// Text given to [`ToolError::new`] is read by the model. An error that is converted with `?` is
/// not: it may contain a path, a query or a password, so it goes to the operator, and the model
/// learns only that the tool failed.
///
/// ```
/// use toolgate_core::{ErrorCategory, ToolError};
/// fn port(text: &str) -> Result<u16, ToolError> {
///     Ok(text.parse::<u16>()?)
/// }
/// let error = port("http://user:hunter2@host").unwrap_err();
/// assert_eq!(error.model, "the tool failed");
/// assert_eq!(error.category, ErrorCategory::Internal);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolError {
    /// The kind of failure; it decides whether a retry makes sense.
    pub category: ErrorCategory,
    /// The text for the model: what went wrong and, at best, what to do next.
    pub model: String,
    /// The text for the operator only.
    pub operator: Option<String>,
}

impl ToolError {
    /// Creates an error with a text for the model.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            category: ErrorCategory::Internal,
            model: model.into(),
            operator: None,
        }
    }

    /// Creates an error that a retry may avoid.
    pub fn transient(model: impl Into<String>) -> Self {
        Self::new(model).with_category(ErrorCategory::Transient)
    }

    /// Creates the error of a tool that stopped because the call was cancelled.
    pub fn cancelled() -> Self {
        Self::new("the call was cancelled").with_category(ErrorCategory::Cancelled)
    }

    /// Sets the kind of failure.
    pub fn with_category(mut self, category: ErrorCategory) -> Self {
        self.category = category;
        self
    }

    /// Adds detail for the operator.
    pub fn with_operator_detail(mut self, detail: impl Into<String>) -> Self {
        self.operator = Some(detail.into());
        self
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CallError::from(self.clone()).fmt(f)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.model)
    }
}

impl From<ToolError> for CallError {
    fn from(error: ToolError) -> Self {
        Self {
            operator: error.operator,
            ..Self::new(error.category, error.model)
        }
    }
}

/// The model reads that the tool failed; the operator reads the error and its causes. A lost
/// connection or a timeout of the operating system is worth another attempt.
impl<E: std::error::Error + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let failed = Self::new("the tool failed").with_operator_detail(error_chain(&error));
        if is_passing_io_error(&error) {
            failed.with_category(ErrorCategory::Transient)
        } else {
            failed
        }
    }
}

/// Checks whether the first I/O error among `error` and its causes may pass by itself.
fn is_passing_io_error(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind as K;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(cause) = error.downcast_ref::<std::io::Error>() {
            let is_passing = matches!(
                cause.kind(),
                K::TimedOut
                    | K::Interrupted
                    | K::WouldBlock
                    | K::ConnectionRefused
                    | K::ConnectionReset
                    | K::ConnectionAborted
                    | K::NotConnected
                    | K::BrokenPipe
                    | K::ResourceBusy
                    | K::NetworkDown
                    | K::NetworkUnreachable
                    | K::HostUnreachable
            );
            return is_passing;
        }
        next = error.source();
    }
    false
}

/// The services for a running tool: progress, cancellation, and the call's origin.
///
/// It dereferences to the call it belongs to.
#[derive(Clone)]
pub struct Context(Call);

impl Context {
    /// Creates the context of `call`.
    pub fn new(call: Call) -> Self {
        Self(call)
    }

    /// Reports progress.
    pub fn report_progress(&self, progress: Progress) {
        self.0.env().probe().report_progress(&self.0, progress);
    }

    /// Writes a diagnostic line for the operator; nothing ever depends on it.
    pub fn write_log(&self, level: LogLevel, text: &str) {
        self.0.env().probe().write_log(&self.0, level, text);
    }

    /// Completes when the call should stop. A tool that waits for it can stop cleanly.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn cancelled(&self) {
        self.0.cancel.cancelled().await;
    }

    /// Checks whether the call should stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.is_cancelled()
    }

    /// Registers an action that stops work which outlives the tool's future, such as a child
    /// process.
    ///
    /// The action runs when the call is dropped, panics, or returns after it was cancelled. Its
    /// answer decides whether a writing tool counts as stopped:
    /// [`StopConfirmation::Confirmed`](crate::StopConfirmation::Confirmed) means that no other work of the call was
    /// running. A tool that continues with other work removes the action first:
    ///
    /// ```
    /// # use toolgate_core::{Context, StopConfirmation, ToolError};
    /// # fn kill() -> bool { true }
    /// # async fn wait() {}
    /// # async fn tool(cx: Context) -> Result<(), ToolError> {
    /// let process = cx.on_stop(|| if kill() { StopConfirmation::Confirmed } else { StopConfirmation::Unconfirmed });
    /// wait().await;
    /// process.unregister();
    /// # Ok(()) }
    /// ```
    // Dropping the handle does not remove the action: the handle is dropped together with the
    // tool's future, exactly when the action is needed.
    pub fn on_stop(
        &self,
        stop: impl FnOnce() -> crate::StopConfirmation + Send + 'static,
    ) -> crate::StopHandle {
        self.0.stops().add(stop)
    }

    /// Returns the labels of the session and the run, such as a tenant.
    pub fn labels(&self) -> &Labels {
        &self.0.turn().labels
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.0.env().clock().now()
    }
}

impl Deref for Context {
    type Target = Call;
    fn deref(&self) -> &Call {
        &self.0
    }
}

/// Creates a tool from a typed closure.
///
/// A closure that captures something is written `move |input: Add, cx| { let state = state.clone();
/// async move { … } }`: calls run concurrently, so each needs its own state.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use toolgate_core::{Registry, ToolError, tool_fn};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add { a: i64, b: i64 }
///
/// let registry = Registry::new();
/// registry.register(tool_fn("add", "Adds two numbers.", async |input: Add, _cx| {
///     Ok::<_, ToolError>(input.a + input.b)
/// }))?;
/// # Ok::<(), toolgate_core::RegisterError>(())
/// ```
pub fn tool_fn<I, O, F, Fut>(name: &str, description: &str, run: F) -> ToolFn<I, F>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize,
    F: Fn(I, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolError>> + Send,
{
    ToolFn {
        spec: ToolSpec::new(name, description, Schema::for_type::<I>()),
        run,
        input: PhantomData,
    }
}

/// A tool made by [`tool_fn`].
pub struct ToolFn<I, F> {
    spec: ToolSpec,
    run: F,
    input: PhantomData<fn(I)>,
}

impl<I, F> ToolFn<I, F> {
    /// Sets the annotations.
    pub fn with_annotations(mut self, annotations: Annotations) -> Self {
        self.spec.annotations = annotations;
        self
    }
}

impl<I, F> fmt::Debug for ToolFn<I, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolFn")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl<I, O, F, Fut> Tool for ToolFn<I, F>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize,
    F: Fn(I, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolError>> + Send,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let output = (self.run)(parse_arguments(&arguments)?, cx).await?;
        ToolOutput::from_value(output)
    }
}

/// Deserializes arguments as the type a tool takes.
///
/// The schema has been checked before, so this fails only where the type is stricter than its
/// schema.
///
/// # Errors
///
/// [`ToolError`] of the category `invalid_input`; the detail is for the operator.
pub fn parse_arguments<I: DeserializeOwned>(arguments: &Arguments) -> Result<I, ToolError> {
    let misfit = |error: serde_json::Error| {
        // serde's message may quote the value, so it goes only to the operator.
        ToolError::new("the arguments do not fit what the tool takes")
            .with_category(ErrorCategory::InvalidInput)
            .with_operator_detail(error.to_string())
    };
    I::deserialize(arguments.as_json().as_value()).map_err(misfit)
}

/// The executor of one in-process tool.
pub(crate) struct NativeExecutor<T>(pub(crate) Arc<T>);

impl<T: Tool> Executor for NativeExecutor<T> {
    async fn execute(&self, call: Call) -> Outcome {
        let arguments = call.arguments.clone();
        self.0.invoke(arguments, Context::new(call)).await.into()
    }

    async fn rehearse(&self, call: Call) -> Option<Outcome> {
        let arguments = call.arguments.clone();
        let failed = self.0.rehearse(arguments, Context::new(call)).await.err()?;
        Some(Err::<ToolOutput, _>(failed).into())
    }

    async fn reconcile(&self, call: &Call, key: IdempotencyKey) -> ReconciledAttempt {
        self.0.reconcile(call.arguments.clone(), key).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_utf_8_from_a_tool_is_replaced_and_noted() {
        let output = ToolOutput::from_bytes(vec![b'a', 0xff, b'b']);
        assert_eq!(output.value, "a\u{fffd}b");
        assert!(!output.notes.is_empty());
        assert!(ToolOutput::from_bytes(b"plain".to_vec()).notes.is_empty());
    }

    #[test]
    fn a_converted_error_keeps_its_text_from_the_model() {
        let io = std::io::Error::other("postgres://u:hunter2@db refused");
        let error = ToolError::from(io);
        assert!(!error.model.contains("hunter2"));
        assert!(!format!("{error:?}").contains("hunter2"));
        assert!(error.operator.expect("kept").contains("hunter2"));
    }

    #[test]
    fn a_lost_connection_or_a_timeout_is_worth_another_attempt() {
        use std::io::{Error, ErrorKind as K};
        for kind in [K::TimedOut, K::ConnectionReset, K::ConnectionRefused] {
            let direct = ToolError::from(Error::from(kind));
            // An I/O error that another error wraps counts as well.
            let wrapped = ToolError::from(crate::StoreError::Backend(Error::from(kind).into()));
            for error in [direct, wrapped] {
                assert_eq!(error.category, ErrorCategory::Transient, "{kind:?}");
            }
        }
        let error = ToolError::from(Error::from(K::InvalidData));
        assert_ne!(error.category, ErrorCategory::Transient);
    }

    #[test]
    fn every_part_of_a_tool_is_in_its_fingerprint() {
        let spec = ToolSpec::new("a", "does a", Schema::any_object());
        let base = spec.fingerprint("native");
        let same = ToolSpec::new(
            "a",
            "does a",
            Schema::new(serde_json::json!({ "type": "object" })).expect("valid"),
        );
        assert_eq!(same.fingerprint("native"), base);
        let other =
            Schema::new(serde_json::json!({ "type": "object", "required": [] })).expect("valid");
        let variants = [
            ToolSpec::new("b", "does a", Schema::any_object()).fingerprint("native"),
            ToolSpec::new("a", "does b", Schema::any_object()).fingerprint("native"),
            ToolSpec::new("a", "does a", other.clone()).fingerprint("native"),
            spec.clone().with_output(other).fingerprint("native"),
            spec.clone()
                .with_annotations(Annotations::read_only())
                .fingerprint("native"),
            spec.fingerprint("mcp_server:x"),
        ];
        for variant in variants {
            assert_ne!(variant, base);
        }
    }
}
