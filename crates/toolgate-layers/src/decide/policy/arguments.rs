//! Conditions of policy rules on single arguments: bounds, values and patterns.

use std::{cmp::Ordering, collections::BTreeMap, fmt};

use globset::{GlobBuilder, GlobMatcher};
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use toolgate_core::{Arguments, parse_argument_pointer};

use crate::{BadOption, PolicyEffect};

/// The longest text that a pattern is compared with, in bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The largest compiled regular expression, in bytes.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// Conditions on one argument, all of which have to hold.
///
/// An argument that is missing meets no condition but `present = false`. For a rule that allows, a
/// value of another type meets none either. For a rule that asks or denies, doubt counts as a match:
/// a value that is no number is out of bounds, and one that is no text fits every pattern.
///
/// ```
/// # use toolgate_layers::PolicyOptions;
/// let options: PolicyOptions = toml::from_str(r#"
///     [[rules]]
///     effect = "allow"
///     tool = "refund"
///     arguments = { cents = { max = 2000 }, "/order/id" = { matches = "ord_*" } }
/// "#)?;
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ArgumentCondition {
    /// The smallest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// The largest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// Exactly this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    /// One of these values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// A pattern that the whole text matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<TextPattern>,
    /// True if the argument has to be there, false if it must not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// A pattern for the whole text of an argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TextPattern {
    /// A glob. In a rule that allows, `*` does not cross `/`; in the others it does, and case is
    /// ignored.
    Glob(String),
    /// A regular expression.
    Regex {
        /// The expression. In a rule that asks or denies, case is ignored.
        regex: String,
    },
}

/// The compiled conditions of a rule, by JSON pointer.
#[derive(Debug)]
pub(super) struct ArgumentConditions {
    conditions: Vec<CompiledCondition>,
    /// True for a rule that allows: doubt counts as no match.
    strict: bool,
}

#[derive(Debug)]
struct CompiledCondition {
    pointer: String,
    condition: ArgumentCondition,
    pattern: Option<CompiledTextPattern>,
}

#[derive(Debug)]
enum CompiledTextPattern {
    Glob(GlobMatcher),
    Regex(Regex),
}

impl ArgumentConditions {
    pub(super) fn new(
        given: &BTreeMap<String, ArgumentCondition>,
        effect: PolicyEffect,
    ) -> Result<Self, BadOption> {
        let strict = effect == PolicyEffect::Allow;
        if given.is_empty() {
            return Err(bad("arguments names no argument"));
        }
        let compile = |(name, condition): (&String, &ArgumentCondition)| {
            let within = |error: BadOption| bad(format!("argument {name:?}: {}", error.problem));
            CompiledCondition::new(name, condition, strict).map_err(within)
        };
        let conditions = given.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Self { conditions, strict })
    }

    /// Checks whether the arguments meet every condition.
    pub(super) fn hold(&self, arguments: &Arguments) -> bool {
        let whole = arguments.as_json().as_value();
        self.conditions
            .iter()
            .all(|condition| condition.holds(whole.pointer(&condition.pointer), self.strict))
    }
}

fn bad(problem: impl Into<String>) -> BadOption {
    BadOption::new("rules", problem.into())
}

impl CompiledCondition {
    fn new(name: &str, condition: &ArgumentCondition, strict: bool) -> Result<Self, BadOption> {
        condition.check(strict)?;
        let pattern = condition
            .matches
            .as_ref()
            .map(|pattern| CompiledTextPattern::new(pattern, strict))
            .transpose()?;
        Ok(Self {
            pointer: parse_argument_pointer(name),
            condition: condition.clone(),
            pattern,
        })
    }

    fn holds(&self, value: Option<&Value>, strict: bool) -> bool {
        let ArgumentCondition {
            min,
            max,
            equals,
            one_of,
            matches: _,
            present,
        } = &self.condition;
        if present.is_some_and(|present| present != value.is_some()) {
            return false;
        }
        let Some(value) = value else {
            return self.condition.tests_presence_only();
        };
        let bounded = |bound: &Number, outside: Ordering| match value {
            Value::Number(found) => compare_numbers(found, bound) != Some(outside),
            _ => !strict,
        };
        min.as_ref().is_none_or(|min| bounded(min, Ordering::Less))
            && max
                .as_ref()
                .is_none_or(|max| bounded(max, Ordering::Greater))
            && equals.as_ref().is_none_or(|wanted| is_equal(value, wanted))
            && one_of
                .as_ref()
                .is_none_or(|list| list.iter().any(|wanted| is_equal(value, wanted)))
            && self
                .pattern
                .as_ref()
                .is_none_or(|pattern| pattern.fits(value, strict))
    }
}

