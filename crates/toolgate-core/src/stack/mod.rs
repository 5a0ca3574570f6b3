//! Layers in order, outermost first, over an executor. The one way a call is executed.

pub(crate) mod adapters;
mod checks;
pub(crate) mod descend;
mod execute;
pub(crate) mod executor;
pub(crate) mod hooks;
pub(crate) mod layer;
pub(crate) mod matcher;
pub(crate) mod panic;
#[cfg(feature = "tower")]
pub(crate) mod tower;
pub(crate) mod trail;
pub(crate) mod waiting;

use std::{collections::BTreeSet, fmt, sync::Arc};

use crate::{
    AnyLayer, Band, Call, DecisionCallbacks, Executor, IdempotencyKey, Layer, LayerName, Outcome,
    ReconciledAttempt, Registry, Transform,
    stack::{
        executor::{DynExecutor, ToolsInFront},
        layer::DynLayer,
        panic::{PanicReport, contain_panic_sync},
    },
};

/// Layers over an executor. Cloning shares the stack.
///
/// ```
/// use toolgate_core::{Arguments, Call, Executor, Outcome, Stack, from_fn};
///
/// struct Echo;
/// impl Executor for Echo {
///     async fn execute(&self, call: Call) -> Outcome {
///         Outcome::ok(call.arguments.as_json().as_value().clone())
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let stack = Stack::over(Echo).layer(from_fn(async |call, next| next.run(call).await)).build()?;
/// let outcome = stack.run(Call::detached("echo", Arguments::parse(r#"{"n":1}"#).unwrap())).await;
/// assert!(outcome.is_ok());
/// # Ok::<(), toolgate_core::StackError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Stack(Arc<StackPlan>);

/// The frames, executor and band boundaries of a built stack.
pub(crate) struct StackPlan {
    pub(crate) frames: Vec<LayerFrame>,
    pub(crate) executor: Arc<dyn DynExecutor>,
    /// The first frame that is not a recorder: a call that the view rejected goes no deeper.
    pub(crate) admit_at: usize,
    /// The first frame that decides: from here on, arguments fit the tool's own schema.
    pub(crate) seal_at: usize,
    /// True if any layer decides.
    pub(crate) decides: bool,
    allowed: BTreeSet<LayerName>,
    warnings: Vec<StackWarning>,
}

/// One layer of a built stack, with what the builder asked it once.
pub(crate) struct LayerFrame {
    pub(crate) layer: Arc<dyn DynLayer>,
    pub(crate) name: LayerName,
    pub(crate) band: Band,
    /// True if it may redact notes made below it.
    pub(crate) redacts: bool,
    /// True if it asks for approval.
    pub(crate) asks: bool,
    /// True if it sees a call that ended outside the stack.
    pub(crate) closes: bool,
}

/// How a layer takes part in a call.
pub(crate) enum LayerEntry {
    /// It is entered.
    Enter,
    /// It is passed, and asked again once there is an outcome.
    Wait,
    /// It does not apply.
    Skip,
}

impl LayerFrame {
    fn rank(&self) -> StackRank {
        StackRank::new(self.band, self.asks)
    }

    /// Returns how the layer takes part in this call; an error if the layer panicked in that check.
    pub(crate) fn entry_for(&self, call: &Call) -> Result<LayerEntry, PanicReport> {
        if !self.wants_call(call)? {
            return Ok(LayerEntry::Skip);
        }
        // An explanation lists what every layer would do.
        if call.is_rehearsal() {
            return Ok(LayerEntry::Enter);
        }
        // Nor is a redactor passed: notes that it removes would be restored from below.
        if self.redacts {
            return Ok(LayerEntry::Enter);
        }
        let waits = contain_panic_sync(|| self.layer.waits_for_outcome(call))?;
        Ok(if waits {
            LayerEntry::Wait
        } else {
            LayerEntry::Enter
        })
    }

