//! The tools and layers of one run: the session's, with what the run and its strategies add.

use toolgate_core::{
    AnyLayer, Call, Executor, IdempotencyKey, Outcome, ReconciledAttempt, Registry, Stack,
    StackBuilder, StackError, View,
};

use crate::{RunError, RunOptions, session::SessionShared};

/// The stack of a run's calls, and the view of its model.
#[derive(Clone)]
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
                let builder = match tools.clone() {
                    Some(own) => base.extend_over(ShadowingRegistry {
                        own,
                        session: shared.registry.clone(),
                    }),
                    None => base.extend(),
                };
                place_layers(builder, options.layers.clone()).map_err(RunError::Stack)?
            }
        };
        let registries = std::iter::once(&shared.registry).chain(&options.tools);
        let all = View::for_registries(registries, &stack).map_err(RunError::View)?;
        let view = all.clone();
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
            Some(place_layers(self.stack.extend(), layers.clone())?)
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

/// Builds the stack with more layers, each at its place in its band: inside the session's own
/// layers, which see the call first, and outside those that ask for approval.
pub(crate) fn place_layers(
    builder: StackBuilder,
    more: Vec<AnyLayer>,
) -> Result<Stack, StackError> {
    more.into_iter()
        .fold(builder, StackBuilder::place_layer)
        .build()
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
