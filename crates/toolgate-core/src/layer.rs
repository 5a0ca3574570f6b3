//! Wraps a call while it runs.

use std::{fmt, future::Future, sync::Arc};

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Answer, Call, Decision, Json, LayerName, Matcher, Outcome, StoreError, ToolSpec, Transform,
    run::{Place, Run},
};

/// Wraps calls: an `async fn(call, next) -> outcome`.
///
/// A layer may look, change the call, answer without `next`, run `next` again (`next.clone()`), or change
/// the outcome. It never fails: a refusal or a broken tool is an outcome the model can read. After a
/// suspension the call comes again from the top with its answer attached, so whatever must happen once is
/// kept under the call's id ([`Next::once`]).
///
/// ```
/// use toolgate_core::{Band, Call, Layer, Next, Outcome, Status};
///
/// /// Refuses calls while the office is closed.
/// struct OfficeHours { open: bool }
///
/// impl Layer for OfficeHours {
///     async fn handle(&self, call: Call, next: Next) -> Outcome {
///         if !self.open {
///             return Outcome::refused(Status::Blocked, "the office is closed");
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

    /// What the layer is called in notes, warnings and configuration; by default after its type.
    fn name(&self) -> LayerName {
        LayerName::from(snake_case(std::any::type_name::<Self>()))
    }

    /// Where in a stack the layer belongs.
    fn band(&self) -> Band {
        Band::Shape
    }

    /// Which calls it wraps; all of them that [`concern`](Layer::concerns) it if there is no matcher.
    fn matcher(&self) -> Option<&Matcher> {
        None
    }

    /// Whether the layer has anything to do with this call. One that has not is passed by and leaves no note. Where
    /// [`Layer::matcher`] says for which tools a layer was put in, this is for what only the call itself shows.
    fn concerns(&self, call: &Call) -> bool {
        let _ = call;
        true
    }

    /// The transform that belongs to this layer, for one that needs both seams.
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        None
    }

    /// What a linter should know about the layer.
    fn traits(&self) -> LayerTraits {
        LayerTraits::default()
    }
}

/// What a layer does that matters for where it stands, mostly for a linter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerTraits {
    /// The name under which a configuration file knows this kind of layer, whatever one is called.
    pub kind: Option<&'static str>,
    /// It may hand down other arguments than it was given.
    pub rewrites: bool,
    /// It may answer without running what is below.
    pub answers: bool,
    /// It keeps or sends away what it sees, as it sees it.
    pub records: bool,
    /// It takes secrets out of what comes back. Only such a layer may also take back what was noted below it.
    pub redacts: bool,
    /// It may answer with the result of an earlier call.
    pub remembers: bool,
    /// It may run what is below more than once.
    pub repeats: bool,
    /// It may ask a person.
    pub asks: bool,
    /// It wants to see a call that ended outside the stack, as recorders and redacting layers do, though it is neither.
    pub closes: bool,
    /// The longest time it gives what is below.
    pub time_limit: Option<std::time::Duration>,
}

impl LayerTraits {
    /// The traits of a layer that a configuration file knows under `kind`.
    pub const fn of(kind: &'static str) -> Self {
        let (rewrites, answers, records, redacts) = (false, false, false, false);
        let (remembers, repeats, asks, closes, time_limit) = (false, false, false, false, None);
        Self {
            kind: Some(kind),
            rewrites,
            answers,
            records,
            redacts,
            remembers,
            repeats,
            asks,
            closes,
            time_limit,
        }
    }

    /// It may hand down other arguments than it was given.
    pub const fn rewriting(self) -> Self {
        Self {
            rewrites: true,
            ..self
        }
    }

    /// It may answer without running what is below.
    pub const fn answering(self) -> Self {
        Self {
            answers: true,
            ..self
        }
    }

    /// It keeps or sends away what it sees.
    pub const fn recording(self) -> Self {
        Self {
            records: true,
            ..self
        }
    }

