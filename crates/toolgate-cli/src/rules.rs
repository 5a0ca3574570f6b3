//! `--approve`, `--allow` and `--deny`, as rules of the policy layer.

use serde_json::{Value, json};
use toolgate::Config;

use crate::{CliError, gate::GateArgs, settings::ApproveMode};

/// The configuration with what the command line says over it. A rule of the command line is one rule more: it never
/// replaces those of the file, and deny beats ask beats allow as ever.
pub(crate) fn overlay(
    config: Config,
    approve: ApproveMode,
    args: &GateArgs,
) -> Result<Config, CliError> {
    let mut more = Vec::new();
    if approve == ApproveMode::AutoEdit {
        more.push(json!({ "name": "--approve auto-edit", "effect": "allow", "side_effect": "workspace_write" }));
    }
    for (effect, calls) in [("allow", &args.allow), ("deny", &args.deny)] {
        for call in calls {
            more.push(rule(effect, call)?);
        }
    }
    let mut variables = Vec::new();
    if approve == ApproveMode::Ask {
        variables.push((
            "TOOLGATE_LAYERS__POLICY__DEFAULT".to_owned(),
            "ask".to_owned(),
        ));
    }
    if !more.is_empty() {
        let mut rules = match config.value(&["layers", "policy", "rules"])? {
            Some(Value::Array(rules)) => rules,
            _ => Vec::new(),
        };
        rules.extend(more);
        variables.push((
            "TOOLGATE_LAYERS__POLICY__RULES".to_owned(),
            inline(&Value::Array(rules))?,
        ));
    }
    Ok(config.with_environment(variables)?)
}

/// A rule from `tool` or `tool(pattern)`. What the pattern is about depends on the tool: a command for the shell, a host
/// for fetching, a path for everything else.
fn rule(effect: &str, call: &str) -> Result<Value, CliError> {
    let misread = |problem: &str| {
        CliError::usage(format!("--{effect} {call}: {problem}")).hint(format!(
            "write --{effect} read_file, or --{effect} 'run_shell(cargo test)'"
        ))
    };
    let (tool, pattern) = match call.split_once('(') {
        Some((tool, rest)) => {
            let pattern = rest
                .strip_suffix(')')
                .ok_or_else(|| misread("the bracket is not closed"))?;
            (
                tool.trim(),
                Some(pattern.trim()).filter(|pattern| !pattern.is_empty()),
            )
        }
        None => (call.trim(), None),
    };
    if tool.is_empty() {
        return Err(misread("it names no tool"));
    }
    let mut rule = json!({ "name": format!("--{effect} {call}"), "effect": effect, "tool": tool });
    if let Some(pattern) = pattern {
        let about = match tool {
            "run_shell" => "command",
            "fetch_url" => "domain",
            _ => "path",
        };
        rule[about] = pattern.into();
    }
    Ok(rule)
}

/// JSON as TOML in one line.
fn inline(value: &Value) -> Result<String, CliError> {
    let value = toml::Value::try_from(value).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(
        text: &str,
        approve: ApproveMode,
        allow: &[&str],
        deny: &[&str],
    ) -> Result<Config, CliError> {
        let config = Config::read("t.toml", text, crate::settings::catalog()).expect("valid");
        let strings = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect();
        overlay(
            config,
            approve,
            &GateArgs {
                approve: None,
                allow: strings(allow),
                deny: strings(deny),
            },
        )
    }

    #[test]
    fn rules_of_the_command_line_come_on_top_of_those_of_the_file() {
        let file = "[layers.policy]\nrules = [{ effect = 'deny', command = ['git push'] }]";
        let config = with(
            file,
            ApproveMode::AutoRead,
            &["run_shell(cargo test)"],
            &["fetch_url"],
        )
        .expect("valid");
        let rules = config
            .value(&["layers", "policy", "rules"])
            .expect("reads")
            .expect("there");
        assert_eq!(
            rules[0],
            json!({ "effect": "deny", "command": ["git push"] })
        );
        assert_eq!(
            (&rules[1]["tool"], &rules[1]["command"]),
            (&json!("run_shell"), &json!("cargo test"))
        );
        assert_eq!(
            (&rules[2]["effect"], &rules[2]["tool"]),
            (&json!("deny"), &json!("fetch_url"))
        );
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_refused() {
        for call in ["run_shell(cargo", "", "(x)"] {
            let error = with("", ApproveMode::Ask, &[call], &[]).expect_err("misread");
            assert_eq!(error.code(), crate::Exit::Usage, "{call}");
        }
    }
}
