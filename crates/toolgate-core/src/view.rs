//! The specs one model is shown; what is not shown cannot be called.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc};

use crate::{
    Arguments, JsonError, LayerName, Outcome, Problem, Registry, Status, ToolEntry, ToolName,
    ToolRequest, ToolSpec, Transform, call::RawArguments, registry::changed_tool,
};

/// What one model may see and call: the registry, filtered and transformed.
///
/// Showing and enforcing use the same list, so a tool that is not shown is refused when called anyway.
///
/// ```
/// use toolgate_core::{Registry, Schema, ToolSpec, View};
/// let registry = Registry::new();
/// registry.register_host(ToolSpec::new("read", "Reads.", Schema::any_object()))?;
/// registry.register_host(ToolSpec::new("write", "Writes.", Schema::any_object()))?;
/// let view = View::of(&registry).narrow(["read"]);
/// assert_eq!(view.specs().count(), 1);
/// # Ok::<(), toolgate_core::RegisterError>(())
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
    /// The parameters that were injected, and by whom. Their layers take them out again.
    pub injected: Vec<Injected>,
}

/// A parameter that the tool itself does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// What it is called.
    pub parameter: String,
    /// Which transform put it there.
    pub by: LayerName,
}

/// A transform did something that transforms may not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// It gave a tool another name.
    #[error("the transform {by} renamed the tool {tool}")]
    Renamed {
        /// Which transform.
        by: LayerName,
        /// Which tool.
        tool: ToolName,
    },
    /// It changed or removed a parameter that was there.
    #[error("the transform {by} changed the parameter {parameter} of {tool}; transforms only add")]
    NotAdditive {
        /// Which transform.
        by: LayerName,
        /// Which tool.
        tool: ToolName,
        /// Which parameter.
        parameter: String,
    },
}

impl View {
    /// Every tool of the registry, as it is.
    pub fn of(registry: &Registry) -> Self {
        let show = |entry: Arc<ToolEntry>| {
            let shown = ShownTool {
                spec: entry.spec.clone(),
                entry,
                injected: Vec::new(),
            };
            (shown.spec.name.clone(), Arc::new(shown))
        };
        Self(Arc::new(registry.entries().into_iter().map(show).collect()))
    }

    /// Every tool of the registry, as the layers of a stack want it shown.
    pub fn under(registry: &Registry, stack: &crate::Stack) -> Result<Self, ViewError> {
        Self::of(registry).transform(&stack.transforms())
    }

    /// No tools at all, as for tool choice `none`.
    pub fn without_tools() -> Self {
        Self::default()
    }

    /// Only the named tools. Narrowing twice keeps what both name; it never widens.
    pub fn narrow<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<&str> = names.into_iter().collect();
        self.filter(|tool| names.contains(tool.spec.name.as_str()))
    }

    /// Only the tools that pass a test.
    pub fn filter(&self, keep: impl Fn(&ShownTool) -> bool) -> Self {
        let kept = self.0.iter().filter(|(_, tool)| keep(tool));
        Self(Arc::new(
            kept.map(|(name, tool)| (name.clone(), tool.clone()))
                .collect(),
        ))
    }

    /// The tools of both; where both have one of a name, the other's is shown.
    pub fn shadowed_by(&self, other: &Self) -> Self {
        let both = self.0.iter().chain(other.0.iter());
        Self(Arc::new(
            both.map(|(name, tool)| (name.clone(), tool.clone()))
                .collect(),
        ))
    }

    /// Rewrites the specs, first transform first.
    pub fn transform<'a>(
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
                let by = transform.name();
                shown.injected.extend(injections(&shown.spec, &spec, &by)?);
                shown.spec = spec;
            }
            tools.insert(shown.spec.name.clone(), Arc::new(shown));
        }
        Ok(Self(Arc::new(tools)))
    }

    /// What the model is told, ordered by name.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.values().map(|tool| &tool.spec)
    }

    /// Whether both are one view, not only alike: what was made of one holds for the other.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many tools are shown.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no tool is shown.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds a tool that is shown.
    pub fn get(&self, name: &str) -> Option<&Arc<ShownTool>> {
        self.0.get(name)
    }

    /// Checks what the model asked for against what it was shown.
    pub fn admit(&self, request: &ToolRequest) -> Admission {
        let parsed = match &request.arguments {
            RawArguments::Text(text) => Arguments::parse(text),
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
            (Some(shown), _) if shown.entry.pinned_as.is_some() => Some(changed_tool(&shown.entry)),
            (Some(_), Some(error)) => Some(malformed_arguments(&error)),
            (Some(shown), None) => shown
                .spec
                .input
                .check(arguments.as_json())
                .err()
                .map(|problems| schema_violation(&problems)),
        };
        Admission {
            tool: name,
            shown,
            arguments,
            refusal,
        }
    }

    fn not_found(&self, name: &ToolName) -> Outcome {
        let near = self.near(name);
        let hint = match near.is_empty() {
            true => String::new(),
            false => format!(" Did you mean {}?", near.join(" or ")),
        };
        Outcome::refused(
            Status::ToolNotFound,
            format!("There is no tool named {name}.{hint}"),
        )
    }

    fn near(&self, name: &ToolName) -> Vec<&str> {
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
    /// Whether the model sees the schema of the tool itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.spec.input.same(&self.entry.spec.input)
    }
}