    /// Checks whether the layer wraps this call; an error if the layer panicked in that check.
    pub(crate) fn wants_call(&self, call: &Call) -> Result<bool, PanicReport> {
        // The other layers would decide on the call or act for it, and it has already ended.
        if call.closing_outcome().is_some() && !self.closes {
            return Ok(false);
        }
        // Matchers and `applies_to` are user code and may panic.
        contain_panic_sync(|| {
            self.layer
                .matcher()
                .is_none_or(|matcher| matcher.matches(call))
                && self.layer.applies_to(call)
        })
    }
}

impl Stack {
    /// Starts a stack over `executor`. The first layer added is the outermost.
    pub fn over(executor: impl Executor) -> StackBuilder {
        StackBuilder {
            layers: Vec::new(),
            allowed: BTreeSet::new(),
            executor: Arc::new(executor),
        }
    }

    /// Runs a call through every layer and, if they let it through, the executor.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the layer or executor that is running; what the executor
    /// registered with [`Call::stops`] is then stopped.
    pub fn run(&self, call: Call) -> impl Future<Output = Outcome> + Send + 'static {
        crate::stack::descend::run_call(self.0.clone(), call)
    }

    /// Runs a call like [`Stack::run`] and also returns the notes of each layer, whether the call
    /// settled or not.
    pub async fn run_with_trail(&self, call: Call) -> (Outcome, crate::Trail) {
        crate::stack::descend::trace_call(self.0.clone(), call).await
    }

    /// Starts a stack with the same executor and layers, for adding more inside.
    pub fn extend(&self) -> StackBuilder {
        StackBuilder {
            layers: self.any_layers(),
            allowed: self.0.allowed.clone(),
            executor: self.0.executor.clone(),
        }
    }

    /// Starts a stack with the same layers over another executor, for adding more. Layers allowed
    /// out of band by name stay allowed. No layer can be left out.
    pub fn extend_over(&self, executor: impl Executor) -> StackBuilder {
        StackBuilder {
            executor: Arc::new(executor),
            ..self.extend()
        }
    }

    /// Starts a stack with the same layers over the tools of a registry and, for every other call,
    /// the same executor. A tool of the registry replaces one of its name. No layer can be left out.
    pub fn extend_with_tools(&self, tools: Registry) -> StackBuilder {
        let behind = self.0.executor.clone();
        self.extend_over(ToolsInFront { tools, behind })
    }

    /// Returns the names and bands of the layers, outermost first.
    pub fn layers(&self) -> impl Iterator<Item = (&LayerName, Band)> {
        self.0.frames.iter().map(|frame| (&frame.name, frame.band))
    }

    /// Returns the layers themselves, outermost first.
    pub fn any_layers(&self) -> Vec<AnyLayer> {
        self.0
            .frames
            .iter()
            .map(|frame| AnyLayer(frame.layer.clone()))
            .collect()
    }

    /// Returns the callbacks of the layers for decisions, by the name under which a layer asks.
    pub fn decision_callbacks(&self) -> Vec<(LayerName, DecisionCallbacks)> {
        let named = |frame: &LayerFrame| {
            let callbacks = frame.layer.decision_callbacks()?;
            Some((frame.name.clone(), callbacks.clone()))
        };
        self.0.frames.iter().filter_map(named).collect()
    }

    /// Returns the transforms that belong to the layers, outermost first; a view is built with
    /// them.
    pub fn transforms(&self) -> Vec<Arc<dyn Transform>> {
        self.0
            .frames
            .iter()
            .filter_map(|frame| frame.layer.transform())
            .collect()
    }

    /// Returns the warnings found when the stack was built.
    pub fn warnings(&self) -> &[StackWarning] {
        &self.0.warnings
    }

    /// Asks the executor whether an earlier attempt of `call` took effect.
    pub async fn reconcile(&self, call: &Call, key: IdempotencyKey) -> ReconciledAttempt {
        self.0.executor.reconcile(call, key).await
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.layers().map(|(name, band)| format!("{name} ({band})")))
            .finish()
    }
}