impl ArgumentCondition {
    /// Rejects conditions that hold for every value, or for none.
    fn check(&self, strict: bool) -> Result<(), BadOption> {
        if *self == Self::default() {
            return Err(bad("needs a condition, such as max = 10"));
        }
        if self.present == Some(false) && !self.tests_presence_only() {
            return Err(bad("has conditions on a value that must not be present"));
        }
        if let (Some(min), Some(max)) = (&self.min, &self.max)
            && compare_numbers(min, max) == Some(Ordering::Greater)
        {
            return Err(bad("min is larger than max"));
        }
        // An empty list is safe when allowing, but would silently turn off a rule that denies.
        if !strict && self.one_of.as_ref().is_some_and(Vec::is_empty) {
            return Err(bad("an empty one_of would never ask or deny"));
        }
        Ok(())
    }

    fn tests_presence_only(&self) -> bool {
        let rest = Self {
            present: None,
            ..self.clone()
        };
        rest == Self::default()
    }
}

impl CompiledTextPattern {
    fn new(pattern: &TextPattern, strict: bool) -> Result<Self, BadOption> {
        match pattern {
            TextPattern::Glob(glob) => GlobBuilder::new(glob)
                .literal_separator(strict)
                .case_insensitive(!strict)
                .build()
                .map(|glob| Self::Glob(glob.compile_matcher()))
                .map_err(|error| bad(error.kind().to_string())),
            TextPattern::Regex { regex } => RegexBuilder::new(&format!(r"\A(?:{regex})\z"))
                .case_insensitive(!strict)
                .size_limit(MAX_REGEX_BYTES)
                .dfa_size_limit(MAX_REGEX_BYTES)
                .build()
                .map(Self::Regex)
                .map_err(|error| bad(error.to_string())),
        }
    }

    fn fits(&self, value: &Value, strict: bool) -> bool {
        match (value, self) {
            // Not searched, so that judging stays fast: a doubt like a value that is no text.
            (Value::String(text), _) if text.len() > MAX_TEXT_BYTES => !strict,
            (Value::String(text), Self::Glob(glob)) => glob.is_match(text),
            (Value::String(text), Self::Regex(regex)) => regex.is_match(text),
            _ => !strict,
        }
    }
}

/// Checks whether two values are equal; numbers by their value, so that `1` is `1.0`.
fn is_equal(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(found), Value::Number(wanted)) => {
            compare_numbers(found, wanted) == Some(Ordering::Equal)
        }
        _ => found == wanted,
    }
}