    /// It takes secrets out of what comes back.
    pub const fn redacting(self) -> Self {
        Self {
            redacts: true,
            ..self
        }
    }

    /// It may answer with the result of an earlier call.
    pub const fn remembering(self) -> Self {
        Self {
            remembers: true,
            ..self
        }
    }

    /// It may run what is below more than once.
    pub const fn repeating(self) -> Self {
        Self {
            repeats: true,
            ..self
        }
    }

    /// It may ask a person.
    pub const fn asking(self) -> Self {
        Self { asks: true, ..self }
    }

    /// It wants to see a call that ended outside the stack; see [`Call::closing`].
    pub const fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }

    /// The longest time it gives what is below.
    pub const fn limiting(self, span: std::time::Duration) -> Self {
        Self {
            time_limit: Some(span),
            ..self
        }
    }
}

/// The order of a stack, outermost first. The order is a security property: nothing rewrites a call after
/// it was decided on, another attempt never asks again, and recorders see refusals.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Band {
    /// Writes down what happened.
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

/// What is left of the stack below a layer. It can be kept, cloned, and run as often as needed.
#[derive(Clone)]
pub struct Next {
    pub(crate) run: Arc<Run>,
    /// The first frame below the layer.
    pub(crate) at: usize,
    /// The layer's own entry on the trail.
    pub(crate) entry: usize,
    /// The arguments the layer was given, to see whether it changed them.
    pub(crate) given: crate::Arguments,
}

impl Next {
    /// Runs what is below. Each run that reaches the executor is an attempt of its own.
    // Not an `async fn`: the future of what is below is boxed once, so a layer's own future stays small.
    pub fn run(self, call: Call) -> impl Future<Output = Outcome> + Send + 'static {
        self.run
            .handed_down(self.entry, &self.given, &call.arguments);
        crate::run::descend(self.run, self.at, self.entry, call)
    }

    /// The answer to the question this layer asked about this call as it is now.
    ///
    /// An answer that another layer asked for, or that was given about other arguments or another version of the
    /// tool, is not returned: the layer has to ask again.
    pub fn decision<'a>(&self, call: &'a Call) -> Option<&'a Decision> {
        let digest = call.arguments.digest();
        let fingerprint = call.shown().map(|shown| shown.entry.fingerprint);
        let (mine, edits) = (
            self.run.layer_name(self.entry),
            self.run.edits_above(self.at),
        );
        let about_this = |answer: &&Answer| {
            answer.asked_by == *mine
                && answer.fingerprint == fingerprint
                && answer.covers(digest, edits)
        };
        call.resumed()
            .answers
            .iter()
            .rev()
            .find(about_this)
            .map(|answer| &answer.decision)
    }

    /// Does something once for this call and this layer, however often the call comes back. See [`Call::once`].
    pub async fn once<F, Fut>(&self, call: &Call, key: &str, act: F) -> Result<Json, StoreError>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Json>,
    {
        call.once(&format!("{}/{key}", self.layer_name()), act)
            .await
    }

    /// The name of the layer that holds this `next`, unique within the stack.
    pub fn layer_name(&self) -> &LayerName {
        self.run.layer_name(self.entry)
    }

    /// Says why the layer does what it does with this call. The words end up on its note: what a person reads in an
    /// explanation is what the receipt says.
    pub fn because(&self, reason: impl Into<Arc<str>>) {
        self.run.explain(self.entry, reason.into());
    }

    /// What has happened below so far: one note per layer entered, in order of entering.
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

/// [`Layer`] as stacks keep it.
pub(crate) trait DynLayer: Send + Sync {
    /// Lets the layer handle the call, watched over by the run, in one allocation.
    fn enter(self: Arc<Self>, place: Place, call: Call) -> BoxFuture<'static, Outcome>;
    /// Lets the layer handle the call for another one that wraps it.
    fn handle_boxed(self: Arc<Self>, call: Call, next: Next) -> BoxFuture<'static, Outcome>;
    fn name(&self) -> LayerName;
    fn band(&self) -> Band;
    fn matcher(&self) -> Option<&Matcher>;
    fn concerns(&self, call: &Call) -> bool;
    fn transform(&self) -> Option<Arc<dyn Transform>>;
    fn traits(&self) -> LayerTraits;
}

