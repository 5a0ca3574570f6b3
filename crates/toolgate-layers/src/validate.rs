//! Checks arguments by rules of the operator, beyond what the tool's schema says.

use std::{collections::BTreeMap, fmt, sync::Arc};

use globset::GlobSet;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerTraits, Next, Outcome, Problem, Status,
    contained_sync,
};

use crate::{BadOption, Configurable, Parts, lists};

/// Refuses calls whose arguments break the tool's schema or a rule about a parameter.
///
/// The model reads every problem with its place and can mend the call; no value is repeated. A rule that panics
/// refuses the call. Where several rules are about the same parameter, all of them have to hold.
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
    rules: Vec<Rule>,
    on_error: Option<Arc<OnError>>,
}

type OnError = dyn Fn(&str, &str, &str) + Send + Sync;
type CodeCheck = dyn Fn(&Value) -> Result<(), String> + Send + Sync;

impl Validate {
    /// Checks the tool's own schema and nothing else.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a parameter (name or JSON pointer) of a tool (name, glob or `*`) whenever it is given.
    ///
    /// The error text is read by the model.
    pub fn rule(
        mut self,
        tool: &str,
        parameter: &str,
        check: impl Fn(&Value) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self, BadOption> {
        self.rules
            .push(Rule::new(tool, parameter, Check::Code(Arc::new(check)))?);
        Ok(self)
    }

    /// Tells somebody about each problem: tool, parameter, what is wrong. A panic there changes nothing.
    pub fn on_error(mut self, tell: impl Fn(&str, &str, &str) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(tell));
        self
    }

    /// Every problem with the arguments of a call; an error if a rule could not be applied.
    fn problems(&self, call: &Call) -> Result<Vec<Problem>, String> {
        let arguments = call.arguments.as_json();
        let schema = call.spec().map(|spec| spec.input.check(arguments));
        let mut problems = schema.and_then(Result::err).unwrap_or_default();
        for rule in self
            .rules
            .iter()
            .filter(|rule| rule.tools.is_match(call.tool.as_str()))
        {
            if let Err(reason) = rule.check.apply(arguments.pointer(&rule.pointer))? {
                problems.push(Problem {
                    pointer: rule.pointer.clone(),
                    reason,
                });
            }
        }
        Ok(problems)
    }

    fn tell(&self, call: &Call, problems: &[Problem]) {
        let Some(tell) = self.on_error.as_ref().filter(|_| !call.is_rehearsal()) else {
            return;
        };
        for Problem { pointer, reason } in problems {
            // Whoever listens has no say in what happens to the call.
            drop(contained_sync(|| tell(call.tool.as_str(), pointer, reason)));
        }
    }
}

impl Layer for Validate {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match self.problems(&call) {
            Ok(problems) if problems.is_empty() => next.run(call).await,
            Ok(problems) => {
                next.because(match problems.len() {
                    1 => "the arguments have 1 problem".to_owned(),
                    n => format!("the arguments have {n} problems"),
                });
                self.tell(&call, &problems);
                violation(&problems)
            }
            Err(report) => {
                next.because("a rule could not be applied");
                let error = CallError::new(
                    ErrorCategory::InvalidInput,
                    "the arguments could not be checked",
                );
                Outcome::error(Status::SchemaViolation, error.with_operator(report))
            }
        }
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).answering()
    }
}

impl Configurable for Validate {
    const NAME: &'static str = "validate";
    const SUMMARY: &'static str =
        "Checks arguments against the tool's schema and rules per parameter.";
    type Options = ValidateOptions;

