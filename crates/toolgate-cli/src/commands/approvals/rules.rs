//! `toolgate approvals rules`: standing decisions, previewed before they are stored.

mod build;
mod sign;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolgate::{
    approval::VisibleText,
    layers::{
        MatchedCall, RuleBook, RuleEffect, RuleScope, RuleSigner, StandingRule, StoredRule,
        UnreadableRule,
    },
    store::StoreHandle,
    value::Timestamp,
};

use self::build::build_rule;
use crate::{
    CliError, CommandContext, Exit,
    env::{confirm::require_confirmation, ids, style, times},
    show::render::{StyledLine, TextTable},
};

/// Lists, adds, previews, signs and revokes standing rules: decisions on calls that need an approval.
///
/// A rule never allows what policy blocks, and one that denies beats one that allows. A rule that
/// allows counts only if it is signed.
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
    /// Sign rules that have no effect without a signature, after showing each
    Sign(RuleSignArgs),
    /// Print the key that signs your rules, for others who trust them
    Key(RuleKeyArgs),
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
    /// Match an argument exactly: text, or what the tool's schema wants
    #[arg(long, value_name = "NAME=VALUE")]
    pub exact: Vec<String>,
    /// Match an argument exactly, as JSON, for a tool whose schema is not known here
    #[arg(long, value_name = "NAME=JSON")]
    pub exact_json: Vec<String>,
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

/// Signs rules that have no effect without a signature: those of an earlier version, those that were
/// changed in the store, and those of other users. Each is shown before it is signed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules sign
  toolgate approvals rules sign docs --yes")]
pub struct RuleSignArgs {
    /// The rules to sign; by default all that allow calls and have no effect
    #[arg(value_name = "RULE")]
    pub ids: Vec<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// Prints the public key that signs your rules. Another user who shares the database and trusts your
/// rules adds it to `trusted_keys` in `[standing_rules]` of their own configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals rules key")]
pub struct RuleKeyArgs {}

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
    let book = cx.open_rule_book(store.clone())?;
    match &args.what {
        RulesCommand::List(_) => list_rules(cx, &book).await?,
        RulesCommand::Preview(args) => {
            let rule = build_rule(&args.rule, None, cx, &store).await?;
            preview_rule(cx, &book, &rule).await?;
        }
        RulesCommand::Add(args) => add_rule(args, cx, &store, &book).await?,
        RulesCommand::Sign(args) => sign::sign_rules(args, cx, &book).await?,
        RulesCommand::Key(_) => sign::print_key(cx)?,
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
    let unreadable = book.list_unreadable().await?;
    if cx.out.is_json() {
        { rules.iter() }.try_for_each(|stored| cx.out.print_json(&rule_json(stored)))?;
        return { unreadable.iter() }.try_for_each(|rule| {
            let UnreadableRule { id, problem } = rule;
            cx.out
                .print_json(&json!({ "id": id, "unreadable": true, "problem": problem }))
        });
    }
    let mut table = TextTable::for_output().with_head([
        "rule",
        "",
        "tool",
        "where",
        "by",
        "until",
        "signed",
        "arguments",
    ]);
    for StoredRule { rule, signer } in &rules {
        table.add_row([
            style::bold(&rule.id),
            effect_label(rule.effect),
            rule.tool.as_str().into(),
            scope_label(&rule.scope).into(),
            rule.owner.as_str().into(),
            rule.expires_at
                .map_or_else(|| "no expiry".into(), expiry_label),
            signer_label(*signer),
            rule.arguments_text().into(),
        ]);
    }
    for rule in &unreadable {
        let mut row: [StyledLine; 8] = Default::default();
        row[0] = style::bold(VisibleText::new(&rule.id));
        row[1] = style::bad("unreadable");
        row[7] = VisibleText::new(&rule.problem).as_str().into();
        table.add_row(row);
    }
    if table.is_empty() {
        return cx.out.print_note("there are no standing rules");
    }
    cx.out.print_line(table)?;
    if !unreadable.is_empty() {
        cx.out.print_note(UNREADABLE_NOTE)?;
    }
    if rules.iter().all(StoredRule::is_effective) {
        return Ok(());
    }
    cx.out.print_note(
        "note: a rule that allows has no effect without your signature; `toolgate approvals rules sign` shows and signs them",
    )
}

/// What holds while a stored rule cannot be read.
const UNREADABLE_NOTE: &str = "note: a rule that cannot be read may deny calls, so every call that no other rule denies needs an approval; `toolgate approvals rules revoke RULE` removes it";

/// Returns the rule with the origin of its signature.
fn rule_json(stored: &StoredRule) -> Value {
    let mut value = json!(stored.rule);
    value["signature"] = match stored.signer {
        RuleSigner::Own => json!("own"),
        RuleSigner::Trusted(_) => json!("trusted"),
        RuleSigner::Foreign(_) => json!("foreign"),
        RuleSigner::Unsigned => json!("unsigned"),
    };
    value["effective"] = json!(stored.is_effective());
    value
}

fn signer_label(signer: RuleSigner) -> StyledLine {
    match signer {
        RuleSigner::Own => "yes".into(),
        RuleSigner::Trusted(_) => "by a trusted key".into(),
        RuleSigner::Foreign(_) => style::bad("by an unknown key"),
        RuleSigner::Unsigned => style::bad("unsigned"),
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
    let mut table = TextTable::for_output().with_head([
        "approval",
        "tool",
        &times::zoned_head("requested"),
        "session",
    ]);
    for call in &matched {
        table.add_row([
            ids::short_id(call.approval_id).into(),
            call.tool.as_str().into(),
            times::format_column_time(call.asked_at).into(),
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
