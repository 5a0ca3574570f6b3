//! The tools and layers of one run: the session's, with what the run and its strategies bring.

use toolgate_core::{
    AnyLayer, Call, Executor, IdempotencyKey, Outcome, Reconciled, Registry, Stack, StackError,
    View,
};

use crate::{RunError, RunOptions, session::Shared};

/// What the calls of a run go through, and what the model is shown.
pub(crate) struct ToolsOfRun {
    /// The session's stack with what the run brings.
    stack: Stack,
    /// The same with what strategies added for the round, if anything.
    extended: Option<Stack>,
    view: View,
    /// Every tool there is, whatever the model is shown.
    all: View,
}

impl ToolsOfRun {
    pub(crate) fn new(shared: &Shared, options: &RunOptions) -> Result<Self, RunError> {
        let base = shared.dispatcher.stack();
        let stack = match (&options.tools, options.layers.is_empty()) {
            (None, true) => base.clone(),
            (tools, _) => {
                let over = tools.clone().map(|own| Shadowing {
                    own,
                    session: shared.registry.clone(),
                });
                within(base, options.layers.clone(), over).map_err(RunError::Stack)?
            }
        };
        let view = View::of(&shared.registry);
        let all = options
            .tools
            .as_ref()
            .map_or(view.clone(), |own| view.shadowed_by(&View::of(own)));
        let view = all.clone();
        let view = view
            .transform(&stack.transforms())
            .map_err(RunError::View)?;
        let view = shared.allowed.as_ref().map_or(view.clone(), |names| {
            view.narrow(names.iter().map(String::as_str))
        });
        let names = options.allowed.as_ref();
        let view = names.map_or(view.clone(), |names| {
            view.narrow(names.iter().map(String::as_str))
        });
        Ok(Self {
            stack,
            extended: None,
            view,
            all,
        })
    }

    /// Every tool there is. What the model was shown in an earlier run may be more than in this one.
    pub(crate) fn all(&self) -> &View {
        &self.all
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn stack(&self) -> Stack {
        self.extended.as_ref().unwrap_or(&self.stack).clone()
    }

    /// Layers that hold for the round, in place of those of the last one.
    pub(crate) fn add_layers(&mut self, layers: Vec<AnyLayer>) -> Result<(), StackError> {
        self.extended = if layers.is_empty() {
            None
        } else {
            Some(within(&self.stack, layers, None)?)
        };
        Ok(())
    }
}

/// The same stack with more layers, each inside those of its band.
fn within(
    stack: &Stack,
    more: Vec<AnyLayer>,
    over: Option<Shadowing>,
) -> Result<Stack, StackError> {
    let mut layers = stack.any_layers();
    for layer in more {
        let at = layers
            .iter()
            .position(|other| other.band() > layer.band())
            .unwrap_or(layers.len());
        layers.insert(at, layer);
    }
    stack.with_layers(layers, over).build()
}

/// The tools of a run before those of the session.
struct Shadowing {
    own: Registry,
    session: Registry,
}

impl Shadowing {
    fn of(&self, call: &Call) -> &Registry {
        if self.own.get(call.tool.as_str()).is_some() {
            &self.own
        } else {
            &self.session
        }
    }
}

impl Executor for Shadowing {
    async fn execute(&self, call: Call) -> Outcome {
        self.of(&call).execute(call).await
    }

    fn refuse(&self, call: &Call) -> Option<Outcome> {
        self.of(call).refuse(call)
    }

    fn runs_outside(&self, call: &Call) -> bool {
        self.of(call).runs_outside(call)
    }

    async fn reconcile(&self, call: &Call, key: IdempotencyKey) -> Reconciled {
        self.of(call).reconcile(call, key).await
    }
}
