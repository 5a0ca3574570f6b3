//! The [`Layer`] trait, its bands and capabilities, and the `next` that a layer runs.

use std::{any::TypeId, fmt, future::Future, sync::Arc};

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ApprovalAnswer, Call, Decision, DecisionCallbacks, Json, Keyring, LayerName, Matcher, Outcome,
    StoreError, ToolSpec, Transform,
    call::requirement::ApprovalRequirements,
    stack::{
        LayerFrame, StackRank,
        descend::{CallDescent, StackPosition, StartHook, descend_from, layer_failure},
        waiting::{PassedLayers, ReadyOutcome},
    },
};

/// Wraps calls: an `async fn(call, next) -> outcome`.
///
/// A layer may look, change the call, answer without `next`, run `next` again (`next.clone()`), or
/// change the outcome. It never fails: a rejection or a failed tool is an outcome the model can
/// read. After a suspension the call runs again from the top with its answer attached, so anything
/// that must happen once is stored under the call's id ([`Next::perform_once`]).
///
/// ```
/// use toolgate_core::{Band, Call, Layer, Next, Outcome, Refusal};
///
/// /// Blocks calls while the office is closed.
/// struct OfficeHours { open: bool }
///
/// impl Layer for OfficeHours {
///     async fn handle(&self, call: Call, next: Next) -> Outcome {
///         if !self.open {
///             return Outcome::refused(Refusal::Blocked, "the office is closed");
///         }
///         next.run(call).await
///     }
///
///     fn band(&self) -> Band {
///         Band::Decide
///     }
/// }
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Handles one call.
    fn handle(&self, call: Call, next: Next) -> impl Future<Output = Outcome> + Send;

    /// Returns the layer's name in notes, warnings and configuration; by default its type's name.
    fn name(&self) -> LayerName {
        LayerName::from(layer_name_from_type(std::any::type_name::<Self>()))
    }

    /// Returns the band of the stack in which the layer belongs.
    fn band(&self) -> Band {
        Band::Shape
    }

    /// Returns the matcher that picks the calls it wraps; without one, it wraps every call that
    /// passes [`Layer::applies_to`].
    fn matcher(&self) -> Option<&Matcher> {
        None
    }

    /// Checks whether the layer applies to this call. A layer that does not is skipped and leaves
    /// no note. [`Layer::matcher`] restricts a layer to tools; this is for what only the call
    /// shows.
    fn applies_to(&self, call: &Call) -> bool {
        let _ = call;
        true
    }

    /// Checks whether the layer has nothing to do before the outcome of this call is there. Then the
    /// call passes it without entering, which costs nothing and leaves no note. Once there is an
    /// outcome, the layer is entered only if [`Layer::wants_outcome`] says so: its first run of
    /// `next` returns that outcome, and a further one is a real run.
    ///
    /// For a layer that only acts on some outcomes, such as one that retries failures. It must not
    /// change the call: a woken layer that passes on other arguments in its first run fails. A
    /// rehearsal enters every layer, so that an explanation lists it.
    fn waits_for_outcome(&self, call: &Call) -> bool {
        let _ = call;
        false
    }

    /// Checks whether a layer that waited is entered for this outcome; by default, if the call did
    /// not succeed.
    fn wants_outcome(&self, call: &Call, outcome: &Outcome) -> bool {
        let _ = call;
        !outcome.is_ok()
    }

    /// Returns the transform that belongs to this layer, for one that also rewrites tool specs.
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        None
    }

    /// Returns what a linter should know about the layer.
    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::default()
    }

    /// Returns the keys with which the layer verifies approvals, if it accepts only signed ones.
    /// The runtime has to sign with keys that it knows.
    fn approval_keys(&self) -> Option<&Keyring> {
        None
    }

    /// Returns the callbacks for decisions on the requests of this layer, if there are any. The
    /// service that accepts a decision calls them when it is made.
    fn decision_callbacks(&self) -> Option<&DecisionCallbacks> {
        None
    }
}