/// A request after it was checked: what can enter a stack.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The name as a safe label.
    pub tool: ToolName,
    /// The tool, if the model was shown one of that name.
    pub shown: Option<Arc<ShownTool>>,
    /// The arguments; empty if they could not be read.
    pub arguments: Arguments,
    /// Why the call cannot be made, if so. It still enters the stack, so that it is recorded.
    pub refusal: Option<Outcome>,
}

impl Admission {
    /// A call that the provider has made by itself; there is nothing to check.
    pub fn of_provider(request: &ToolRequest) -> Self {
        let arguments = match &request.arguments {
            RawArguments::Text(text) => Arguments::parse(text),
            RawArguments::Json(json) => Arguments::try_from(json.clone()),
        };
        let (tool, arguments) = (
            ToolName::from(request.tool.as_str()),
            arguments.unwrap_or_else(|_| Arguments::empty()),
        );
        Self {
            tool,
            shown: None,
            arguments,
            refusal: None,
        }
    }
}

fn injections(old: &ToolSpec, new: &ToolSpec, by: &LayerName) -> Result<Vec<Injected>, ViewError> {
    if new.name != old.name {
        return Err(ViewError::Renamed {
            by: by.clone(),
            tool: old.name.clone(),
        });
    }
    if new.input.same(&old.input) {
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
                by: by.clone(),
                tool: old.name.clone(),
                parameter,
            });
        }
    }
    let known: BTreeSet<&str> = old.input.parameters().collect();
    let added = new.input.parameters().filter(|name| !known.contains(name));
    Ok(added
        .map(|name| Injected {
            parameter: name.to_owned(),
            by: by.clone(),
        })
        .collect())
}

fn malformed_arguments(error: &JsonError) -> Outcome {
    let reason = error.to_string();
    schema_violation(&[Problem {
        pointer: String::new(),
        reason,
    }])
}

/// The refusal that lists what is wrong with the arguments.
pub(crate) fn schema_violation(problems: &[Problem]) -> Outcome {
    let list: Vec<String> = problems.iter().map(Problem::to_string).collect();
    let text = format!("The arguments do not fit the schema. {}", list.join("; "));
    Outcome::refused(Status::SchemaViolation, text).noting(|notes| {
        let problems = serde_json::to_value(problems).unwrap_or_default();
        notes.metadata.insert("problems".into(), problems);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
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
        view.admit(&ToolRequest::text("1", tool, arguments))
            .refusal
            .and_then(|r| r.status())
    }

    #[test]
    fn what_is_not_shown_is_refused() {
        let view = View::of(&registry())
            .narrow(["read_file", "write_file"])
            .narrow(["read_file", "search"]);
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
    fn an_unknown_tool_names_the_near_ones() {
        let refusal = View::of(&registry())
            .admit(&ToolRequest::text("1", "readfile", "{}"))
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
        let view = View::of(&registry());
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
            .admit(&ToolRequest::text("1", "read_file", r#"{"path":1}"#))
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
    fn ten_megabytes_of_arguments_are_served_and_deep_nesting_is_refused() {
        let view = View::of(&registry());
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
            .admit(&ToolRequest::json("1", "read_file", big))
            .refusal
            .and_then(|r| r.status());
        assert_eq!(
            refusal,
            Some(Status::SchemaViolation),
            "however the arguments come"
        );
        let huge = format!(r#"{{"path":"{}"}}"#, "x".repeat(Arguments::MAX_BYTES));
        assert_eq!(
            status(&view, "read_file", &huge),
            Some(Status::SchemaViolation)
        );
    }

    #[test]
    fn the_view_remembers_injected_parameters_and_the_registry_keeps_the_original() {
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
        let view = View::of(&registry)
            .transform([&inject, &inject])
            .expect("additive");
        let tool = view.get("search").expect("shown");
        assert_eq!(
            tool.injected,
            [Injected {
                parameter: "reason".into(),
                by: "edit".into()
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
    fn a_transform_may_drop_a_tool_but_not_rename_it_or_touch_a_parameter() {
        let view = View::of(&registry());
        let drop_search = edit(|spec| (spec.name != "search").then_some(spec));
        assert!(
            view.transform([&drop_search])
                .expect("fine")
                .get("search")
                .is_none()
        );
        let rename = edit(|mut spec| {
            spec.name = "other".into();
            Some(spec)
        });
        assert!(matches!(
            view.transform([&rename]),
            Err(ViewError::Renamed { .. })
        ));
        let loosen = edit(|mut spec| {
            spec.input = Schema::any_object();
            Some(spec)
        });
        assert!(matches!(
            view.transform([&loosen]),
            Err(ViewError::NotAdditive { .. })
        ));
    }
}
