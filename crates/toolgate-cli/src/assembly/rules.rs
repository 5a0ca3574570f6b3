//! `--approve`, `--allow` and `--deny`, as rules of the policy layer.

use serde_json::{Value, json};
use toolgate::Config;

use crate::{CliError, assembly::gate::GateArgs, env::settings::ApproveMode};

/// Applies the options of the command line to the configuration. They only add rules: those of the
/// file stay, and deny still beats ask, which beats allow.
pub(crate) fn apply_gate_args(
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
            more.push(parse_rule(effect, call)?);
        }
    }
    // The options become variables, so that they pass the same checks as every other source of
    // configuration.
    let mut variables = Vec::new();
    if approve == ApproveMode::Ask {
        variables.push((
            "TOOLGATE_LAYERS__POLICY__DEFAULT".to_owned(),
            "ask".to_owned(),
        ));
    }
    if !more.is_empty() {
        let mut rules = match config.value_at(&["layers", "policy", "rules"])? {
            Some(Value::Array(rules)) => rules,
            _ => Vec::new(),
        };
        rules.extend(more);
        variables.push((
            "TOOLGATE_LAYERS__POLICY__RULES".to_owned(),
            to_inline_toml(&Value::Array(rules))?,
        ));
    }
    Ok(config.with_environment(variables)?)
}

/// Parses a rule from `tool` or `tool(pattern)`. The pattern is a command for the shell, a host for
/// fetching, and a path for every other tool.
fn parse_rule(effect: &str, call: &str) -> Result<Value, CliError> {
    let misread = |problem: &str| {
        CliError::usage(format!("--{effect} {call}: {problem}")).with_hint(format!(
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

/// Formats JSON as one line of TOML.
fn to_inline_toml(value: &Value) -> Result<String, CliError> {
    let value = toml::Value::try_from(value).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_with(
        text: &str,
        approve: ApproveMode,
        allow: &[&str],
        deny: &[&str],
    ) -> Result<Config, CliError> {
        let config =
            Config::parse_with_catalog("t.toml", text, crate::env::settings::cli_catalog())
                .expect("valid");
        let strings = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect();
        apply_gate_args(
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
    fn rules_of_the_command_line_are_added_to_those_of_the_file() {
        let file = "[layers.policy]\nrules = [{ effect = 'deny', command = ['git push'] }]";
        let config = config_with(
            file,
            ApproveMode::AutoRead,
            &["run_shell(cargo test)"],
            &["fetch_url"],
        )
        .expect("valid");
        let rules = config
            .value_at(&["layers", "policy", "rules"])
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
    fn a_malformed_rule_is_rejected() {
        for call in ["run_shell(cargo", "", "(x)"] {
            let error = config_with("", ApproveMode::Ask, &[call], &[]).expect_err("misread");
            assert_eq!(error.exit_status(), crate::Exit::Usage, "{call}");
        }
    }
}
