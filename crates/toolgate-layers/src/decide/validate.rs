//! Checks arguments by rules of the operator, in addition to the tool's schema.

use std::{collections::BTreeMap, fmt, sync::Arc};

use globset::GlobSet;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerCapabilities, Next, Outcome, Refusal,
    SchemaProblem, parse_argument_pointer, run_contained_sync,
};

use crate::{BadOption, Configurable, Resources, config::lists};

/// A layer that rejects calls whose arguments violate the tool's schema or a rule about a
/// parameter.
///
/// The model reads every problem with its location and can fix the call; no value is repeated. If a
/// rule panics, the call is rejected. If several rules are about the same parameter, all of them
/// have to hold.
///
/// ```
/// # use {toolgate_core::Status, toolgate_layers::Validate, toolgate_testkit::{call_with, echo_under}};
/// # use serde_json::{Value, json};
/// # fn main() -> Result<(), toolgate_layers::BadOption> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// let even = |value: &Value| match value.as_i64() {
///     Some(n) if n % 2 == 0 => Ok(()),
///     _ => Err("must be even".to_owned()),
/// };
/// let stack = echo_under(Validate::new().rule("dice*", "count", even)?);
/// # runtime.block_on(async {
/// let outcome = stack.run(call_with("dice_roll", json!({ "count": 3 }))).await;
/// assert_eq!(outcome.status(), Some(Status::SchemaViolation));
/// # });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Validate {
    rules: Vec<ArgumentRule>,
    on_error: Option<Arc<ErrorListener>>,
}

type ErrorListener = dyn Fn(&str, &str, &str) + Send + Sync;
type CodeCheck = dyn Fn(&Value) -> Result<(), String> + Send + Sync;

impl Validate {
    /// Creates a layer that checks only the tool's own schema.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check of a parameter (name or JSON pointer) of a tool (name, glob or `*`), applied
    /// whenever it is given.
    ///
    /// The model reads the error text.
    pub fn rule(
        mut self,
        tool: &str,
        parameter: &str,
        check: impl Fn(&Value) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self, BadOption> {
        self.rules.push(ArgumentRule::new(
            tool,
            parameter,
            ArgumentCheck::Code(Arc::new(check)),
        )?);
        Ok(self)
    }

    /// Calls `tell` for each problem with the tool, the parameter and the reason. A panic in it is
    /// contained.
    pub fn on_error(mut self, tell: impl Fn(&str, &str, &str) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(tell));
        self
    }

    /// Returns every problem with the arguments of a call, or an error if a rule could not be
    /// applied.
    fn find_problems(&self, call: &Call) -> Result<Vec<SchemaProblem>, String> {
        let arguments = call.arguments.as_json();
        // Checked again here, because a layer above may have changed the arguments.
        let schema = call.spec().map(|spec| spec.input.check_value(arguments));
        let mut problems = schema.and_then(Result::err).unwrap_or_default();
        for rule in self.rules_for(call) {
            if let Err(reason) = rule.check.check_value(arguments.pointer(&rule.pointer))? {
                problems.push(SchemaProblem {
                    pointer: rule.pointer.clone(),
                    reason,
                });
            }
        }
        Ok(problems)
    }

    fn rules_for<'a>(&'a self, call: &'a Call) -> impl Iterator<Item = &'a ArgumentRule> {
        let applies = |rule: &&ArgumentRule| rule.tools.is_match(call.tool.as_str());
        self.rules.iter().filter(applies)
    }

    fn has_rules_for(&self, call: &Call) -> bool {
        self.rules_for(call).next().is_some()
    }

    fn notify_listener(&self, call: &Call, problems: &[SchemaProblem]) {
        let Some(tell) = self.on_error.as_ref().filter(|_| !call.is_rehearsal()) else {
            return;
        };
        for SchemaProblem { pointer, reason } in problems {
            // A listener must not affect the call.
            drop(run_contained_sync(|| {
                tell(call.tool.as_str(), pointer, reason)
            }));
        }
    }
}

