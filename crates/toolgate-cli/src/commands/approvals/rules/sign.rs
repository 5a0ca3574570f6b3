//! Signs stored rules after showing them, and prints the key that signs.

use serde_json::json;
use toolgate::{
    approval::VisibleText,
    layers::{RuleBook, RuleEffect, RuleSigner, StoredRule},
};

use super::{RuleSignArgs, expiry_label, rule_json, scope_label};
use crate::{
    CliError, CommandContext,
    env::{confirm::require_confirmation, style, times},
};

/// Shows each rule that has no effect, and signs those that the user confirms.
pub(super) async fn sign_rules(
    args: &RuleSignArgs,
    cx: &CommandContext,
    book: &RuleBook,
) -> Result<(), CliError> {
    let mut rules = book.list().await?;
    for rule in book.list_unreadable().await? {
        let id = VisibleText::new(&rule.id);
        if args.ids.contains(&rule.id) {
            return Err(CliError::usage(format!("the rule {id} cannot be read"))
                .with_hint(format!("`toolgate approvals rules revoke {id}` removes it")));
        }
        let problem = VisibleText::new(&rule.problem);
        cx.out.print_note(format_args!(
            "{id} is unreadable and is not signed: {problem}"
        ))?;
    }
    if let Some(id) = args
        .ids
        .iter()
        .find(|id| !rules.iter().any(|stored| stored.rule.id == **id))
    {
        return Err(CliError::usage(format!("there is no rule {id}"))
            .with_hint("`toolgate approvals rules list` shows them"));
    }
    rules.retain(|stored| match args.ids.as_slice() {
        [] => !stored.is_effective(),
        ids => stored.signer != RuleSigner::Own && ids.contains(&stored.rule.id),
    });
    if rules.is_empty() && !cx.out.is_json() {
        return cx.out.print_note("there is no rule to sign");
    }
    for stored in &rules {
        if !cx.out.is_json() {
            show_rule(cx, stored)?;
        }
        let question = match stored.rule.effect {
            RuleEffect::Allow => "Sign it, and let such calls run without approval?",
            RuleEffect::Deny => "Sign it? It denies such calls already.",
        };
        require_confirmation(cx, question, args.yes)?;
        // Exactly what was shown: a rule that changes meanwhile has no signature.
        book.sign(&stored.rule).await?;
        if cx.out.is_json() {
            let signer = RuleSigner::Own;
            let rule = stored.rule.clone();
            cx.out
                .print_json(&rule_json(&StoredRule { rule, signer }))?;
        } else {
            cx.out
                .print_line(format_args!("{} is signed", style::bold(&stored.rule.id)))?;
        }
    }
    Ok(())
}

/// Shows everything that the signature will cover.
fn show_rule(cx: &CommandContext, stored: &StoredRule) -> Result<(), CliError> {
    let StoredRule { rule, signer } = stored;
    let origin = match signer {
        RuleSigner::Own => "signed by you".to_owned(),
        RuleSigner::Trusted(key) => format!("signed with the trusted key {key}"),
        RuleSigner::Foreign(key) => format!("signed with the unknown key {key}"),
        RuleSigner::Unsigned => {
            "unsigned: stored by an earlier version, or changed since it was signed".to_owned()
        }
    };
    let until = rule
        .expires_at
        .map_or_else(|| "no expiry".into(), expiry_label);
    cx.out.print_line(format_args!(
        "{}: {}\n  where: {}\n  by: {}, {}, until: {until}\n  {origin}",
        style::bold(VisibleText::new(&rule.id)),
        VisibleText::new(&rule.to_string()),
        scope_label(&rule.scope),
        VisibleText::new(rule.owner.as_str()),
        times::format_time(rule.created_at),
    ))?;
    match &rule.reason {
        Some(reason) => cx
            .out
            .print_line(format_args!("  reason: {}", VisibleText::new(reason))),
        None => Ok(()),
    }
}

/// Prints the public key that signs the user's rules.
pub(super) fn print_key(cx: &CommandContext) -> Result<(), CliError> {
    let key = cx.load_keys()?.keyring().rule_key();
    if cx.out.is_json() {
        cx.out.print_json(&json!({ "key": key }))
    } else {
        cx.out.print_line(key)
    }
}
