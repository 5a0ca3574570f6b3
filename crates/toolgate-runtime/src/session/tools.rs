//! The tools and layers of one run: the session's, with what the run and its strategies add.

use toolgate_core::{
    AnyLayer, Call, Executor, IdempotencyKey, Outcome, ReconciledAttempt, Registry, Stack,
    StackError, View,
};

use crate::{RunError, RunOptions, session::SessionShared};

/// The stack of a run's calls, and the view of its model.
pub(crate) struct RunTools {
    /// The session's stack with the run's own layers and tools.
    stack: Stack,
    /// The same stack with the layers that strategies added for the iteration, if any.
    extended: Option<Stack>,
    /// The layers that the run and the strategies of the iteration added.
    run_layers: Vec<AnyLayer>,
    iteration_layers: Vec<AnyLayer>,
    view: View,
    /// All tools, also those the model does not see.
    all: View,
}

impl RunTools {
    pub(crate) fn new(shared: &SessionShared, options: &RunOptions) -> Result<Self, RunError> {
        let base = shared.dispatcher.stack();
        let stack = match (&options.tools, options.layers.is_empty()) {
            (None, true) => base.clone(),
            (tools, _) => {
                let over = tools.clone().map(|own| ShadowingRegistry {
                    own,
                    session: shared.registry.clone(),
                });
                insert_layers(base, options.layers.clone(), over).map_err(RunError::Stack)?
            }
        };
        let view = View::from_registry(&shared.registry);
        let all = options.tools.as_ref().map_or(view.clone(), |own| {
            view.shadowed_by(&View::from_registry(own))
        });
        let view = all.clone();
        let view = view
            .apply_transforms(&stack.transforms())
            .map_err(RunError::View)?;
        // Narrowed by the session and then by the run: a run can hide tools, never show more of
        // them.
        let view = shared.allowed.as_ref().map_or(view.clone(), |names| {
            view.narrow_to(names.iter().map(String::as_str))
        });
        let names = options.allowed.as_ref();
        let view = names.map_or(view.clone(), |names| {
            view.narrow_to(names.iter().map(String::as_str))
        });
        Ok(Self {
            stack,
            extended: None,
            run_layers: options.layers.clone(),
            iteration_layers: Vec::new(),
            view,
            all,
        })
    }

    /// Returns all tools. The view of an earlier run may have had more of them than this one.
    pub(crate) fn all_tools(&self) -> &View {
        &self.all
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn stack(&self) -> Stack {
        self.extended.as_ref().unwrap_or(&self.stack).clone()
    }

    /// Sets the layers of the iteration, in place of those of the last one.
    pub(crate) fn set_layers(&mut self, layers: Vec<AnyLayer>) -> Result<(), StackError> {
        self.extended = if layers.is_empty() {
            None
        } else {
            Some(insert_layers(&self.stack, layers.clone(), None)?)
        };
        self.iteration_layers = layers;
        Ok(())
    }

    /// Returns the layers that the run and its strategies added to the session's. They also cover
    /// the agents that the run delegates to.
    pub(crate) fn added_layers(&self) -> Vec<AnyLayer> {
        [&*self.run_layers, &*self.iteration_layers].concat()
    }
}

/// Returns the stack with more layers, each innermost in its band.
pub(crate) fn insert_layers(
    stack: &Stack,
    more: Vec<AnyLayer>,
    over: Option<ShadowingRegistry>,
) -> Result<Stack, StackError> {
    let mut layers = stack.any_layers();
    for layer in more {
        layers.insert(innermost_place(&layers, &layer), layer);
    }
    stack.with_layers(layers, over).build()
}

/// Returns the innermost place in its band for a layer that is added: the session's own layers see
/// the call first.
fn innermost_place(layers: &[AnyLayer], added: &AnyLayer) -> usize {
    let beyond = |other: &AnyLayer| other.band() > added.band();
    let end = layers.iter().position(beyond).unwrap_or(layers.len());
    if added.capabilities().asks {
        return end;
    }
    // The layer that asks stays the last one that decides, so that it asks only about calls that
    // every rule allows, and meets the requirements of all of them.
    let asks = |other: &&AnyLayer| other.band() == added.band() && other.capabilities().asks;
    end - layers[..end].iter().rev().take_while(asks).count()
}

/// The tools of a run in front of those of the session.
pub(crate) struct ShadowingRegistry {
    own: Registry,
    session: Registry,
}

impl ShadowingRegistry {
    fn registry_for(&self, call: &Call) -> &Registry {
        if self.own.get(call.tool.as_str()).is_some() {
            &self.own
        } else {
            &self.session
        }
    }
}

impl Executor for ShadowingRegistry {
    async fn execute(&self, call: Call) -> Outcome {
        self.registry_for(&call).execute(call).await
    }

    fn reject_early(&self, call: &Call) -> Option<Outcome> {
        self.registry_for(call).reject_early(call)
    }

    fn runs_externally(&self, call: &Call) -> bool {
        self.registry_for(call).runs_externally(call)
    }

    async fn reconcile(&self, call: &Call, key: IdempotencyKey) -> ReconciledAttempt {
        self.registry_for(call).reconcile(call, key).await
    }
}