impl<L: Layer> DynLayer for L {
    fn enter(self: Arc<Self>, place: Place, call: Call) -> BoxFuture<'static, Outcome> {
        Box::pin(crate::run::enter(
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
    fn concerns(&self, call: &Call) -> bool {
        Layer::concerns(self, call)
    }
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        Layer::transform(self)
    }
    fn traits(&self) -> LayerTraits {
        Layer::traits(self)
    }
}

/// Any layer, for lists that are put together at run time.
#[derive(Clone)]
pub struct AnyLayer(pub(crate) Arc<dyn DynLayer>);

impl AnyLayer {
    /// Forgets the type of a layer.
    pub fn new(layer: impl Layer) -> Self {
        Self(Arc::new(layer))
    }

    /// What the layer is called.
    pub fn name(&self) -> LayerName {
        self.0.name()
    }

    /// Where it belongs.
    pub fn band(&self) -> Band {
        self.0.band()
    }

    /// What a linter should know about it.
    pub fn traits(&self) -> LayerTraits {
        self.0.traits()
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
    fn concerns(&self, call: &Call) -> bool {
        self.0.concerns(call)
    }
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        self.0.transform()
    }
    fn traits(&self) -> LayerTraits {
        self.0.traits()
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
    fn named(self, name: &str) -> Adjusted<Self> {
        Adjusted {
            name: Some(name.into()),
            ..Adjusted::of(self)
        }
    }

    /// Puts the layer into another band.
    fn in_band(self, band: Band) -> Adjusted<Self> {
        Adjusted {
            band: Some(band),
            ..Adjusted::of(self)
        }
    }

    /// Restricts the layer to the calls that `matcher` picks.
    fn on(self, matcher: Matcher) -> Adjusted<Self> {
        Adjusted {
            on: Some(matcher),
            ..Adjusted::of(self)
        }
    }
}

impl<L: Layer> LayerExt for L {}

/// A layer with another name, band or matcher.
#[derive(Debug, Clone)]
pub struct Adjusted<L> {
    layer: L,
    name: Option<LayerName>,
    band: Option<Band>,
    on: Option<Matcher>,
}

impl<L> Adjusted<L> {
    fn of(layer: L) -> Self {
        Self {
            layer,
            name: None,
            band: None,
            on: None,
        }
    }
}

impl<L: Layer> Layer for Adjusted<L> {
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
    fn concerns(&self, call: &Call) -> bool {
        // With two matchers both have to agree; the stack asks the outer one.
        let inner = self.layer.matcher().filter(|_| self.on.is_some());
        inner.is_none_or(|inner| inner.matches(call)) && self.layer.concerns(call)
    }
    fn transform(&self) -> Option<Arc<dyn Transform>> {
        let transform = self.layer.transform()?;
        Some(match self.on.clone() {
            Some(matcher) => Arc::new(TransformOn { transform, matcher }),
            None => transform,
        })
    }
    fn traits(&self) -> LayerTraits {
        self.layer.traits()
    }
}

/// A transform for the tools a matcher could pick.
struct TransformOn {
    transform: Arc<dyn Transform>,
    matcher: Matcher,
}

impl Transform for TransformOn {
    fn name(&self) -> LayerName {
        self.transform.name()
    }
    fn transform(&self, spec: ToolSpec) -> Option<ToolSpec> {
        if self.matcher.could_match(&spec) {
            self.transform.transform(spec)
        } else {
            Some(spec)
        }
    }
}

/// `my::RequireReason<T>` becomes `require_reason`.
fn snake_case(type_name: &str) -> String {
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
            snake_case("my_crate::layers::RequireReason<T>"),
            "require_reason"
        );
        assert_eq!(snake_case("Scope"), "scope");
    }
}