impl Layer for Validate {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match self.find_problems(&call) {
            Ok(problems) if problems.is_empty() => next.run(call).await,
            Ok(problems) => {
                next.note_reason(match problems.len() {
                    1 => "the arguments have 1 problem".to_owned(),
                    n => format!("the arguments have {n} problems"),
                });
                self.notify_listener(&call, &problems);
                Outcome::schema_violation(&problems)
            }
            Err(report) => {
                // Fail closed. The panic text is for the operator only, because it may repeat a
                // value.
                next.note_reason("a rule could not be applied");
                let error = CallError::new(
                    ErrorCategory::InvalidInput,
                    "the arguments could not be checked",
                );
                Outcome::error(Refusal::SchemaViolation, error.with_operator_detail(report))
            }
        }
    }

    // The runtime checks the schema where deciding begins; what is left are the rules.
    fn waits_for_outcome(&self, call: &Call) -> bool {
        self.on_error.is_none() && !self.has_rules_for(call)
    }

    fn wants_outcome(&self, _: &Call, _: &Outcome) -> bool {
        false
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).answering()
    }
}

impl Configurable for Validate {
    const NAME: &'static str = "validate";
    const SUMMARY: &'static str =
        "Checks arguments against the tool's schema and rules per parameter.";
    type Options = ValidateOptions;

    fn configure(options: ValidateOptions, _: &Resources) -> Result<Self, BadOption> {
        let mut rules = Vec::new();
        for (tool, parameters) in &options.rules {
            for (parameter, rule) in parameters {
                let written = CompiledParameterRule::new(rule).map_err(|problem| {
                    BadOption::new("rules", format!("{tool}, {parameter}: {problem}"))
                })?;
                rules.push(ArgumentRule::new(
                    tool,
                    parameter,
                    ArgumentCheck::Configured(Arc::new(written)),
                )?);
            }
        }
        Ok(Self {
            rules,
            on_error: None,
        })
    }
}

impl fmt::Debug for Validate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validate")
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}

/// Rules about parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ValidateOptions {
    /// Tool (name, glob or `*`) → parameter (name or JSON pointer) → rule.
    pub rules: BTreeMap<String, BTreeMap<String, ParameterRule>>,
}

/// Conditions on one parameter. A parameter that is not given is not checked, unless it is
/// required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParameterRule {
    /// True if the parameter has to be given.
    pub required: bool,
    /// A regular expression that has to be found in the text; write `^…$` for the whole of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// A regular expression that must not be found in the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_pattern: Option<String>,
    /// The values that are allowed; an empty list allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// The smallest number allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The largest number allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Minimum number of characters of a text, or items of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_length: Option<usize>,
    /// Maximum number of characters of a text, or items of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<usize>,
    /// The text that the model reads instead of the built-in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone)]
struct ArgumentRule {
    tools: GlobSet,
    pointer: String,
    check: ArgumentCheck,
}

#[derive(Clone)]
enum ArgumentCheck {
    Configured(Arc<CompiledParameterRule>),
    Code(Arc<CodeCheck>),
}

impl ArgumentRule {
    fn new(tool: &str, parameter: &str, check: ArgumentCheck) -> Result<Self, BadOption> {
        if parameter.is_empty() {
            return Err(BadOption::new("rules", "a rule needs a parameter name"));
        }
        Ok(Self {
            tools: lists::compile_name_globs("rules", &[tool])?,
            pointer: parse_argument_pointer(parameter),
            check,
        })
    }
}

impl ArgumentCheck {
    /// Checks a value. The inner error is the problem with it; the outer one is a rule that could
    /// not be applied.
    fn check_value(&self, value: Option<&Value>) -> Result<Result<(), String>, String> {
        match (self, value) {
            (Self::Configured(rule), value) => Ok(rule
                .check_value(value)
                .map_err(|problem| rule.problem_text(problem))),
            (Self::Code(_), None) => Ok(Ok(())),
            (Self::Code(check), Some(value)) => run_contained_sync(|| check(value)),
        }
    }
}