/// The capabilities of a layer that matter for its position, mostly for a linter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerCapabilities {
    /// The configuration name of this kind of layer, independent of the name of one instance.
    pub kind: Option<&'static str>,
    /// It may pass on other arguments than it was given.
    pub rewrites: bool,
    /// It may answer without running `next`.
    pub answers: bool,
    /// It stores or sends what it sees, unredacted.
    pub records: bool,
    /// It redacts secrets in outcomes. Only such a layer may also redact notes made below it.
    pub redacts: bool,
    /// It may answer with the cached result of an earlier call.
    pub remembers: bool,
    /// It may run `next` more than once.
    pub repeats: bool,
    /// It asks for approval, and meets the requirements of layers above.
    pub asks: bool,
    /// It may require approval, for which a layer further in asks.
    pub requires_approval: bool,
    /// It sees a call that ended outside the stack, although it neither records nor redacts.
    pub closes: bool,
    /// It stores the full text of long results.
    pub spills: bool,
    /// It counts or charges every call that passes.
    pub counts: bool,
    /// It settles calls as dry runs.
    pub dry_runs: bool,
    /// It adds notes to outcomes that belong in the record of the call.
    pub annotates: bool,
    /// It stores the notes of an outcome in its record of the call.
    pub stores_notes: bool,
    /// It stops calls after attempts have failed.
    pub breaks: bool,
    /// The longest time it gives the layers and executor below.
    pub time_limit: Option<std::time::Duration>,
}

/// Writes a builder function for each capability.
macro_rules! capability_setters {
    ($($(#[$doc:meta])* $name:ident => $field:ident;)*) => {
        $($(#[$doc])* pub const fn $name(self) -> Self {
            Self { $field: true, ..self }
        })*
    };
}

impl LayerCapabilities {
    /// Creates the capabilities of a layer that a configuration file names `kind`; all are off.
    pub const fn for_kind(kind: &'static str) -> Self {
        Self {
            kind: Some(kind),
            rewrites: false,
            answers: false,
            records: false,
            redacts: false,
            remembers: false,
            repeats: false,
            asks: false,
            requires_approval: false,
            closes: false,
            spills: false,
            counts: false,
            dry_runs: false,
            annotates: false,
            stores_notes: false,
            breaks: false,
            time_limit: None,
        }
    }

    capability_setters! {
        /// Marks a layer that may pass on other arguments than it was given.
        rewriting => rewrites;
        /// Marks a layer that may answer without running `next`.
        answering => answers;
        /// Marks a layer that stores or sends what it sees.
        recording => records;
        /// Marks a layer that redacts secrets in outcomes.
        redacting => redacts;
        /// Marks a layer that may answer with the cached result of an earlier call.
        caching => remembers;
        /// Marks a layer that may run `next` more than once.
        repeating => repeats;
        /// Marks a layer that asks for approval ([`Next::run_approved`]).
        asking => asks;
        /// Marks a layer that may require approval ([`Call::require_approval`]).
        requiring_approval => requires_approval;
        /// Marks a layer that sees a call that ended outside the stack; see [`Call::closing_outcome`].
        closing => closes;
        /// Marks a layer that stores the full text of long results.
        spilling => spills;
        /// Marks a layer that counts or charges every call that passes.
        counting => counts;
        /// Marks a layer that settles calls as dry runs.
        dry_running => dry_runs;
        /// Marks a layer that adds notes to outcomes that belong in the record of the call.
        annotating => annotates;
        /// Marks a layer that stores the notes of an outcome in its record of the call.
        storing_notes => stores_notes;
        /// Marks a layer that stops calls after attempts have failed.
        breaking => breaks;
    }

    /// Sets the longest time it gives the layers and executor below.
    pub const fn limiting(self, span: std::time::Duration) -> Self {
        Self {
            time_limit: Some(span),
            ..self
        }
    }
}

/// The order of a stack, outermost first. The order is a security property: nothing rewrites a call
/// after the decision, a retry never asks for approval again, and recorders see blocked and denied
/// calls.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Band {
    /// Records what happened.
    Record,
    /// Shapes what goes in and what comes out.
    Shape,
    /// Decides whether it may happen.
    Decide,
    /// Decides how often it happens.
    Repeat,
    /// Bounds the last step.
    Bound,
}

impl Band {
    /// All bands, outermost first.
    pub const ALL: [Self; 5] = [
        Self::Record,
        Self::Shape,
        Self::Decide,
        Self::Repeat,
        Self::Bound,
    ];
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Record => "record",
            Self::Shape => "shape",
            Self::Decide => "decide",
            Self::Repeat => "repeat",
            Self::Bound => "bound",
        })
    }
}

