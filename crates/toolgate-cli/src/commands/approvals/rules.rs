//! `toolgate approvals rules`: standing answers, tried out before they are kept.

use std::{collections::BTreeMap, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolgate::{
    StoreHandle, Timestamp,
    layers::{AllowRule, ArgumentPattern, MatchedCall, RuleBook, RuleEffect, RuleScope},
};

use crate::{CliError, Cx, Exit, confirm::confirm, ids, style, table::Table, times};

/// Lists, adds, tries out and takes back standing rules: answers to calls that somebody would be asked about.
///
/// A rule never lets through what policy refuses, and one that denies beats one that allows.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules list
  toolgate approvals rules preview run_shell --arg 'command=cargo *'
  toolgate approvals rules add run_shell --arg 'command=cargo *' --for 7d
  toolgate approvals rules revoke rule-3f21")]
pub struct RulesArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: RulesCommand,
}

/// What can be done with standing rules.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// List the rules
    List(RulesListArgs),
    /// Keep a rule, after showing what it would have answered
    Add(AddArgs),
    /// Show which calls of the past a rule would have answered
    Preview(PreviewArgs),
    /// Take a rule back
    Revoke(RevokeArgs),
}

/// Lists the standing rules, also those that have ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules list
  toolgate approvals rules list --json")]
pub struct RulesListArgs {}

/// What a rule says.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// The tool, by name or glob
    pub tool: String,
    /// What an argument has to look like, as a glob: NAME=PATTERN or /json/pointer=PATTERN
    #[arg(long = "arg", value_name = "NAME=GLOB")]
    pub args: Vec<String>,
    /// What an argument has to be, exactly, as JSON or text
    #[arg(long, value_name = "NAME=VALUE")]
    pub exact: Vec<String>,
    /// Refuse these calls instead of letting them run
    #[arg(long)]
    pub deny: bool,
    /// Where it holds: project (this directory), everywhere, or session:ID
    #[arg(long, value_name = "WHERE", default_value = "project")]
    pub scope: String,
    /// How long it holds, such as 12h or 7d; until it is taken back unless given
    #[arg(long = "for", value_name = "SPAN", value_parser = times::read_span)]
    pub span: Option<Duration>,
    /// Why there is such a rule
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Keeps a rule, after showing which calls of the past it would have answered.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules add edit_file --arg 'path=docs/*' --for 12h
  toolgate approvals rules add run_shell --exact 'command=cargo test' --scope everywhere --yes
  toolgate approvals rules add run_shell --arg 'command=*rm *' --deny")]
pub struct AddArgs {
    /// What it says.
    #[command(flatten)]
    pub rule: RuleArgs,
    /// What it is called, for taking it back
    #[arg(long, value_name = "NAME")]
    pub id: Option<String>,
    /// Keep it without asking
    #[arg(long, short)]
    pub yes: bool,
}

/// Shows which calls of the past a rule would have answered, and keeps nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules preview run_shell --arg 'command=cargo *'")]
pub struct PreviewArgs {
    /// What it says.
    #[command(flatten)]
    pub rule: RuleArgs,
}

/// Takes a rule back. It does not hold any more when the command returns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules revoke rule-3f21")]
pub struct RevokeArgs {
    /// Which rule, by its name
    pub id: String,
}

pub(super) async fn run(args: &RulesArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let project = cx.paths.workspace.display().to_string();
    let book = RuleBook::new(store.clone()).in_project(&project);
    match &args.what {
        RulesCommand::List(_) => list(cx, &book).await?,
        RulesCommand::Preview(args) => {
            let rule = rule(&args.rule, None, cx, &store).await?;
            preview(cx, &book, &rule).await?;
        }
        RulesCommand::Add(args) => add(args, cx, &store, &book).await?,
        RulesCommand::Revoke(args) => {
            let unknown =
                |error| CliError::from(error).hint("`toolgate approvals rules list` shows them");
            book.revoke(&args.id, cx.me(), times::now())
                .await
                .map_err(unknown)?;
            match cx.out.is_json() {
                true => cx.out.json(&json!({ "id": args.id, "revoked": true }))?,
                false => cx.out.line(format_args!(
                    "{} does not hold any more",
                    style::bold(&args.id)
                ))?,
            }
        }
    }
    Ok(Exit::Done)
}

async fn list(cx: &Cx, book: &RuleBook) -> Result<(), CliError> {
    let rules = book.list().await?;
    if cx.out.is_json() {
        return rules.iter().try_for_each(|rule| cx.out.json(rule));
    }
    let mut table = Table::new().head(["rule", "", "tool", "where", "by", "until", "arguments"]);
    for rule in &rules {
        table.row([
            style::bold(&rule.id).to_string(),
            effect(rule.effect),
            rule.tool.clone(),
            place(&rule.scope),
            rule.owner.to_string(),
            rule.expires_at
                .map_or_else(|| "taken back".to_owned(), until),
            patterns(rule),
        ]);
    }
    match table.is_empty() {
        true => cx.out.note("there are no standing rules"),
        false => cx.out.line(table),
    }
}

