//! `toolgate approvals rules`: standing decisions, previewed before they are stored.

use std::{collections::BTreeMap, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolgate::{
    layers::{
        ArgumentPattern, MatchedCall, RuleBook, RuleDraft, RuleEffect, RuleScope, StandingRule,
    },
    store::StoreHandle,
    value::{Timestamp, parse_argument_pointer},
};

use crate::{
    CliError, CommandContext, Exit,
    env::{confirm::require_confirmation, ids, style, times},
    show::render::{StyledLine, TextTable},
};

/// Lists, adds, previews and revokes standing rules: decisions on calls that need an approval.
///
/// A rule never allows what policy blocks, and one that denies beats one that allows.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules list
  toolgate approvals rules preview run_shell --arg 'command=cargo *'
  toolgate approvals rules add run_shell --arg 'command=cargo *' --for 7d
  toolgate approvals rules add --from 7f3a
  toolgate approvals rules revoke rule-3f21")]
pub struct RulesArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub what: RulesCommand,
}

/// A subcommand of `toolgate approvals rules`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// List the rules
    List(RulesListArgs),
    /// Add a rule, after showing which past calls it would have matched
    Add(RuleAddArgs),
    /// Show which past calls a rule would have matched
    Preview(RulePreviewArgs),
    /// Revoke a rule
    Revoke(RuleRevokeArgs),
}

/// Lists the standing rules, also the expired ones.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules list
  toolgate approvals rules list --json")]
pub struct RulesListArgs {}

/// The contents of a rule.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// The tool, by name or glob
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    pub tool: Option<String>,
    /// Draft the rule from an approval request: exactly its call, in its session
    #[arg(long, value_name = "APPROVAL")]
    pub from: Option<String>,
    /// Match an argument by a glob: NAME=PATTERN or /json/pointer=PATTERN
    #[arg(long = "arg", value_name = "NAME=GLOB")]
    pub args: Vec<String>,
    /// Match an argument exactly, as JSON or text
    #[arg(long, value_name = "NAME=VALUE")]
    pub exact: Vec<String>,
    /// Match any value of an argument; a rule allows no call with an argument that it does not name
    #[arg(long, value_name = "NAME")]
    pub any: Vec<String>,
    /// Deny matching calls instead of allowing them
    #[arg(long)]
    pub deny: bool,
    /// Scope of the rule: project (this directory; the default without --from), everywhere, or
    /// session:ID
    #[arg(long, value_name = "WHERE")]
    pub scope: Option<String>,
    /// Lifetime of the rule, such as 12h or 7d; by default until it is revoked
    #[arg(long = "for", value_name = "SPAN", value_parser = times::parse_duration)]
    pub span: Option<Duration>,
    /// Reason for the rule
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Adds a rule, after showing which past calls it would have matched.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules add write_file --arg 'path=docs/*' --any content --for 12h
  toolgate approvals rules add run_shell --exact 'command=cargo test' --scope everywhere --yes
  toolgate approvals rules add run_shell --arg 'command=*rm *' --deny")]