/// The rest of the stack below a layer. It can be cloned, and run as often as needed while the call
/// is in the stack.
///
/// Where layers decide, it belongs to one pass of the call: from the first deciding layer down, every
/// run has to have the arguments that this pass decides on, and none is possible once the pass has
/// ended. A run that breaks this settles as `policy_blocked`.
#[derive(Clone)]
pub struct Next {
    pub(crate) run: Arc<CallDescent>,
    /// The first frame below the layer.
    pub(crate) at: usize,
    /// The layer's own entry on the trail.
    pub(crate) entry: usize,
    /// The pass through the deciding layers that the layer belongs to.
    pub(crate) pass: usize,
    /// The arguments the layer was given, to see whether it changed them.
    pub(crate) given: crate::Arguments,
    /// The requirements that the layer was entered with and cannot remove.
    pub(crate) required: ApprovalRequirements,
    /// The outcome that the layer was woken for, which the first run returns.
    pub(crate) ready: Option<ReadyOutcome>,
}

impl Next {
    /// Runs the rest of the stack. Each run that reaches the executor is a separate attempt.
    // Not an `async fn`: the future of what is below is boxed once, so a layer's own future stays
    // small.
    pub fn run(self, call: Call) -> impl Future<Output = Outcome> + Send + 'static {
        let call = call.inherit_requirements(&self.required);
        if call.requirements().has_more_than(&self.required) {
            self.run.set_requires_approval(self.entry);
        }
        self.descend(call)
    }

    /// Runs the rest of the stack with a call that was approved: the requirements of layers above
    /// are met for its arguments.
    ///
    /// For a layer that asks ([`LayerCapabilities::asks`]), once it has verified the approval.
    pub fn run_approved(self, call: Call) -> impl Future<Output = Outcome> + Send + 'static {
        let call = call
            .inherit_requirements(&self.required)
            .with_requirements_met();
        self.descend(call)
    }

    /// Checks whether the outcome of the first run is already there: the layer waited for it
    /// ([`Layer::waits_for_outcome`]), so the call has run, and must not be answered as if it had
    /// not.
    pub fn has_outcome(&self) -> bool {
        self.ready.as_ref().is_some_and(ReadyOutcome::is_there)
    }

    fn descend(self, call: Call) -> BoxFuture<'static, Outcome> {
        if let Some(outcome) = self.ready.as_ref().and_then(ReadyOutcome::take) {
            return Box::pin(std::future::ready(self.return_ready(&call, outcome)));
        }
        self.run
            .record_arguments(self.entry, &self.given, &call.arguments);
        let below = StackPosition {
            run: self.run,
            at: self.at,
            parent: self.entry,
            pass: self.pass,
            opens_pass: false,
            passed: PassedLayers::default(),
            unsealed: None,
            ready: None,
        };
        descend_from(below, call)
    }

    /// Returns the outcome that the layer was woken for, unless the layer has changed the call that
    /// led to it.
    fn return_ready(&self, call: &Call, outcome: Outcome) -> Outcome {
        let is_same =
            self.given.is_same(&call.arguments) || self.given.digest() == call.arguments.digest();
        if is_same {
            outcome
        } else {
            layer_failure(
                self.layer_name(),
                "it changed the arguments of a call that had already run",
                None,
            )
        }
    }

    /// Runs `hook` immediately before the first attempt of the call, if there is one.
    pub(crate) fn on_start(&self, hook: StartHook) {
        self.run.add_start_hook(self.at - 1, hook);
    }

    /// Checks whether a layer further in that wraps this call asks for approval.
    pub fn asks_below(&self, call: &Call) -> bool {
        let asks = |frame: &LayerFrame| frame.asks && matches!(frame.wants_call(call), Ok(true));
        self.run.plan.frames[self.at..].iter().any(asks)
    }

    /// Checks whether the layer that holds this `next` is restricted to the calls of a matcher.
    pub fn is_restricted(&self) -> bool {
        self.layer_frame().layer.matcher().is_some()
    }

    /// Returns the decision on the approval request that this layer made for this call, unchanged.
    ///
    /// A decision that another layer asked for, or that was made about other arguments or another
    /// version of the tool, is not returned: the layer has to ask again.
    pub fn decision_on<'a>(&self, call: &'a Call) -> Option<&'a Decision> {
        let digest = call.arguments.digest();
        // The approver did not see another version of the tool under the same name.
        let fingerprint = call.shown_tool().map(|shown| shown.entry.fingerprint);
        let mine = self.layer_name();
        let edits = self.run.edits_above(self.at);
        let about_this = |answer: &&ApprovalAnswer| {
            answer.asked_by == *mine
                && answer.fingerprint == fingerprint
                && answer.covers_arguments(digest, edits)
        };
        call.resume_state()
            .answers
            .iter()
            // The newest first: a layer that asked again decides by the last answer.
            .rev()
            .find(about_this)
            .map(|answer| &answer.decision)
    }

    /// Performs `act` once for this call and this layer, however often the call runs again. See
    /// [`Call::perform_once`].
    pub async fn perform_once<F, Fut>(
        &self,
        call: &Call,
        key: &str,
        act: F,
    ) -> Result<Json, StoreError>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Json>,
    {
        call.perform_once(&format!("{}/{key}", self.layer_name()), act)
            .await
    }

    /// Returns the name of the layer that holds this `next`, unique within the stack.
    pub fn layer_name(&self) -> &LayerName {
        &self.layer_frame().name
    }

    fn layer_frame(&self) -> &LayerFrame {
        &self.run.plan.frames[self.at - 1]
    }

    /// Records the reason for what the layer does with this call. The reason is part of its note,
    /// so an explanation and the receipt give the same text.
    pub fn note_reason(&self, reason: impl Into<Arc<str>>) {
        self.run.set_reason(self.entry, reason.into());
    }

    /// Records that the layer redacted something in the outcome, so that screens can say so.
    pub fn note_redaction(&self) {
        self.run.set_redacted(self.entry);
    }

    /// Returns what has happened below so far: one note per layer entered, in order of entering.
    pub fn trail(&self) -> crate::Trail {
        crate::Trail(self.run.clone())
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next")
            .field("layer", self.layer_name())
            .finish_non_exhaustive()
    }
}