/// Builds a [`Stack`]; see [`Stack::over`].
#[must_use = "a stack is built by `build`"]
pub struct StackBuilder {
    layers: Vec<AnyLayer>,
    allowed: BTreeSet<LayerName>,
    executor: Arc<dyn DynExecutor>,
}

impl StackBuilder {
    /// Adds a layer inside the ones added before.
    pub fn layer(self, layer: impl Layer) -> Self {
        self.any_layer(AnyLayer::new(layer))
    }

    /// Adds a layer whose type is not known here.
    pub fn any_layer(mut self, layer: AnyLayer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Adds several layers, the first outermost.
    pub fn any_layers(mut self, layers: impl IntoIterator<Item = AnyLayer>) -> Self {
        self.layers.extend(layers);
        self
    }

    /// Adds a layer at its place: innermost in its band, but outside the layers that ask for
    /// approval, so that no approval is requested for a call that is rejected afterwards.
    pub fn place_layer(mut self, layer: AnyLayer) -> Self {
        let rank = layer.stack_rank();
        let at = self
            .layers
            .iter()
            .position(|other| other.stack_rank() > rank)
            .unwrap_or(self.layers.len());
        self.layers.insert(at, layer);
        self
    }

    /// Allows the layer of this name to stand outside its band, or an asking layer outside others
    /// that decide. The order is a security property, so this needs a reason.
    pub fn allow_out_of_band(mut self, name: &str) -> Self {
        self.allowed.insert(name.into());
        self
    }

    /// Checks the order of bands and builds the stack.
    ///
    /// # Errors
    ///
    /// [`StackError::OutOfBand`] if a layer encloses one of an earlier band, and
    /// [`StackError::AsksTooEarly`] if a layer that asks for approval encloses one that decides,
    /// unless one of the two was allowed to.
    pub fn build(self) -> Result<Stack, StackError> {
        let mut frames: Vec<LayerFrame> = Vec::with_capacity(self.layers.len());
        for AnyLayer(layer) in self.layers {
            let name = unique_layer_name(layer.name(), &frames);
            let band = layer.band();
            let traits = layer.capabilities();
            // Recorders and redactors see every call that ends, also one that never entered the
            // stack: otherwise a denial could go unrecorded, or reach a recorder unredacted.
            let closes = band == Band::Record || traits.redacts || traits.closes;
            frames.push(LayerFrame {
                layer,
                name,
                band,
                redacts: traits.redacts,
                asks: traits.asks,
                closes,
            });
        }
        check_bands(&frames, &self.allowed)?;
        // The first layer of the band or of a later one: a deciding layer that was allowed out of
        // its band must not be entered before its edge is checked.
        let first = |from: Band| {
            frames
                .iter()
                .position(|frame| frame.band >= from)
                .unwrap_or(frames.len())
        };
        let admit_at = first(Band::Shape);
        let seal_at = first(Band::Decide);
        let decides = frames.iter().any(|frame| frame.band == Band::Decide);
        let warnings = find_unused_matchers(&frames, &*self.executor);
        let plan = StackPlan {
            frames,
            executor: self.executor,
            admit_at,
            seal_at,
            decides,
            allowed: self.allowed,
            warnings,
        };
        Ok(Stack(Arc::new(plan)))
    }
}

impl fmt::Debug for StackBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.layers).finish()
    }
}

/// The reason a stack cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// A layer of a later band encloses one of an earlier band.
    #[error("{outer} ({outer_band}) encloses {inner} ({inner_band}): {why}")]
    OutOfBand {
        /// The layer that is too far out.
        outer: LayerName,
        /// Its band.
        outer_band: Band,
        /// A layer that has to be outside it.
        inner: LayerName,
        /// Its band.
        inner_band: Band,
        /// The danger of this order.
        why: &'static str,
    },
    /// A layer that asks for approval encloses another one that decides.
    #[error(
        "{asking} encloses {inner}: approval would be requested for calls that {inner} rejects afterwards"
    )]
    AsksTooEarly {
        /// The layer that asks for approval.
        asking: LayerName,
        /// A deciding layer that has to be outside it.
        inner: LayerName,
    },
}