pub struct RuleAddArgs {
    /// The rule.
    #[command(flatten)]
    pub rule: RuleArgs,
    /// Name of the rule, for revoking it
    #[arg(long, value_name = "NAME")]
    pub id: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// Shows which past calls a rule would have matched, and stores nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules preview run_shell --arg 'command=cargo *'")]
pub struct RulePreviewArgs {
    /// The rule.
    #[command(flatten)]
    pub rule: RuleArgs,
}

/// Revokes a rule. It is no longer in effect when the command returns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules revoke rule-3f21")]
pub struct RuleRevokeArgs {
    /// The rule's name
    pub id: String,
}

pub(super) async fn run_rules(args: &RulesArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let project = cx.paths.workspace.display().to_string();
    let book = RuleBook::new(store.clone()).in_project(&project);
    match &args.what {
        RulesCommand::List(_) => list_rules(cx, &book).await?,
        RulesCommand::Preview(args) => {
            let rule = build_rule(&args.rule, None, cx, &store).await?;
            preview_rule(cx, &book, &rule).await?;
        }
        RulesCommand::Add(args) => add_rule(args, cx, &store, &book).await?,
        RulesCommand::Revoke(args) => {
            let unknown = |error| {
                CliError::from(error).with_hint("`toolgate approvals rules list` shows them")
            };
            book.revoke(&args.id, cx.current_user(), times::current_time())
                .await
                .map_err(unknown)?;
            if cx.out.is_json() {
                cx.out
                    .print_json(&json!({ "id": args.id, "revoked": true }))?
            } else {
                cx.out
                    .print_line(format_args!("{} is revoked", style::bold(&args.id)))?
            }
        }
    }
    Ok(Exit::Done)
}

async fn list_rules(cx: &CommandContext, book: &RuleBook) -> Result<(), CliError> {
    let rules = book.list().await?;
    if cx.out.is_json() {
        return rules.iter().try_for_each(|rule| cx.out.print_json(rule));
    }
    let mut table = TextTable::for_output().with_head([
        "rule",
        "",
        "tool",
        "where",
        "by",
        "until",
        "arguments",
    ]);
    for rule in &rules {
        table.add_row([
            style::bold(&rule.id),
            effect_label(rule.effect),
            rule.tool.as_str().into(),
            scope_label(&rule.scope).into(),
            rule.owner.as_str().into(),
            rule.expires_at
                .map_or_else(|| "no expiry".into(), expiry_label),
            rule.arguments_text().into(),
        ]);
    }
    if table.is_empty() {
        cx.out.print_note("there are no standing rules")
    } else {
        cx.out.print_line(table)
    }
}

async fn add_rule(
    args: &RuleAddArgs,
    cx: &CommandContext,
    store: &StoreHandle,
    book: &RuleBook,
) -> Result<(), CliError> {
    let rule = build_rule(&args.rule, args.id.as_deref(), cx, store).await?;
    if !args.yes {
        // A glob easily matches more than intended; the past calls show it before the rule is
        // stored.
        preview_rule(cx, book, &rule).await?;
    }
    let what = if rule.effect == RuleEffect::Allow {
        "Let such calls run without approval?"
    } else {
        "Deny such calls?"
    };
    require_confirmation(cx, what, args.yes)?;
    book.add(rule.clone()).await?;
    if cx.out.is_json() {
        cx.out.print_json(&rule)
    } else {
        cx.out
            .print_line(format_args!("{} is in effect", style::bold(&rule.id)))?;
        let next = style::note("next");
        cx.out.print_note(format_args!(
            "{next}: `toolgate approvals rules revoke {}` revokes it",
            rule.id
        ))
    }
}

async fn preview_rule(
    cx: &CommandContext,
    book: &RuleBook,
    rule: &StandingRule,
) -> Result<(), CliError> {
    let matched = book.preview(rule).await?;
    if cx.out.is_json() {
        return matched
            .iter()
            .try_for_each(|call| cx.out.print_json(&matched_json(call)));
    }
    cx.out.print_line(format_args!(
        "{}, {}",
        style::escape_controls(&rule.to_string()),
        scope_label(&rule.scope)
    ))?;
    let mut table = TextTable::for_output().with_head(["approval", "tool", "requested", "session"]);
    for call in &matched {
        table.add_row([
            ids::short_id(call.approval_id).into(),
            call.tool.as_str().into(),
            times::format_time(call.asked_at).into(),
            ids::short_id(call.session).into(),
        ]);
    }
    if table.is_empty() {
        cx.out.print_line("it would have matched no past call")
    } else {
        cx.out.print_line(format_args!(
            "it would have matched these past calls ({}):\n{table}",
            matched.len()
        ))
    }
}

fn matched_json(call: &MatchedCall) -> Value {
    json!({
        "approval_id": call.approval_id, "tool": call.tool, "session": call.session, "asked_at": call.asked_at,
        "state": call.state,
    })
}

async fn build_rule(
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
    add_patterns(args, &mut rule)?;
    Ok(rule)
}

/// Adds the patterns of the command line to a rule.
fn add_patterns(args: &RuleArgs, rule: &mut StandingRule) -> Result<(), CliError> {
    for text in &args.args {
        let (pointer, glob) = parse_pattern(text)?;
        let pattern = ArgumentPattern::Glob(glob.to_owned());
        rule.arguments.insert(pointer, pattern);
    }
    for text in &args.exact {
        let (pointer, value) = parse_pattern(text)?;
        // `limit=5` is a number and `command=ls` a text: what does not parse as JSON is text.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        rule.arguments
            .insert(pointer, ArgumentPattern::Equals(value));
    }
    for name in &args.any {
        let pointer = parse_argument_pointer(name);
        rule.arguments.insert(pointer, ArgumentPattern::Any);
    }
    Ok(())
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

fn effect_label(effect: RuleEffect) -> StyledLine {
    match effect {
        RuleEffect::Allow => style::good(effect.as_str()),
        RuleEffect::Deny => style::bad(effect.as_str()),
    }
}

fn scope_label(scope: &RuleScope) -> String {
    match scope {
        RuleScope::Session { session } => format!("session {}", ids::short_id(session)),
        RuleScope::Project { project } => style::escape_controls(project),
        RuleScope::Global => "everywhere".to_owned(),
    }
}

fn expiry_label(at: Timestamp) -> StyledLine {
    if at > times::current_time() {
        times::format_time(at).into()
    } else {
        style::dim("expired")
    }
}