/// The object-safe form of [`Layer`] that stacks store.
pub(crate) trait DynLayer: Send + Sync {
    /// Runs the layer under the descent's guard (notes, panics) in one allocation.
    fn enter_boxed(
        self: Arc<Self>,
        place: StackPosition,
        call: Call,
    ) -> BoxFuture<'static, Outcome>;
    /// Runs the layer for another layer that wraps it; the outer one is on the trail.
    fn handle_boxed(self: Arc<Self>, call: Call, next: Next) -> BoxFuture<'static, Outcome>;
    fn name(&self) -> LayerName;
    fn band(&self) -> Band;
    fn matcher(&self) -> Option<&Matcher>;
    fn applies_to(&self, call: &Call) -> bool;
    fn waits_for_outcome(&self, call: &Call) -> bool;
    fn wants_outcome(&self, call: &Call, outcome: &Outcome) -> bool;
    fn transform(&self) -> Option<Arc<dyn Transform>>;
    fn capabilities(&self) -> LayerCapabilities;
    fn approval_keys(&self) -> Option<&Keyring>;
    fn decision_callbacks(&self) -> Option<&DecisionCallbacks>;
}

impl<L: Layer> DynLayer for L {
    fn enter_boxed(
        self: Arc<Self>,
        place: StackPosition,
        call: Call,
    ) -> BoxFuture<'static, Outcome> {
        Box::pin(crate::stack::descend::enter_layer(
            place,
            call,
            move |call, next| async move { Layer::handle(&*self, call, next).await },
        ))
    }
    fn handle_boxed(self: Arc<Self>, call: Call, next: Next) -> BoxFuture<'static, Outcome> {
        Box::pin(async move { Layer::handle(&*self, call, next).await })
    }
    fn name(&self) -> LayerName {
        Layer::name(self)
    }
    fn band(&self) -> Band {
        Layer::band(self)
    }
    fn matcher(&self) -> Option<&Matcher> {
        Layer::matcher(self)
    }
    fn applies_to(&self, call: &Call) -> bool {
        Layer::applies_to(self, call)
    }
    fn waits_for_outcome(&self, call: &Call) -> bool {
        Layer::waits_for_outcome(self, call)
    }
    fn wants_outcome(&self, call: &Call, outcome: &Outcome) -> bool {
        Layer::wants_outcome(self, call, outcome)
    }
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        Layer::transform(self)
    }
    fn capabilities(&self) -> LayerCapabilities {
        Layer::capabilities(self)
    }
    fn approval_keys(&self) -> Option<&Keyring> {
        Layer::approval_keys(self)
    }
    fn decision_callbacks(&self) -> Option<&DecisionCallbacks> {
        Layer::decision_callbacks(self)
    }
}

