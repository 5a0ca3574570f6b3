//! `--allow` and `--deny`, as rules of the policy layer.

use toolgate::{
    Gate,
    layers::{PolicyEffect, PolicyRule},
};

use crate::{CliError, GateArgs};

/// Parses the rules of `--allow` and `--deny`. They add to those of the file: deny still beats ask,
/// which beats allow.
pub(crate) fn parse_rules(args: &GateArgs) -> Result<Vec<PolicyRule>, CliError> {
    let mut rules = Vec::new();
    for call in &args.allow {
        rules.push(parse_rule("--allow", PolicyEffect::Allow, call)?);
    }
    for call in &args.deny {
        rules.push(parse_rule("--deny", PolicyEffect::Deny, call)?);
    }
    Ok(rules)
}

/// Rejects `--allow` and `--deny` for tools that do not exist: a misspelt one would allow or block
/// nothing.
pub(crate) fn check_tools(args: &GateArgs, gate: &Gate) -> Result<(), CliError> {
    let known = gate.known_tools();
    let rules = parse_rules(args)?;
    let unknown = rules.iter().find_map(|rule| {
        let place = rule.name.as_deref().unwrap_or_default();
        let mut tools = rule.tool.iter().flat_map(|tools| tools.iter());
        tools.find_map(|tool| known.check(place, tool, rule.effect == PolicyEffect::Deny))
    });
    match unknown {
        Some(unknown) => {
            Err(CliError::usage(unknown.to_string())
                .with_hint("`toolgate tools list` shows them all"))
        }
        None => Ok(()),
    }
}

/// Parses a rule from `tool` or `tool(pattern)`. The pattern is a command for the shell, a domain
/// for fetching, and a path for every other tool.
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

    fn parsed(allow: &[&str], deny: &[&str]) -> Result<Vec<PolicyRule>, CliError> {
        let strings = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect();
        parse_rules(&GateArgs {
            approve: None,
            allow: strings(allow),
            deny: strings(deny),
        })
    }

    #[test]
    fn a_pattern_is_about_what_the_tool_names() {
        let rules = parsed(
            &["run_shell(cargo test)", "write_file(src/**)"],
            &["fetch_url"],
        )
        .expect("valid");
        assert_eq!(rules[0].command, Some(["cargo test"].into()));
        assert_eq!(rules[1].path, Some(["src/**"].into()));
        assert_eq!(rules[2].effect, PolicyEffect::Deny);
        assert_eq!(rules[2].tool, Some(["fetch_url"].into()));
    }

    #[test]
    fn a_malformed_rule_is_rejected() {
        for call in ["run_shell(cargo", "", "(x)"] {
            let error = parsed(&[call], &[]).expect_err("misread");
            assert_eq!(error.exit_status(), crate::Exit::Usage, "{call}");
        }
    }
}
