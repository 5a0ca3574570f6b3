//! Parameters of a tool that the program fills and the model does not see.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::Serialize;
use serde_json::Value;

use crate::{
    Arguments, Call, Context, IdempotencyKey, Outcome, ReconciledAttempt, Refusal, RegisterError,
    Schema, SchemaError, SchemaProblem, Tool, ToolError, ToolOutput, ToolSpec, argument_pointer,
    run_contained_sync,
};

/// Returns the value of one parameter for a call, or nothing if the program has none.
type HostFiller = Arc<dyn Fn(&Call) -> Option<Value> + Send + Sync>;

/// The parameters of a tool that the program fills, such as the tenant of a session.
///
/// They are part of the tool's schema but not of the one that the model is shown, and a call in
/// which the model sets one violates the schema. The value is filled in before anything is decided,
/// so policies, approval requests and receipts see it. It is not for secrets: give those to the
/// tool as its [`State`](crate::State).
#[derive(Clone, Default)]
pub struct HostValues(BTreeMap<String, Option<HostFiller>>);

impl HostValues {
    /// Creates a set of parameters that have to be filled before the tool can be registered.
    pub fn required<'a>(parameters: impl IntoIterator<Item = &'a str>) -> Self {
        let unfilled = |parameter: &str| (parameter.to_owned(), None);
        Self(parameters.into_iter().map(unfilled).collect())
    }

    /// Returns the names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Checks whether the program fills no parameter.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fills a parameter with what `filler` returns for a call.
    fn with_filler(mut self, parameter: &str, filler: HostFiller) -> Self {
        self.0.insert(parameter.to_owned(), Some(filler));
        self
    }

    /// Rejects a parameter that nothing fills, and one that the tool does not have.
    pub(crate) fn check_registration(&self, spec: &ToolSpec) -> Result<(), RegisterError> {
        for (parameter, filler) in &self.0 {
            let problem = if !spec.input.parameters().any(|known| known == parameter) {
                "the tool does not have it"
            } else if filler.is_none() {
                "nothing fills it; add `.fill(name, value)` to the tool"
            } else {
                continue;
            };
            return Err(RegisterError::HostValue {
                tool: spec.name.clone(),
                parameter: parameter.clone(),
                problem,
            });
        }
        Ok(())
    }

    /// Returns the schema that the model is shown: `input` without the parameters.
    pub(crate) fn hide_from(&self, input: &Schema) -> Result<Schema, SchemaError> {
        self.parameters()
            .try_fold(input.clone(), |schema, parameter| {
                schema.without_parameter(parameter)
            })
    }

    /// Returns the problems of arguments in which the model set a parameter of the program.
    pub(crate) fn check_untouched(&self, arguments: &Arguments) -> Vec<SchemaProblem> {
        let touched = self
            .parameters()
            .filter(|name| arguments.get(name).is_some());
        touched
            .map(|name| SchemaProblem {
                pointer: argument_pointer(name),
                reason: "the tool has no such parameter".to_owned(),
            })
            .collect()
    }

    /// Returns the call with every parameter filled, or the outcome that blocks it.
    pub(crate) fn fill_call(&self, call: &Call) -> Result<Call, Outcome> {
        let mut arguments = call.arguments.clone();
        for (parameter, filler) in &self.0 {
            // A panic counts as no value: the call does not run with a parameter missing.
            let value = run_contained_sync(|| filler.as_ref().and_then(|fill| fill(call)));
            let filled = value
                .ok()
                .flatten()
                .and_then(|value| arguments.with_argument(parameter, value).ok());
            arguments = filled.ok_or_else(|| no_value(parameter))?;
        }
        Ok(call.clone().with_arguments(arguments))
    }
}

fn no_value(parameter: &str) -> Outcome {
    let text = format!("the program has no value for the parameter {parameter} of this tool");
    Outcome::refused(Refusal::Blocked, text)
}

impl fmt::Debug for HostValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A tool with a parameter that the program fills; made by [`Tool::fill`].
#[derive(Clone)]
pub struct FilledTool<T> {
    tool: T,
    parameter: String,
    filler: HostFiller,
}

impl<T: Tool> FilledTool<T> {
    pub(crate) fn new<V: Serialize>(
        tool: T,
        parameter: &str,
        value: impl Fn(&Call) -> Option<V> + Send + Sync + 'static,
    ) -> Self {
        let filler = move |call: &Call| serde_json::to_value(value(call)?).ok();
        Self {
            tool,
            parameter: parameter.to_owned(),
            filler: Arc::new(filler),
        }
    }
}

impl<T: Tool> Tool for FilledTool<T> {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        self.tool.invoke(arguments, cx).await
    }

    async fn rehearse(&self, arguments: Arguments, cx: Context) -> Result<(), ToolError> {
        self.tool.rehearse(arguments, cx).await
    }

    async fn reconcile(&self, arguments: Arguments, key: IdempotencyKey) -> ReconciledAttempt {
        self.tool.reconcile(arguments, key).await
    }

    fn host_values(&self) -> HostValues {
        let values = self.tool.host_values();
        values.with_filler(&self.parameter, self.filler.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for FilledTool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilledTool")
            .field("tool", &self.tool)
            .field("parameter", &self.parameter)
            .finish_non_exhaustive()
    }
}