/// A layer of any type, for lists that are built at run time.
#[derive(Clone)]
pub struct AnyLayer(pub(crate) Arc<dyn DynLayer>);

impl AnyLayer {
    /// Erases the type of a layer.
    pub fn new(layer: impl Layer) -> Self {
        Self(Arc::new(layer))
    }

    /// Returns the layer's name.
    pub fn name(&self) -> LayerName {
        self.0.name()
    }

    /// Returns the layer's band.
    pub fn band(&self) -> Band {
        self.0.band()
    }

    /// Returns what a linter should know about it.
    pub fn capabilities(&self) -> LayerCapabilities {
        self.0.capabilities()
    }

    /// Returns its place in the order of a stack.
    pub fn stack_rank(&self) -> StackRank {
        StackRank::new(self.band(), self.capabilities().asks)
    }
}

impl Layer for AnyLayer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        self.0.clone().handle_boxed(call, next).await
    }
    fn name(&self) -> LayerName {
        self.0.name()
    }
    fn band(&self) -> Band {
        self.0.band()
    }
    fn matcher(&self) -> Option<&Matcher> {
        self.0.matcher()
    }
    fn applies_to(&self, call: &Call) -> bool {
        self.0.applies_to(call)
    }
    fn waits_for_outcome(&self, call: &Call) -> bool {
        self.0.waits_for_outcome(call)
    }
    fn wants_outcome(&self, call: &Call, outcome: &Outcome) -> bool {
        self.0.wants_outcome(call, outcome)
    }
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        self.0.transform()
    }
    fn capabilities(&self) -> LayerCapabilities {
        self.0.capabilities()
    }
    fn approval_keys(&self) -> Option<&Keyring> {
        self.0.approval_keys()
    }
    fn decision_callbacks(&self) -> Option<&DecisionCallbacks> {
        self.0.decision_callbacks()
    }
}

impl fmt::Debug for AnyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyLayer({})", self.name())
    }
}

/// Renames a layer, moves it to another band, or restricts it to some calls.
pub trait LayerExt: Layer + Sized {
    /// Gives the layer another name.
    fn named(self, name: &str) -> AdjustedLayer<Self> {
        AdjustedLayer {
            name: Some(name.into()),
            ..AdjustedLayer::from_layer(self)
        }
    }