/// A property of a stack that is probably a mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackWarning {
    /// The layer is restricted to tools that do not exist.
    #[error("{layer} is restricted to {matcher}, which fits no registered tool")]
    FitsNoTool {
        /// The layer.
        layer: LayerName,
        /// Its matcher.
        matcher: String,
    },
}

fn unique_layer_name(name: LayerName, frames: &[LayerFrame]) -> LayerName {
    let taken = |name: &LayerName| frames.iter().any(|frame| frame.name == *name);
    if !taken(&name) {
        return name;
    }
    // Names key stored records and answers, so two layers of one type must not share a name.
    let numbered = (2..).map(|n| LayerName::from(format!("{name}#{n}")));
    numbered
        .into_iter()
        .find(|name| !taken(name))
        .expect("there are enough numbers")
}

fn check_bands(frames: &[LayerFrame], allowed: &BTreeSet<LayerName>) -> Result<(), StackError> {
    let mut deepest: Option<&LayerFrame> = None;
    for frame in frames.iter().filter(|frame| !allowed.contains(&frame.name)) {
        match deepest {
            Some(outer) if outer.band > frame.band => {
                return Err(StackError::OutOfBand {
                    outer: outer.name.clone(),
                    outer_band: outer.band,
                    inner: frame.name.clone(),
                    inner_band: frame.band,
                    why: band_order_danger(outer.band, frame.band),
                });
            }
            Some(outer) if outer.rank() > frame.rank() => {
                return Err(StackError::AsksTooEarly {
                    asking: outer.name.clone(),
                    inner: frame.name.clone(),
                });
            }
            // An allowed layer is skipped above, so it neither fails nor moves the boundary.
            _ => deepest = Some(frame),
        }
    }
    Ok(())
}

/// The place of a layer in the order of a stack, outermost first: its band and, among the layers that
/// decide, those that ask for approval last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackRank {
    band: Band,
    asks: bool,
}

impl StackRank {
    pub(crate) fn new(band: Band, asks: bool) -> Self {
        Self {
            band,
            asks: asks && band == Band::Decide,
        }
    }
}

/// Describes the danger when a layer of band `outer` encloses one of the earlier band `inner`.
fn band_order_danger(outer: Band, inner: Band) -> &'static str {
    match (inner, outer) {
        (Band::Record, _) => "a call that the outer layer answers would go unrecorded",
        (Band::Shape, Band::Decide) => {
            "the inner layer could rewrite what the outer one has decided on"
        }
        (Band::Shape, _) => {
            "the call would be reshaped once per attempt, and what was bounded or cached would be raw"
        }
        (Band::Decide, Band::Repeat) => {
            "every attempt would be decided on again, and a cached result would skip the decision"
        }
        (Band::Decide, _) => "the time a person takes to decide would count against the tool",
        (Band::Repeat, _) => {
            "all attempts together would share one bound, so the second one could start out of time"
        }
        (Band::Bound, _) => "bands run record, shape, decide, repeat, bound",
    }
}

fn find_unused_matchers(frames: &[LayerFrame], executor: &dyn DynExecutor) -> Vec<StackWarning> {
    let Some(tools) = executor.known_tools() else {
        return Vec::new();
    };
    let unused = |frame: &LayerFrame| {
        let matcher = frame.layer.matcher()?;
        let fits = tools.iter().any(|tool| matcher.could_match(&tool.spec));
        (!fits).then(|| StackWarning::FitsNoTool {
            layer: frame.name.clone(),
            matcher: format!("{matcher:?}"),
        })
    };
    frames.iter().filter_map(unused).collect()
}
