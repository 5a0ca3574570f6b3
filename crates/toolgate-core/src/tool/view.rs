//! Views: the specs one model is shown. A tool that is not shown cannot be called.

use std::{any::TypeId, collections::BTreeMap, collections::BTreeSet, sync::Arc};

use crate::{
    Arguments, JsonError, LayerName, Outcome, Refusal, Registry, SchemaProblem, ToolEntry,
    ToolName, ToolRequest, ToolSpec, Transform, call::RawArguments,
    tool::registry::changed_tool_outcome,
};

/// The tools one model may see and call: the registry, filtered and transformed.
///
/// Showing and enforcing use the same list, so a call to a tool that is not shown is rejected.
///
/// ```
/// use toolgate_core::{Registry, Schema, Stack, ToolSpec, View};
/// let registry = Registry::new();
/// registry.register_host(ToolSpec::new("read", "Reads.", Schema::any_object()))?;
/// registry.register_host(ToolSpec::new("write", "Writes.", Schema::any_object()))?;
/// let stack = Stack::over(registry.clone()).build()?;
/// let view = View::for_stack(&registry, &stack)?.narrow_to(["read"]);
/// assert_eq!(view.specs().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct View(Arc<BTreeMap<ToolName, Arc<ShownTool>>>);

/// A tool as one model sees it.
#[derive(Debug)]
pub struct ShownTool {
    /// The tool in the registry.
    pub entry: Arc<ToolEntry>,
    /// The spec after all transforms.
    pub spec: ToolSpec,
    /// The injected parameters and the layers that injected them, which remove them from calls.
    pub injected: Vec<InjectedParameter>,
}

/// A parameter that the tool itself does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedParameter {
    /// The parameter's name.
    pub parameter: String,
    /// The transform that injected it, for people.
    pub by: LayerName,
    /// The type of that transform.
    pub origin: TypeId,
}

/// An error for a transform that made a forbidden change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// It gave a tool another name.
    #[error("the transform {by} renamed the tool {tool}")]
    Renamed {
        /// The transform's name.
        by: LayerName,
        /// The tool's name.
        tool: ToolName,
    },
    /// It changed or removed a parameter that was there.
    #[error("the transform {by} changed the parameter {parameter} of {tool}; transforms only add")]
    NotAdditive {
        /// The transform's name.
        by: LayerName,
        /// The tool's name.
        tool: ToolName,
        /// The parameter's name.
        parameter: String,
    },
}

impl View {
    /// Creates a view of every tool of the registry, without the transforms of a stack.
    pub(crate) fn from_registry(registry: &Registry) -> Self {
        let show = |entry: Arc<ToolEntry>| {
            let shown = ShownTool {
                spec: ToolSpec {
                    input: entry.shown_input.clone(),
                    ..entry.spec.clone()
                },
                entry,
                injected: Vec::new(),
            };
            (shown.spec.name.clone(), Arc::new(shown))
        };
        Self(Arc::new(registry.entries().into_iter().map(show).collect()))
    }

    /// Creates a view of every tool of the registry, transformed by the layers of a stack.
    ///
    /// # Errors
    ///
    /// [`ViewError`] if a transform makes a forbidden change.
    pub fn for_stack(registry: &Registry, stack: &crate::Stack) -> Result<Self, ViewError> {
        Self::for_registries([registry], stack)
    }

