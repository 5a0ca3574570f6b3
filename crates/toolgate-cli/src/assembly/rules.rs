//! `--approve`, `--allow` and `--deny`, as rules of the policy layer.

use toolgate::{
    Config, SideEffect,
    layers::{PolicyEffect, PolicyFallback, PolicyRule},
};

use crate::{CliError, assembly::gate::GateArgs, env::settings::ApproveMode};

/// Applies the options of the command line to the configuration. They only add rules: those of the
/// file stay, and deny still beats ask, which beats allow.
pub(crate) fn apply_gate_args(
    config: Config,
    approve: ApproveMode,
    args: &GateArgs,
) -> Result<Config, CliError> {
    let mut rules = Vec::new();
    if approve == ApproveMode::AutoEdit {
        rules.push(PolicyRule {
            name: Some("--approve auto-edit".to_owned()),
            side_effect: Some(SideEffect::WorkspaceWrite),
            ..PolicyRule::new(PolicyEffect::Allow)
        });
    }
    for call in &args.allow {
        rules.push(parse_rule("--allow", PolicyEffect::Allow, call)?);
    }
    for call in &args.deny {
        rules.push(parse_rule("--deny", PolicyEffect::Deny, call)?);
    }
    let mut config = config;
    if approve == ApproveMode::Ask {
        config = config.policy_default(PolicyFallback::Ask)?;
    }
    // Without rules, nothing is changed: a file may have disabled the policy.
    if !rules.is_empty() {
        config = config.add_policy_rules(rules)?;
    }
    Ok(config)
}

/// Parses a rule from `tool` or `tool(pattern)`. The pattern is a command for the shell, a host for
/// fetching, and a path for every other tool.
fn parse_rule(option: &str, effect: PolicyEffect, call: &str) -> Result<PolicyRule, CliError> {
    let misread = |problem: &str| {
        CliError::usage(format!("{option} {call}: {problem}")).with_hint(format!(
            "write {option} read_file, or {option} 'run_shell(cargo test)'"
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
    let mut rule = PolicyRule {
        name: Some(format!("{option} {call}")),
        tool: Some([tool].into()),
        ..PolicyRule::new(effect)
    };
    let pattern = pattern.map(|pattern| [pattern].into());
    match tool {
        "run_shell" => rule.command = pattern,
        "fetch_url" => rule.domain = pattern,
        _ => rule.path = pattern,
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::layers::Policy;

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
        let rules = config.layer_options::<Policy>().expect("reads").rules;
        let [of_the_file, allowed, denied] = &rules[..] else {
            panic!("three rules, not {rules:?}")
        };
        assert_eq!(of_the_file.command, Some(["git push"].into()));
        assert_eq!(allowed.effect, PolicyEffect::Allow);
        assert_eq!(allowed.tool, Some(["run_shell"].into()));
        assert_eq!(allowed.command, Some(["cargo test"].into()));
        assert_eq!(denied.effect, PolicyEffect::Deny);
        assert_eq!(denied.tool, Some(["fetch_url"].into()));
    }

    #[test]
    fn rules_for_a_policy_that_the_file_disables_are_rejected() {
        let file = "[layers.policy]\nenabled = false";
        assert!(config_with(file, ApproveMode::AutoRead, &[], &[]).is_ok());
        for (approve, deny) in [
            (ApproveMode::Ask, &[][..]),
            (ApproveMode::AutoRead, &["fetch_url"][..]),
        ] {
            let error = config_with(file, approve, &[], deny).expect_err("no effect");
            let text = error.to_string();
            assert!(text.contains("layers.policy is disabled"), "{text}");
        }
    }

    #[test]
    fn a_malformed_rule_is_rejected() {
        for call in ["run_shell(cargo", "", "(x)"] {
            let error = config_with("", ApproveMode::Ask, &[call], &[]).expect_err("misread");
            assert_eq!(error.exit_status(), crate::Exit::Usage, "{call}");
        }
    }
}