async fn add(
    args: &AddArgs,
    cx: &Cx,
    store: &StoreHandle,
    book: &RuleBook,
) -> Result<(), CliError> {
    let rule = rule(&args.rule, args.id.as_deref(), cx, store).await?;
    if !args.yes {
        preview(cx, book, &rule).await?;
    }
    let what = if rule.effect == RuleEffect::Allow {
        "Let such calls run without asking?"
    } else {
        "Refuse such calls?"
    };
    confirm(cx, what, args.yes)?;
    book.add(rule.clone()).await?;
    match cx.out.is_json() {
        true => cx.out.json(&rule),
        false => {
            cx.out
                .line(format_args!("{} holds from now on", style::bold(&rule.id)))?;
            let next = style::note("next");
            cx.out.note(format_args!(
                "{next}: `toolgate approvals rules revoke {}` takes it back",
                rule.id
            ))
        }
    }
}

async fn preview(cx: &Cx, book: &RuleBook, rule: &AllowRule) -> Result<(), CliError> {
    let matched = book.preview(rule).await?;
    if cx.out.is_json() {
        return matched
            .iter()
            .try_for_each(|call| cx.out.json(&matched_json(call)));
    }
    cx.out.line(format_args!(
        "{} {} {} {}",
        effect(rule.effect),
        rule.tool,
        patterns(rule),
        place(&rule.scope)
    ))?;
    let mut table = Table::new().head(["approval", "tool", "asked", "session"]);
    for call in &matched {
        table.row([
            ids::short(call.approval_id),
            call.tool.to_string(),
            times::shown(call.asked_at),
            ids::short(call.session),
        ]);
    }
    match table.is_empty() {
        true => cx
            .out
            .line("no call of the past would have been answered by it"),
        false => cx.out.line(format_args!(
            "it would have answered {} of the past:\n{table}",
            matched.len()
        )),
    }
}

fn matched_json(call: &MatchedCall) -> Value {
    json!({
        "approval_id": call.approval_id, "tool": call.tool, "session": call.session, "asked_at": call.asked_at,
        "state": call.state,
    })
}

async fn rule(
    args: &RuleArgs,
    id: Option<&str>,
    cx: &Cx,
    store: &StoreHandle,
) -> Result<AllowRule, CliError> {
    let created_at = times::now();
    let mut arguments = BTreeMap::new();
    for text in &args.args {
        let (pointer, glob) = split(text)?;
        arguments.insert(pointer, ArgumentPattern::Glob(glob.to_owned()));
    }
    for text in &args.exact {
        let (pointer, value) = split(text)?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        arguments.insert(pointer, ArgumentPattern::Equals(value));
    }
    Ok(AllowRule {
        id: id.map_or_else(
            || format!("rule-{}", ids::short(uuid::Uuid::now_v7())),
            str::to_owned,
        ),
        effect: if args.deny {
            RuleEffect::Deny
        } else {
            RuleEffect::Allow
        },
        tool: args.tool.clone(),
        arguments,
        scope: scope(&args.scope, cx, store).await?,
        owner: cx.me(),
        created_at,
        expires_at: args.span.map(|span| created_at.plus(span)),
        reason: args.reason.clone(),
    })
}

/// Reads `name=pattern`; a name that is no JSON pointer is that of an argument.
fn split(text: &str) -> Result<(String, &str), CliError> {
    let how = "write --arg 'command=cargo *', or --arg '/options/path=docs/*'";
    let (name, pattern) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| CliError::usage(format!("{text:?} names no argument")).hint(how))?;
    let pointer = if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("/{name}")
    };
    Ok((pointer, pattern))
}

async fn scope(text: &str, cx: &Cx, store: &StoreHandle) -> Result<RuleScope, CliError> {
    match text.split_once(':') {
        None if text == "project" => Ok(RuleScope::Project {
            project: cx.paths.workspace.display().to_string(),
        }),
        None if text == "everywhere" => Ok(RuleScope::Global),
        Some(("session", id)) => Ok(RuleScope::Session {
            session: ids::find_session(store, id).await?,
        }),
        _ => Err(
            CliError::usage(format!("{text:?} is no place where a rule holds"))
                .hint("--scope is project, everywhere or session:ID"),
        ),
    }
}

fn effect(effect: RuleEffect) -> String {
    match effect {
        RuleEffect::Allow => style::good("allow").to_string(),
        RuleEffect::Deny => style::bad("deny").to_string(),
    }
}

fn place(scope: &RuleScope) -> String {
    match scope {
        RuleScope::Session { session } => format!("session {}", ids::short(session)),
        RuleScope::Project { project } => style::plain(project),
        RuleScope::Global => "everywhere".to_owned(),
    }
}

fn until(at: Timestamp) -> String {
    match at > times::now() {
        true => times::shown(at),
        false => style::dim("ended").to_string(),
    }
}

fn patterns(rule: &AllowRule) -> String {
    let pattern = |(pointer, pattern): (&String, &ArgumentPattern)| match pattern {
        ArgumentPattern::Equals(value) => format!("{pointer} = {value}"),
        ArgumentPattern::Glob(glob) => format!("{pointer} ~ {glob}"),
    };
    style::plain(
        &rule
            .arguments
            .iter()
            .map(pattern)
            .collect::<Vec<_>>()
            .join(", "),
    )
}