    /// Creates a view of the tools of several registries, transformed by the layers of a stack. Where
    /// two have a tool of a name, that of the later one is shown.
    ///
    /// # Errors
    ///
    /// [`ViewError`] if a transform makes a forbidden change.
    pub fn for_registries<'a>(
        registries: impl IntoIterator<Item = &'a Registry>,
        stack: &crate::Stack,
    ) -> Result<Self, ViewError> {
        let all = registries
            .into_iter()
            .fold(Self::default(), |view, registry| {
                view.shadowed_by(&Self::from_registry(registry))
            });
        all.apply_transforms(&stack.transforms())
    }

    /// Creates a view without tools, as for tool choice `none`.
    pub fn without_tools() -> Self {
        Self::default()
    }

    /// Returns a view of the named tools only. Narrowing twice keeps what both name; it never
    /// widens.
    pub fn narrow_to<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<&str> = names.into_iter().collect();
        self.filter(|tool| names.contains(tool.spec.name.as_str()))
    }

    /// Returns a view of the tools that pass a test.
    pub fn filter(&self, keep: impl Fn(&ShownTool) -> bool) -> Self {
        let kept = self.0.iter().filter(|(_, tool)| keep(tool));
        Self(Arc::new(
            kept.map(|(name, tool)| (name.clone(), tool.clone()))
                .collect(),
        ))
    }

    /// Returns a view of the tools of both; where both have one of a name, the other's is shown.
    fn shadowed_by(&self, other: &Self) -> Self {
        let both = self.0.iter().chain(other.0.iter());
        Self(Arc::new(
            // Later entries replace earlier ones in the map.
            both.map(|(name, tool)| (name.clone(), tool.clone()))
                .collect(),
        ))
    }

    /// Returns a view with rewritten specs. The transforms apply in order.
    ///
    /// # Errors
    ///
    /// [`ViewError`] if a transform makes a forbidden change.
    pub fn apply_transforms<'a>(
        &self,
        transforms: impl IntoIterator<Item = &'a Arc<dyn Transform>>,
    ) -> Result<Self, ViewError> {
        let transforms: Vec<_> = transforms.into_iter().collect();
        if transforms.is_empty() {
            return Ok(self.clone());
        }
        let mut tools = BTreeMap::new();
        'tools: for tool in self.0.values() {
            let mut shown = ShownTool {
                entry: tool.entry.clone(),
                spec: tool.spec.clone(),
                injected: tool.injected.clone(),
            };
            for transform in &transforms {
                let Some(spec) = transform.transform(shown.spec.clone()) else {
                    continue 'tools;
                };
                let injected = find_injections(&shown.spec, &spec, &***transform)?;
                shown.injected.extend(injected);
                shown.spec = spec;
            }
            tools.insert(shown.spec.name.clone(), Arc::new(shown));
        }
        Ok(Self(Arc::new(tools)))
    }

    /// Returns the specs that the model is shown, ordered by name.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.values().map(|tool| &tool.spec)
    }

    /// Checks whether both are the same allocation, so that a cache for one is valid for the other.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the number of tools shown.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks whether no tool is shown.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a tool that is shown.
    pub fn get(&self, name: &str) -> Option<&Arc<ShownTool>> {
        self.0.get(name)
    }

    /// Checks a request of the model against the tools it was shown.
    pub fn admit_request(&self, request: &ToolRequest) -> Admission {
        let parsed = match &request.arguments {
            RawArguments::Text(text) => Arguments::parse(text),
            // Such arguments skip the parser, which limits the size of text.
            RawArguments::Json(json) if json.size() > Arguments::MAX_BYTES => {
                Err(JsonError::TooLarge {
                    size: json.size(),
                    limit: Arguments::MAX_BYTES,
                })
            }
            RawArguments::Json(json) => Arguments::try_from(json.clone()),
        };
        let shown = self.get(&request.tool).cloned();
        let name = shown.as_ref().map_or_else(
            || ToolName::from(request.tool.as_str()),
            |shown| shown.spec.name.clone(),
        );
        let (arguments, malformed) = match parsed {
            Ok(arguments) => (arguments, None),
            Err(error) => (Arguments::empty(), Some(error)),
        };
        let refusal = match (&shown, malformed) {
            (None, _) => Some(self.not_found(&name)),
            (Some(shown), _) if shown.entry.pinned_as.is_some() => {
                Some(changed_tool_outcome(&shown.entry))
            }
            (Some(_), Some(error)) => Some(malformed_arguments(&error)),
            (Some(shown), None) => shown.check_arguments(&arguments),
        };
        Admission {
            tool: name,
            shown,
            arguments,
            refusal,
        }
    }

    fn not_found(&self, name: &ToolName) -> Outcome {
        let near = self.similar_names(name);
        let hint = if near.is_empty() {
            String::new()
        } else {
            format!(" Did you mean {}?", near.join(" or "))
        };
        Outcome::refused(
            Refusal::ToolNotFound,
            format!("There is no tool named {name}.{hint}"),
        )
    }

    fn similar_names(&self, name: &ToolName) -> Vec<&str> {
        let wanted = name.as_str().to_lowercase();
        let mut scored: Vec<(f64, &str)> = Vec::new();
        for known in self.0.keys() {
            let score = strsim::jaro_winkler(&wanted, &known.as_str().to_lowercase());
            if score > 0.8 {
                scored.push((score, known.as_str()));
            }
        }
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        scored.into_iter().take(3).map(|(_, name)| name).collect()
    }
}