/// A [`ParameterRule`] with its patterns compiled.
struct CompiledParameterRule {
    rule: ParameterRule,
    pattern: Option<Regex>,
    not_pattern: Option<Regex>,
}

impl CompiledParameterRule {
    fn new(rule: &ParameterRule) -> Result<Self, String> {
        let regex = |pattern: &Option<String>| {
            let compiled = pattern.as_deref().map(Regex::new).transpose();
            compiled.map_err(|error| format!("the pattern is invalid: {error}"))
        };
        if *rule
            == (ParameterRule {
                message: rule.message.clone(),
                ..ParameterRule::default()
            })
        {
            return Err("the rule has no condition".to_owned());
        }
        if rule.min.is_some_and(f64::is_nan) || rule.max.is_some_and(f64::is_nan) {
            return Err("a limit must be a number".to_owned());
        }
        if rule.min.zip(rule.max).is_some_and(|(min, max)| min > max) {
            return Err("min is larger than max".to_owned());
        }
        if rule
            .min_length
            .zip(rule.max_length)
            .is_some_and(|(min, max)| min > max)
        {
            return Err("min_length is larger than max_length".to_owned());
        }
        Ok(Self {
            pattern: regex(&rule.pattern)?,
            not_pattern: regex(&rule.not_pattern)?,
            rule: rule.clone(),
        })
    }

    fn check_value(&self, value: Option<&Value>) -> Result<(), String> {
        let rule = &self.rule;
        let Some(value) = value else {
            return if rule.required {
                Err("is required".to_owned())
            } else {
                Ok(())
            };
        };
        if rule
            .one_of
            .as_ref()
            .is_some_and(|allowed| !allowed.contains(value))
        {
            return Err("is not one of the allowed values".to_owned());
        }
        self.check_text(value)?;
        self.check_number(value)?;
        self.check_length(value)
    }

    fn check_text(&self, value: &Value) -> Result<(), String> {
        if self.pattern.is_none() && self.not_pattern.is_none() {
            return Ok(());
        }
        // A value of another type must not bypass the pattern.
        let text = value.as_str().ok_or("must be a text")?;
        match (&self.pattern, &self.not_pattern) {
            (Some(pattern), _) if !pattern.is_match(text) => {
                Err(format!("does not match the pattern {pattern}"))
            }
            (_, Some(never)) if never.is_match(text) => {
                Err(format!("matches the pattern {never}, which is not allowed"))
            }
            _ => Ok(()),
        }
    }

    fn check_number(&self, value: &Value) -> Result<(), String> {
        let min = self.rule.min;
        let max = self.rule.max;
        if min.is_none() && max.is_none() {
            return Ok(());
        }
        let number = value.as_f64().ok_or("must be a number")?;
        match (min, max) {
            (Some(min), _) if number < min => Err(format!("is less than {min}")),
            (_, Some(max)) if number > max => Err(format!("is more than {max}")),
            _ => Ok(()),
        }
    }

    fn check_length(&self, value: &Value) -> Result<(), String> {
        let min = self.rule.min_length;
        let max = self.rule.max_length;
        if min.is_none() && max.is_none() {
            return Ok(());
        }
        let length = match value {
            Value::String(text) => text.chars().count(),
            Value::Array(items) => items.len(),
            _ => return Err("must be a text or a list".to_owned()),
        };
        match (min, max) {
            (Some(min), _) if length < min => Err(format!("is shorter than {min}")),
            (_, Some(max)) if length > max => Err(format!("is longer than {max}")),
            _ => Ok(()),
        }
    }