    fn configure(options: ValidateOptions, _: &Parts) -> Result<Self, BadOption> {
        let mut rules = Vec::new();
        for (tool, parameters) in &options.rules {
            for (parameter, rule) in parameters {
                let written = Written::new(rule).map_err(|problem| {
                    BadOption::new("rules", format!("{tool}, {parameter}: {problem}"))
                })?;
                rules.push(Rule::new(
                    tool,
                    parameter,
                    Check::Written(Arc::new(written)),
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

/// The refusal in the words of the runtime's own check.
fn violation(problems: &[Problem]) -> Outcome {
    let list: Vec<String> = problems.iter().map(Problem::to_string).collect();
    let text = format!("The arguments do not fit the schema. {}", list.join("; "));
    Outcome::refused(Status::SchemaViolation, text).noting(|notes| {
        notes.metadata.insert(
            "problems".into(),
            serde_json::to_value(problems).unwrap_or_default(),
        );
    })
}

/// Rules about parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ValidateOptions {
    /// Tool (name, glob or `*`) → parameter (name or JSON pointer) → what has to be true of it.
    pub rules: BTreeMap<String, BTreeMap<String, ParameterRule>>,
}

/// What has to be true of one parameter. A parameter that is not given is not checked, unless it is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParameterRule {
    /// The parameter has to be given.
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
    /// The fewest characters of a text, or items of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_length: Option<usize>,
    /// The most characters of a text, or items of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<usize>,
    /// What the model is told instead of the built-in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone)]
struct Rule {
    tools: GlobSet,
    pointer: String,
    check: Check,
}

#[derive(Clone)]
enum Check {
    Written(Arc<Written>),
    Code(Arc<CodeCheck>),
}

impl Rule {
    fn new(tool: &str, parameter: &str, check: Check) -> Result<Self, BadOption> {
        if parameter.is_empty() {
            return Err(BadOption::new("rules", "a rule names a parameter"));
        }
        Ok(Self {
            tools: lists::names("rules", &[tool])?,
            pointer: lists::pointer(parameter),
            check,
        })
    }
}

impl Check {
    /// Says what is wrong with a value; the outer error is a rule that could not be applied.
    fn apply(&self, value: Option<&Value>) -> Result<Result<(), String>, String> {
        match (self, value) {
            (Self::Written(rule), value) => {
                Ok(rule.check(value).map_err(|problem| rule.worded(problem)))
            }
            (Self::Code(_), None) => Ok(Ok(())),
            (Self::Code(check), Some(value)) => contained_sync(|| check(value)),
        }
    }
}

/// A [`ParameterRule`] with its patterns compiled.
struct Written {
    rule: ParameterRule,
    pattern: Option<Regex>,
    not_pattern: Option<Regex>,
}

impl Written {
    fn new(rule: &ParameterRule) -> Result<Self, String> {
        let regex = |pattern: &Option<String>| {
            let compiled = pattern.as_deref().map(Regex::new).transpose();
            compiled.map_err(|error| format!("the pattern cannot be read: {error}"))
        };
        if *rule
            == (ParameterRule {
                message: rule.message.clone(),
                ..ParameterRule::default()
            })
        {
            return Err("the rule demands nothing".to_owned());
        }
        if rule.min.is_some_and(f64::is_nan) || rule.max.is_some_and(f64::is_nan) {
            return Err("a limit has to be a number".to_owned());
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

    fn check(&self, value: Option<&Value>) -> Result<(), String> {
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
        let text = value.as_str().ok_or("has to be a text")?;
        match (&self.pattern, &self.not_pattern) {
            (Some(pattern), _) if !pattern.is_match(text) => {
                Err(format!("does not fit the pattern {pattern}"))
            }
            (_, Some(never)) if never.is_match(text) => {
                Err(format!("fits the pattern {never}, which is not allowed"))
            }
            _ => Ok(()),
        }
    }

    fn check_number(&self, value: &Value) -> Result<(), String> {
        let (min, max) = (self.rule.min, self.rule.max);
        if min.is_none() && max.is_none() {
            return Ok(());
        }
        let number = value.as_f64().ok_or("has to be a number")?;
        match (min, max) {
            (Some(min), _) if number < min => Err(format!("is less than {min}")),
            (_, Some(max)) if number > max => Err(format!("is more than {max}")),
            _ => Ok(()),
        }
    }

    fn check_length(&self, value: &Value) -> Result<(), String> {
        let (min, max) = (self.rule.min_length, self.rule.max_length);
        if min.is_none() && max.is_none() {
            return Ok(());
        }
        let length = match value {
            Value::String(text) => text.chars().count(),
            Value::Array(items) => items.len(),
            _ => return Err("has to be a text or a list".to_owned()),
        };
        match (min, max) {
            (Some(min), _) if length < min => Err(format!("is shorter than {min}")),
            (_, Some(max)) if length > max => Err(format!("is longer than {max}")),
            _ => Ok(()),
        }
    }

    fn worded(&self, problem: String) -> String {
        self.rule.message.clone().unwrap_or(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Mutex;
    use toolgate_core::{CallSeed, Registry, Schema, ToolSpec, View, map_call};
    use toolgate_testkit::{call_with, echo, echo_under, run_twice, seed, seed_for};

    fn configured(rules: Value) -> Result<Validate, String> {
        let options =
            serde_json::from_value(json!({ "rules": rules })).map_err(|error| error.to_string())?;
        Validate::configure(options, &Parts::new()).map_err(|error| error.to_string())
    }

    fn model_text(outcome: &Outcome) -> String {
        outcome
            .settled()
            .expect("settled")
            .model_text()
            .into_owned()
    }

    #[tokio::test]
    async fn every_problem_is_named_with_its_place_and_no_value_is_repeated() {
        let rules = json!({ "*": {
            "host": { "pattern": "^[a-z.]+$" },
            "/deep/port": { "min": 1, "max": 65535 },
        } });
        let stack = echo_under(configured(rules).expect("fine"));
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
            text.contains("/host: does not fit") && text.contains("/deep/port: is more than 65535"),
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
    fn each_demand_refuses_what_breaks_it_and_lets_the_rest_through() {
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
                Written::new(&serde_json::from_value(rule.clone()).expect("reads")).expect("valid");
            assert_eq!(written.check(Some(&good)), Ok(()), "{rule}");
            assert!(written.check(Some(&bad)).is_err(), "{rule}");
            assert_eq!(written.check(None), Ok(()), "{rule}");
        }
        let nothing =
            Written::new(&serde_json::from_value(json!({ "one_of": [] })).expect("reads"))
                .expect("valid");
        assert!(nothing.check(Some(&json!("a"))).is_err());
        let required = Written::new(&ParameterRule {
            required: true,
            ..ParameterRule::default()
        })
        .expect("valid");
        assert!(required.check(None).is_err());
    }

    #[test]
    fn a_rule_that_makes_no_sense_refuses_to_load() {
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
                configured(json!({ "x": { "p": bad.clone() } })).is_err(),
                "{bad}"
            );
        }
        assert!(configured(json!({ "[": { "p": { "min": 1 } } })).is_err());
        assert!(configured(json!({ "x": { "": { "min": 1 } } })).is_err());
        assert!(
            Written::new(&ParameterRule {
                min: Some(f64::NAN),
                ..ParameterRule::default()
            })
            .is_err()
        );
    }

    #[tokio::test]
    async fn the_own_message_of_a_rule_takes_the_place_of_the_words() {
        let rules = json!({ "x": { "p": { "one_of": ["a"], "message": "ask for a" } } });
        let outcome = echo_under(configured(rules).expect("fine"))
            .run(call_with("x", json!({ "p": "b" })))
            .await;
        assert!(model_text(&outcome).ends_with("/p: ask for a"));
    }

    #[tokio::test]
    async fn a_rule_that_panics_refuses_the_call_and_tells_only_the_operator() {
        let stack = echo_under(
            Validate::new()
                .rule("*", "p", |_| panic!("hunter2"))
                .expect("fine"),
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
    async fn listeners_hear_of_each_problem_but_not_in_a_rehearsal_and_cannot_break_anything() {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let ears = heard.clone();
        let layer = configured(json!({ "x": { "p": { "min": 1 } } }))
            .expect("fine")
            .on_error(move |tool, at, what| {
                ears.lock()
                    .expect("whole")
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
        assert_eq!(heard.lock().expect("whole").len(), 0);
        assert_eq!(
            stack.run(call_with("x", json!({ "p": 0 }))).await.status(),
            Some(Status::SchemaViolation)
        );
        assert_eq!(*heard.lock().expect("whole"), ["x /p is less than 1"]);
    }

    #[tokio::test]
    async fn the_schema_of_the_tool_itself_is_checked_too() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let registry = Registry::new();
        let spec = ToolSpec::new("x", "", Schema::for_arguments(schema).expect("valid"));
        registry.register_host(spec).expect("registers");
        let seed = seed_for(&View::of(&registry), "x", json!({ "n": 1 }));
        let problems = |value: Value| {
            let call = Call::new(seed.clone()).with_arguments(value.try_into().expect("object"));
            Validate::new().problems(&call).expect("applied").len()
        };
        assert_eq!(
            (problems(json!({ "n": 2 })), problems(json!({ "n": "two" }))),
            (0, 1)
        );
    }

    #[tokio::test]
    async fn what_a_layer_above_changed_is_what_is_checked() {
        let raise = map_call(|call: Call| {
            let arguments = call.arguments.with("p", json!(5)).expect("an object");
            call.with_arguments(arguments)
        });
        let layer = configured(json!({ "x": { "p": { "max": 3 } } })).expect("fine");
        let stack = toolgate_core::Stack::over(echo())
            .layer(raise)
            .layer(layer)
            .build()
            .expect("in order");
        assert_eq!(
            stack.run(call_with("x", json!({ "p": 1 }))).await.status(),
            Some(Status::SchemaViolation)
        );
    }

    #[tokio::test]
    async fn a_call_that_comes_back_is_checked_the_same() {
        let layer = || configured(json!({ "x": { "p": { "min": 1 } } })).expect("fine");
        run_twice(layer(), seed("x", json!({ "p": 1 })))
            .await
            .assert_replays();
        run_twice(layer(), seed("x", json!({ "p": 0 })))
            .await
            .assert_replays();
    }
}