impl ShownTool {
    /// Checks whether the model sees the schema of the tool itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.spec.input.is_same(&self.entry.spec.input)
    }

    /// Returns the outcome that rejects arguments which do not fit what the model was shown.
    fn check_arguments(&self, arguments: &Arguments) -> Option<Outcome> {
        // Not left to the schema: one that allows any parameter would accept these, too.
        let touched = self.entry.host_values.check_untouched(arguments);
        if !touched.is_empty() {
            return Some(Outcome::schema_violation(&touched));
        }
        let problems = self.spec.input.check_value(arguments.as_json()).err()?;
        Some(Outcome::schema_violation(&problems))
    }
}

/// A checked request, ready to enter a stack.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The name as a safe label.
    pub tool: ToolName,
    /// The tool, if the model was shown one of that name.
    pub shown: Option<Arc<ShownTool>>,
    /// The arguments; empty if they could not be parsed.
    pub arguments: Arguments,
    /// The outcome that rejects the call, if it cannot run. It still enters the stack, to be
    /// recorded.
    pub refusal: Option<Outcome>,
}

impl Admission {
    /// Creates the admission of a provider-executed call; there is nothing to check.
    pub fn for_provider_call(request: &ToolRequest) -> Self {
        let arguments = match &request.arguments {
            RawArguments::Text(text) => Arguments::parse(text),
            RawArguments::Json(json) => Arguments::try_from(json.clone()),
        };
        let tool = ToolName::from(request.tool.as_str());
        let arguments = arguments.unwrap_or_else(|_| Arguments::empty());
        Self {
            tool,
            shown: None,
            arguments,
            refusal: None,
        }
    }
}

fn find_injections(
    old: &ToolSpec,
    new: &ToolSpec,
    transform: &dyn Transform,
) -> Result<Vec<InjectedParameter>, ViewError> {
    if new.name != old.name {
        return Err(ViewError::Renamed {
            by: transform.name(),
            tool: old.name.clone(),
        });
    }
    // The common case: the transform did not change the schema.
    if new.input.is_same(&old.input) {
        return Ok(Vec::new());
    }
    let property = |spec: &ToolSpec, name: &str| {
        spec.input
            .as_json()
            .get("properties")
            .and_then(|p| p.get(name))
            .cloned()
    };
    for parameter in old.input.parameters() {
        if property(new, parameter) != property(old, parameter) {
            let parameter = parameter.to_owned();
            return Err(ViewError::NotAdditive {
                by: transform.name(),
                tool: old.name.clone(),
                parameter,
            });
        }
    }
    let known: BTreeSet<&str> = old.input.parameters().collect();
    let added = new.input.parameters().filter(|name| !known.contains(name));
    Ok(added
        .map(|name| InjectedParameter {
            parameter: name.to_owned(),
            by: transform.name(),
            origin: transform.origin(),
        })
        .collect())
}