    fn problem_text(&self, problem: String) -> String {
        self.rule.message.clone().unwrap_or(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Mutex;
    use toolgate_core::Status;
    use toolgate_core::{CallSeed, Registry, Schema, ToolSpec, map_call};
    use toolgate_testkit::{call_with, echo, echo_under, run_twice, seed, seed_for};

    fn configured_layer(rules: Value) -> Result<Validate, String> {
        let options =
            serde_json::from_value(json!({ "rules": rules })).map_err(|error| error.to_string())?;
        Validate::configure(options, &Resources::new()).map_err(|error| error.to_string())
    }

    fn model_text(outcome: &Outcome) -> String {
        outcome
            .settled()
            .expect("settled")
            .model_text()
            .into_owned()
    }

    #[tokio::test]
    async fn every_problem_is_named_with_its_location_and_no_value_is_repeated() {
        let rules = json!({ "*": {
            "host": { "pattern": "^[a-z.]+$" },
            "/deep/port": { "min": 1, "max": 65535 },
        } });
        let stack = echo_under(configured_layer(rules).expect("valid rules"));
        let outcome = stack
            .run(call_with(
                "x",
                json!({ "host": "hunter2!", "deep": { "port": 70000 } }),
            ))
            .await;
        assert_eq!(outcome.status(), Some(Status::SchemaViolation));
        let text = model_text(&outcome);
        assert!(
            text.starts_with("The arguments do not fit the schema. "),
            "{text}"
        );
        assert!(
            text.contains("/host: does not match")
                && text.contains("/deep/port: is more than 65535"),
            "{text}"
        );
        assert!(
            !text.contains("hunter2") && !text.contains("70000"),
            "{text}"
        );
        let fine = stack
            .run(call_with(
                "x",
                json!({ "host": "a.b", "deep": { "port": 80 } }),
            ))
            .await;
        assert!(fine.is_ok());
    }

    #[test]
    fn each_condition_rejects_violations_and_accepts_the_rest() {
        let table = [
            (json!({ "pattern": "^a" }), json!("ab"), json!("ba")),
            (json!({ "pattern": "^a" }), json!("a"), json!(7)),
            (json!({ "not_pattern": "x" }), json!("a"), json!("axb")),
            (json!({ "one_of": ["a", 1] }), json!(1), json!(2)),
            (json!({ "min": 2 }), json!(2), json!(1.9)),
            (json!({ "max": 2 }), json!(2), json!("2")),
            (json!({ "min_length": 2 }), json!("éé"), json!("é")),
            (json!({ "max_length": 1 }), json!([1]), json!([1, 2])),
        ];
        for (rule, good, bad) in table {
            let written =
                CompiledParameterRule::new(&serde_json::from_value(rule.clone()).expect("a rule"))
                    .expect("valid");
            assert_eq!(written.check_value(Some(&good)), Ok(()), "{rule}");
            assert!(written.check_value(Some(&bad)).is_err(), "{rule}");
            assert_eq!(written.check_value(None), Ok(()), "{rule}");
        }
        let nothing = CompiledParameterRule::new(
            &serde_json::from_value(json!({ "one_of": [] })).expect("a rule"),
        )
        .expect("valid");
        assert!(nothing.check_value(Some(&json!("a"))).is_err());
        let required = CompiledParameterRule::new(&ParameterRule {
            required: true,
            ..ParameterRule::default()
        })
        .expect("valid");
        assert!(required.check_value(None).is_err());
    }

    #[test]
    fn an_invalid_rule_is_rejected() {
        for bad in [
            json!({ "pattern": "(" }),
            json!({ "not_pattern": "[" }),
            json!({ "min": 3, "max": 2 }),
            json!({ "min_length": 3, "max_length": 2 }),
            json!({}),
            json!({ "message": "only words" }),
            json!({ "patern": "x" }),
        ] {
            assert!(
                configured_layer(json!({ "x": { "p": bad.clone() } })).is_err(),
                "{bad}"
            );
        }
        assert!(configured_layer(json!({ "[": { "p": { "min": 1 } } })).is_err());
        assert!(configured_layer(json!({ "x": { "": { "min": 1 } } })).is_err());
        assert!(
            CompiledParameterRule::new(&ParameterRule {
                min: Some(f64::NAN),
                ..ParameterRule::default()
            })
            .is_err()
        );
    }

    #[tokio::test]
    async fn the_message_of_a_rule_replaces_the_built_in_text() {
        let rules = json!({ "x": { "p": { "one_of": ["a"], "message": "ask for a" } } });
        let outcome = echo_under(configured_layer(rules).expect("valid rules"))
            .run(call_with("x", json!({ "p": "b" })))
            .await;
        assert!(model_text(&outcome).ends_with("/p: ask for a"));
    }

    #[tokio::test]
    async fn a_rule_that_panics_rejects_the_call_and_informs_only_the_operator() {
        let stack = echo_under(
            Validate::new()
                .rule("*", "p", |_| panic!("hunter2"))
                .expect("valid rules"),
        );
        let outcome = stack.run(call_with("x", json!({ "p": 1 }))).await;
        assert_eq!(outcome.status(), Some(Status::SchemaViolation));
        assert!(!model_text(&outcome).contains("hunter2"));
        let error = outcome
            .settled()
            .and_then(|settled| settled.error.clone())
            .expect("an error");
        assert!(error.operator.is_some_and(|text| text.contains("hunter2")));
        assert!(
            stack.run(call_with("x", json!({}))).await.is_ok(),
            "not given, not checked"
        );
    }

    #[tokio::test]
    async fn listeners_receive_each_problem_except_in_a_rehearsal_and_may_panic() {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let ears = heard.clone();
        let layer = configured_layer(json!({ "x": { "p": { "min": 1 } } }))
            .expect("valid rules")
            .on_error(move |tool, at, what| {
                ears.lock()
                    .expect("not poisoned")
                    .push(format!("{tool} {at} {what}"));
                panic!("deaf");
            });
        let stack = echo_under(layer);
        let rehearsal = CallSeed {
            rehearsal: true,
            ..seed("x", json!({ "p": 0 }))
        };
        assert_eq!(
            stack.run(Call::new(rehearsal)).await.status(),
            Some(Status::SchemaViolation)
        );
        assert_eq!(heard.lock().expect("not poisoned").len(), 0);
        assert_eq!(
            stack.run(call_with("x", json!({ "p": 0 }))).await.status(),
            Some(Status::SchemaViolation)
        );
        assert_eq!(
            *heard.lock().expect("not poisoned"),
            ["x /p is less than 1"]
        );
    }

    #[tokio::test]
    async fn the_schema_of_the_tool_itself_is_checked_too() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let registry = Registry::new();
        let spec = ToolSpec::new("x", "", Schema::for_arguments(schema).expect("valid"));
        registry.register_host(spec).expect("registers");
        let seed = seed_for(
            &toolgate_testkit::plain_view(&registry),
            "x",
            json!({ "n": 1 }),
        );
        let problems = |value: Value| {
            let call = Call::new(seed.clone()).with_arguments(value.try_into().expect("object"));
            Validate::new().find_problems(&call).expect("applied").len()
        };
        assert_eq!(
            (problems(json!({ "n": 2 })), problems(json!({ "n": "two" }))),
            (0, 1)
        );
    }

    #[tokio::test]
    async fn arguments_changed_by_a_layer_above_are_checked() {
        let raise = map_call(|call: Call| {
            let arguments = call
                .arguments
                .with_argument("p", json!(5))
                .expect("an object");
            call.with_arguments(arguments)
        });
        let layer = configured_layer(json!({ "x": { "p": { "max": 3 } } })).expect("valid rules");
        let stack = toolgate_core::Stack::over(echo())
            .layer(raise)
            .layer(layer)
            .build()
            .expect("valid order");
        assert_eq!(
            stack.run(call_with("x", json!({ "p": 1 }))).await.status(),
            Some(Status::SchemaViolation)
        );
    }

    #[tokio::test]
    async fn a_call_that_resumes_is_checked_the_same() {
        let layer =
            || configured_layer(json!({ "x": { "p": { "min": 1 } } })).expect("valid rules");
        run_twice(layer(), seed("x", json!({ "p": 1 })))
            .await
            .assert_replays();
        run_twice(layer(), seed("x", json!({ "p": 0 })))
            .await
            .assert_replays();
    }
}
