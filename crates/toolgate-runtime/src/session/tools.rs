//! The tools and layers of one run: the session's, with what the run and its strategies add.

use toolgate_core::{AnyLayer, Stack, StackBuilder, StackError, View};

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
                    Some(own) => base.extend_with_tools(own),
                    None => base.extend(),
                };
                place_layers(builder, options.layers.clone()).map_err(RunError::Stack)?
            }
        };
        let registries = [&shared.registry, &shared.agent_tools];
        let registries = registries.into_iter().chain(&options.tools);
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