    /// Moves the layer to another band.
    fn in_band(self, band: Band) -> AdjustedLayer<Self> {
        AdjustedLayer {
            band: Some(band),
            ..AdjustedLayer::from_layer(self)
        }
    }

    /// Restricts the layer to the calls that `matcher` picks.
    fn on(self, matcher: Matcher) -> AdjustedLayer<Self> {
        AdjustedLayer {
            on: Some(matcher),
            ..AdjustedLayer::from_layer(self)
        }
    }
}

impl<L: Layer> LayerExt for L {}

/// A layer with another name, band or matcher.
#[derive(Debug, Clone)]
pub struct AdjustedLayer<L> {
    layer: L,
    name: Option<LayerName>,
    band: Option<Band>,
    on: Option<Matcher>,
}

impl<L> AdjustedLayer<L> {
    fn from_layer(layer: L) -> Self {
        Self {
            layer,
            name: None,
            band: None,
            on: None,
        }
    }
}

impl<L: Layer> Layer for AdjustedLayer<L> {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        self.layer.handle(call, next).await
    }
    fn name(&self) -> LayerName {
        self.name.clone().unwrap_or_else(|| self.layer.name())
    }
    fn band(&self) -> Band {
        self.band.unwrap_or_else(|| self.layer.band())
    }
    fn matcher(&self) -> Option<&Matcher> {
        self.on.as_ref().or_else(|| self.layer.matcher())
    }
    fn applies_to(&self, call: &Call) -> bool {
        // With two matchers both have to agree; the stack asks the outer one.
        let inner = self.layer.matcher().filter(|_| self.on.is_some());
        inner.is_none_or(|inner| inner.matches(call)) && self.layer.applies_to(call)
    }
    fn waits_for_outcome(&self, call: &Call) -> bool {
        self.layer.waits_for_outcome(call)
    }
    fn wants_outcome(&self, call: &Call, outcome: &Outcome) -> bool {
        self.layer.wants_outcome(call, outcome)
    }
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        // Restricted like the layer: otherwise a tool would show a parameter that no layer removes.
        let transform = self.layer.transform()?;
        Some(match self.on.clone() {
            Some(matcher) => Arc::new(MatchedTransform { transform, matcher }),
            None => transform,
        })
    }
    fn capabilities(&self) -> LayerCapabilities {
        self.layer.capabilities()
    }
    fn approval_keys(&self) -> Option<&Keyring> {
        self.layer.approval_keys()
    }
    fn decision_callbacks(&self) -> Option<&DecisionCallbacks> {
        self.layer.decision_callbacks()
    }
}

/// A transform for the tools a matcher could pick.
struct MatchedTransform {
    transform: Arc<dyn Transform>,
    matcher: Matcher,
}

impl Transform for MatchedTransform {
    fn name(&self) -> LayerName {
        self.transform.name()
    }
    fn origin(&self) -> TypeId {
        self.transform.origin()
    }
    fn transform(&self, spec: ToolSpec) -> Option<ToolSpec> {
        if self.matcher.could_match(&spec) {
            self.transform.transform(spec)
        } else {
            Some(spec)
        }
    }
}

/// Converts a type name to a layer name: `my::RequireReason<T>` becomes `require_reason`.
fn layer_name_from_type(type_name: &str) -> String {
    // Generic arguments contain `::` too, so they are removed first.
    let path = type_name.split('<').next().unwrap_or(type_name);
    let last = path.rsplit("::").next().unwrap_or(path);
    let mut name = String::new();
    for (at, c) in last.chars().enumerate() {
        if c.is_uppercase() && at > 0 {
            name.push('_');
        }
        name.extend(c.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_named_after_its_type() {
        assert_eq!(
            layer_name_from_type("my_crate::layers::RequireReason<T>"),
            "require_reason"
        );
        assert_eq!(layer_name_from_type("Scope"), "scope");
    }
}