fn malformed_arguments(error: &JsonError) -> Outcome {
    let reason = error.to_string();
    Outcome::schema_violation(&[SchemaProblem {
        pointer: String::new(),
        reason,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use crate::Status;
    use serde_json::json;

    struct Edit<F>(F);
    impl<F: Fn(ToolSpec) -> Option<ToolSpec> + Send + Sync + 'static> Transform for Edit<F> {
        fn name(&self) -> LayerName {
            "edit".into()
        }
        fn transform(&self, spec: ToolSpec) -> Option<ToolSpec> {
            (self.0)(spec)
        }
    }

    fn edit(
        f: impl Fn(ToolSpec) -> Option<ToolSpec> + Send + Sync + 'static,
    ) -> Arc<dyn Transform> {
        Arc::new(Edit(f))
    }

    fn registry() -> Registry {
        let registry = Registry::new();
        let schema = json!({
            "type": "object",
            "properties": { "path": { "type": "string" } },
            "required": ["path"],
            "additionalProperties": false,
        });
        for name in ["read_file", "write_file", "search"] {
            let schema = Schema::new(schema.clone()).expect("valid");
            registry
                .register_host(ToolSpec::new(name, "A tool.", schema))
                .expect("free");
        }
        registry
    }

    fn status(view: &View, tool: &str, arguments: &str) -> Option<Status> {
        view.admit_request(&ToolRequest::from_text("1", tool, arguments))
            .refusal
            .and_then(|r| r.status())
    }

    #[test]
    fn a_tool_that_is_not_shown_is_rejected() {
        let view = View::from_registry(&registry())
            .narrow_to(["read_file", "write_file"])
            .narrow_to(["read_file", "search"]);
        assert_eq!(
            view.specs().map(|s| s.name.as_str()).collect::<Vec<_>>(),
            ["read_file"]
        );
        assert_eq!(status(&view, "read_file", r#"{"path":"x"}"#), None);
        assert_eq!(
            status(&view, "write_file", r#"{"path":"x"}"#),
            Some(Status::ToolNotFound)
        );
        assert_eq!(
            status(&View::without_tools(), "read_file", r#"{"path":"x"}"#),
            Some(Status::ToolNotFound)
        );
    }

    #[test]
    fn the_error_for_an_unknown_tool_suggests_similar_names() {
        let refusal = View::from_registry(&registry())
            .admit_request(&ToolRequest::from_text("1", "readfile", "{}"))
            .refusal
            .expect("refused");
        let text = refusal
            .settled()
            .expect("settled")
            .model_text()
            .into_owned();
        assert!(
            text.contains("read_file") && !text.contains("search"),
            "{text}"
        );
    }

    #[test]
    fn bad_arguments_are_named_with_pointer_and_reason() {
        let view = View::from_registry(&registry());
        for bad in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            r#"{"path":1}"#,
            r#"{"path":"a","more":1}"#,
        ] {
            assert_eq!(
                status(&view, "read_file", bad),
                Some(Status::SchemaViolation),
                "{bad}"
            );
        }
        let refusal = view
            .admit_request(&ToolRequest::from_text("1", "read_file", r#"{"path":1}"#))
            .refusal
            .expect("refused");
        assert!(
            refusal
                .settled()
                .expect("settled")
                .model_text()
                .contains("/path: ")
        );
    }

    #[test]
    fn ten_megabytes_of_arguments_are_accepted_and_deep_nesting_is_rejected() {
        let view = View::from_registry(&registry());
        let large = json!({ "path": "x".repeat(10 << 20) }).to_string();
        assert_eq!(status(&view, "read_file", &large), None);
        let deep = format!(
            r#"{{"path":{}1{}}}"#,
            "[".repeat(10_000),
            "]".repeat(10_000)
        );
        assert_eq!(
            status(&view, "read_file", &deep),
            Some(Status::SchemaViolation)
        );
        let big = json!({ "path": "x".repeat(Arguments::MAX_BYTES) });
        let refusal = view
            .admit_request(&ToolRequest::from_json("1", "read_file", big))
            .refusal
            .and_then(|r| r.status());
        assert_eq!(
            refusal,
            Some(Status::SchemaViolation),
            "however the arguments arrive"
        );
        let huge = format!(r#"{{"path":"{}"}}"#, "x".repeat(Arguments::MAX_BYTES));
        assert_eq!(
            status(&view, "read_file", &huge),
            Some(Status::SchemaViolation)
        );
    }

    #[test]
    fn the_view_lists_injected_parameters_and_the_registry_keeps_the_original() {
        let registry = registry();
        let inject = edit(|mut spec| {
            if let Ok(Some(input)) =
                spec.input
                    .with_parameter("reason", json!({ "type": "string" }), true)
            {
                spec.input = input;
            }
            Some(spec)
        });
        let view = View::from_registry(&registry)
            .apply_transforms([&inject, &inject])
            .expect("additive");
        let tool = view.get("search").expect("shown");
        assert_eq!(
            tool.injected,
            [InjectedParameter {
                parameter: "reason".into(),
                by: "edit".into(),
                origin: inject.origin(),
            }]
        );
        assert_eq!(
            status(&view, "search", r#"{"path":"x"}"#),
            Some(Status::SchemaViolation)
        );
        assert_eq!(
            status(&view, "search", r#"{"path":"x","reason":"r"}"#),
            None
        );
        assert!(
            registry
                .get("search")
                .expect("there")
                .spec
                .input
                .parameters()
                .all(|p| p != "reason")
        );
    }

    #[test]
    fn a_transform_may_drop_a_tool_but_not_rename_it_or_change_a_parameter() {
        let view = View::from_registry(&registry());
        let drop_search = edit(|spec| (spec.name != "search").then_some(spec));
        assert!(
            view.apply_transforms([&drop_search])
                .expect("fine")
                .get("search")
                .is_none()
        );
        let rename = edit(|mut spec| {
            spec.name = "other".into();
            Some(spec)
        });
        assert!(matches!(
            view.apply_transforms([&rename]),
            Err(ViewError::Renamed { .. })
        ));
        let loosen = edit(|mut spec| {
            spec.input = Schema::any_object();
            Some(spec)
        });
        assert!(matches!(
            view.apply_transforms([&loosen]),
            Err(ViewError::NotAdditive { .. })
        ));
    }
}
