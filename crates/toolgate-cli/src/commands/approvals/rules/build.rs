//! Builds a standing rule from the options of the command line.

use std::collections::BTreeMap;

use serde_json::Value;
use toolgate::{
    View,
    layers::{ArgumentPattern, RuleDraft, RuleEffect, RuleScope, StandingRule},
    store::StoreHandle,
    value::parse_argument_pointer,
};

use super::RuleArgs;
use crate::{
    CliError, CommandContext, GateArgs,
    env::{ids, times},
};

pub(super) async fn build_rule(
    args: &RuleArgs,
    id: Option<&str>,
    cx: &CommandContext,
    store: &StoreHandle,
) -> Result<StandingRule, CliError> {
    let created_at = times::current_time();
    let owner = cx.current_user();
    let mut rule = match &args.from {
        Some(approval) => {
            let row = ids::find_approval(store, approval).await?;
            RuleDraft::for_request(&row.request, row.session, owner, created_at)?
                .rule()
                .clone()
        }
        None => StandingRule {
            id: format!("rule-{}", ids::short_id(uuid::Uuid::now_v7())),
            effect: RuleEffect::Allow,
            tool: args.tool.clone().unwrap_or_default(),
            arguments: BTreeMap::new(),
            scope: project_scope(cx),
            owner,
            created_at,
            expires_at: None,
            reason: None,
        },
    };
    if let Some(id) = id {
        rule.id = id.to_owned();
    }
    if args.deny {
        rule.effect = RuleEffect::Deny;
    }
    if let Some(scope) = &args.scope {
        rule.scope = parse_scope(scope, cx, store).await?;
    }
    rule.expires_at = args.span.map(|span| created_at.plus(span));
    rule.reason = args.reason.clone().or(rule.reason);
    add_patterns(args, &mut rule, cx)?;
    Ok(rule)
}

/// Adds the patterns of the command line to a rule.
fn add_patterns(
    args: &RuleArgs,
    rule: &mut StandingRule,
    cx: &CommandContext,
) -> Result<(), CliError> {
    for text in &args.args {
        let (pointer, glob) = parse_pattern(text)?;
        let pattern = ArgumentPattern::Glob(glob.to_owned());
        rule.arguments.insert(pointer, pattern);
    }
    let tools = (!args.exact.is_empty()).then(|| known_tools(cx)).flatten();
    let tool = tools.as_ref().and_then(|tools| tools.get(&rule.tool));
    let schema = tool.map(|tool| tool.spec.input.as_json().as_value());
    for text in &args.exact {
        let (pointer, value) = parse_pattern(text)?;
        let value = parse_exact(value, schema, &pointer)?;
        rule.arguments
            .insert(pointer, ArgumentPattern::Equals(value));
    }
    for text in &args.exact_json {
        let (pointer, value) = parse_pattern(text)?;
        let value = parse_json(value)?;
        rule.arguments
            .insert(pointer, ArgumentPattern::Equals(value));
    }
    for name in &args.any {
        let pointer = parse_argument_pointer(name);
        rule.arguments.insert(pointer, ArgumentPattern::Any);
    }
    Ok(())
}

/// Returns the built-in tools, if the configuration can be loaded: only it says which there are.
fn known_tools(cx: &CommandContext) -> Option<View> {
    GateArgs::default().open_preview(cx).ok()?.view().ok()
}

/// Parses an exact value: text, unless the schema says that the argument is no text. `name=007` and
/// `command=true` are texts; a rule with a number or a boolean would never match them.
fn parse_exact(text: &str, schema: Option<&Value>, pointer: &str) -> Result<Value, CliError> {
    let property = schema.and_then(|schema| {
        let mut names = pointer.split('/').skip(1);
        names.try_fold(schema, |schema, name| {
            let name = name.replace("~1", "/").replace("~0", "~");
            schema.get("properties")?.get(name)
        })
    });
    let kinds = match property.and_then(|property| property.get("type")) {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(kind)) => vec![kind.as_str()],
        _ => Vec::new(),
    };
    if kinds.is_empty() || kinds.contains(&"string") {
        return Ok(Value::String(text.to_owned()));
    }
    parse_json(text)
}

fn parse_json(text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text).map_err(|error| {
        CliError::usage(format!("{text:?} is not JSON: {error}"))
            .with_hint("the argument is no text, so write it as JSON: --exact limit=5")
    })
}

/// Parses `name=pattern`; a name that is not a JSON pointer names a top-level argument.
fn parse_pattern(text: &str) -> Result<(String, &str), CliError> {
    let how = "write --arg 'command=cargo *', or --arg '/options/path=docs/*'";
    let (name, pattern) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| {
            CliError::usage(format!("{text:?} does not name an argument")).with_hint(how)
        })?;
    Ok((parse_argument_pointer(name), pattern))
}

fn project_scope(cx: &CommandContext) -> RuleScope {
    RuleScope::Project {
        project: cx.paths.workspace.display().to_string(),
    }
}

async fn parse_scope(
    text: &str,
    cx: &CommandContext,
    store: &StoreHandle,
) -> Result<RuleScope, CliError> {
    match text.split_once(':') {
        None if text == "project" => Ok(project_scope(cx)),
        None if text == "everywhere" => Ok(RuleScope::Global),
        Some(("session", id)) => Ok(RuleScope::Session {
            session: ids::find_session(store, id).await?,
        }),
        _ => Err(CliError::usage(format!("{text:?} is not a scope"))
            .with_hint("--scope is project, everywhere or session:ID")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_exact_value_is_text_unless_the_schema_says_otherwise() {
        let schema = json!({ "properties": {
            "name": { "type": "string" }, "limit": { "type": ["integer", "null"] }, "all": { "type": "boolean" },
            "maybe": { "type": ["string", "null"] }, "deep": { "properties": { "n": { "type": "number" } } },
        } });
        for (pointer, text, expected) in [
            ("/name", "007", json!("007")),
            ("/name", "true", json!("true")),
            ("/name", "null", json!("null")),
            ("/name", "{\"a\":1}", json!("{\"a\":1}")),
            ("/maybe", "5", json!("5")),
            ("/other", "5", json!("5")),
            ("/limit", "5", json!(5)),
            ("/limit", "null", json!(null)),
            ("/all", "false", json!(false)),
            ("/deep/n", "1.5", json!(1.5)),
            ("/deep/m", "1.5", json!("1.5")),
        ] {
            let found = parse_exact(text, Some(&schema), pointer).expect("a value");
            assert_eq!(found, expected, "{pointer}={text}");
            let unknown = parse_exact(text, None, pointer).expect("a text");
            assert_eq!(unknown, json!(text), "{pointer}={text}");
        }
        assert!(parse_exact("many", Some(&schema), "/limit").is_err());
    }
}