/// Compares two numbers without rounding whole ones.
fn compare_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (whole_number(a), whole_number(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        // A fraction is smaller than 2^53, where rounding the other number cannot change the order.
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn whole_number(number: &Number) -> Option<i128> {
    if let Some(signed) = number.as_i64() {
        return Some(signed.into());
    }
    if let Some(unsigned) = number.as_u64() {
        return Some(unsigned.into());
    }
    let float = number.as_f64()?;
    // Larger ones are beyond every whole number of JSON, and compare as they are.
    (float.fract() == 0.0 && float.abs() < 1e30).then_some(float as i128)
}

impl fmt::Display for ArgumentCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(
            self.present
                .map(|present| if present { "is present" } else { "is missing" }.to_owned()),
        );
        parts.extend(self.min.as_ref().map(|min| format!("is at least {min}")));
        parts.extend(self.max.as_ref().map(|max| format!("is at most {max}")));
        parts.extend(self.equals.as_ref().map(|value| format!("is {value}")));
        parts.extend(self.one_of.as_ref().map(|list| {
            let list: Vec<String> = list.iter().map(Value::to_string).collect();
            format!("is one of {}", list.join(", "))
        }));
        parts.extend(self.matches.as_ref().map(|pattern| match pattern {
            TextPattern::Glob(glob) => format!("matches {glob}"),
            TextPattern::Regex { regex } => format!("matches /{regex}/"),
        }));
        f.write_str(&parts.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn holds(effect: PolicyEffect, condition: Value, arguments: Value) -> bool {
        let condition = serde_json::from_value(condition).expect("a condition");
        let given = BTreeMap::from([("x".to_owned(), condition)]);
        let conditions = ArgumentConditions::new(&given, effect).expect("valid");
        conditions.hold(&Arguments::try_from(arguments).expect("an object"))
    }

    #[test]
    fn each_condition_holds_for_what_it_names() {
        let cases = [
            (json!({ "max": 5 }), json!(5), json!(5.5)),
            (json!({ "min": 5 }), json!(5.0), json!(4)),
            (json!({ "min": 1, "max": 3 }), json!(2), json!(4)),
            (json!({ "equals": 1 }), json!(1.0), json!("1")),
            (
                json!({ "equals": { "a": [1] } }),
                json!({ "a": [1] }),
                json!({ "a": [2] }),
            ),
            (json!({ "one_of": ["a", "b"] }), json!("b"), json!("c")),
            (
                json!({ "matches": "ord_*" }),
                json!("ord_1"),
                json!("xord_1"),
            ),
            (
                json!({ "matches": { "regex": "[0-9]+" } }),
                json!("12"),
                json!("12a"),
            ),
        ];
        for (condition, fits, other) in cases {
            for effect in [PolicyEffect::Allow, PolicyEffect::Ask, PolicyEffect::Deny] {
                let check = |value: &Value| holds(effect, condition.clone(), json!({ "x": value }));
                assert!(check(&fits), "{condition} {fits}");
                assert!(!check(&other), "{condition} {other}");
            }
        }
    }

    #[test]
    fn whole_numbers_are_compared_exactly() {
        let limit = 9_007_199_254_740_992_u64;
        assert!(!holds(
            PolicyEffect::Allow,
            json!({ "max": limit as f64 }),
            json!({ "x": limit + 1 })
        ));
        assert!(holds(
            PolicyEffect::Deny,
            json!({ "min": limit + 1 }),
            json!({ "x": limit + 1 })
        ));
    }

    #[test]
    fn a_missing_argument_meets_only_present_false() {
        for effect in [PolicyEffect::Allow, PolicyEffect::Deny] {
            assert!(holds(effect, json!({ "present": false }), json!({})));
            assert!(!holds(effect, json!({ "present": true }), json!({})));
            assert!(!holds(effect, json!({ "max": 5 }), json!({})));
            assert!(!holds(
                effect,
                json!({ "present": false }),
                json!({ "x": null })
            ));
        }
    }

    #[test]
    fn a_text_that_is_too_long_to_search_is_a_doubt() {
        let long = json!({ "x": "a".repeat(MAX_TEXT_BYTES + 1) });
        let condition = json!({ "matches": "a*" });
        assert!(!holds(PolicyEffect::Allow, condition.clone(), long.clone()));
        assert!(holds(PolicyEffect::Deny, json!({ "matches": "b*" }), long));
    }

    #[test]
    fn conditions_that_mean_nothing_are_rejected() {
        let build = |condition: Value, effect| {
            let condition = serde_json::from_value(condition).expect("a condition");
            ArgumentConditions::new(&BTreeMap::from([("x".to_owned(), condition)]), effect)
        };
        for condition in [
            json!({}),
            json!({ "min": 3, "max": 2 }),
            json!({ "present": false, "max": 2 }),
            json!({ "one_of": [] }),
            json!({ "matches": "[" }),
            json!({ "matches": { "regex": "(" } }),
            json!({ "matches": { "regex": "(a{1000}){1000}" } }),
        ] {
            assert!(
                build(condition.clone(), PolicyEffect::Deny).is_err(),
                "{condition}"
            );
        }
        assert!(ArgumentConditions::new(&BTreeMap::new(), PolicyEffect::Allow).is_err());
        assert!(serde_json::from_value::<ArgumentCondition>(json!({ "maximum": 1 })).is_err());
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e9..1e9_f64).prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::from),
            Just(json!([1])),
        ]
    }

    proptest! {
        #[test]
        fn a_value_that_is_no_number_is_in_no_allowed_and_in_every_denied_range(
            value in value(),
            min in any::<i32>(),
            size in any::<u16>(),
        ) {
            let max = i64::from(min) + i64::from(size);
            let condition = json!({ "min": min, "max": max });
            let arguments = json!({ "x": value });
            let allowed = holds(PolicyEffect::Allow, condition.clone(), arguments.clone());
            let denied = holds(PolicyEffect::Deny, condition, arguments);
            let expected = value.as_f64().map(|found| f64::from(min) <= found && found <= max as f64);
            prop_assert_eq!(allowed, expected.unwrap_or(false));
            prop_assert_eq!(denied, expected.unwrap_or(true));
        }

        #[test]
        fn what_an_allowing_rule_covers_a_denying_rule_with_the_same_condition_covers_too(
            value in value(),
            glob in "[a-c*?]{1,3}",
        ) {
            let condition = json!({ "matches": glob });
            let arguments = json!({ "x": value });
            let allowed = holds(PolicyEffect::Allow, condition.clone(), arguments.clone());
            prop_assert!(!allowed || value.is_string());
            prop_assert!(!allowed || holds(PolicyEffect::Deny, condition, arguments));
        }
    }
}
