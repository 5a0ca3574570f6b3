//! Carries out an answer from the prompt: decides, edits, explains, stores a rule.

use std::sync::Arc;

use anstyle::Style;
use toolgate::{
    Arguments, Decision, Gate, Session,
    approval::{AdmittedDecision, ApprovalRequest},
    layers::{RuleScope, StandingRule},
};

use super::{display::LiveDisplay, editor, prompt::PromptAction, terminal::Keyboard};
use crate::{
    CliError, CommandContext,
    env::style::{BAD, DIM, GOOD, WARN},
    show::{
        entitlement::{describe_counted, describe_rejection},
        render::{StyledLine, render_shown},
        rule_proposal::{RuleProposal, describe_matches},
        stored_requests::{self, rehearse_call, show_edited},
    },
};

/// The user at the terminal, with the session and gate that they act on.
pub(crate) struct AnswerHandler<'a> {
    cx: &'a CommandContext,
    gate: &'a Gate,
    session: Session,
}

impl<'a> AnswerHandler<'a> {
    /// Creates a desk for the user at the terminal.
    pub(crate) fn new(cx: &'a CommandContext, gate: &'a Gate, session: &Session) -> Self {
        Self {
            cx,
            gate,
            session: session.clone(),
        }
    }

    /// Carries out an answer and prints the outcome. A failure is printed too, and the approval
    /// request stays open.
    pub(crate) async fn carry_out(
        &self,
        act: PromptAction,
        shown: &mut LiveDisplay,
        keyboard: &mut Keyboard,
    ) -> Result<(), CliError> {
        let me = || self.cx.current_approver(None);
        let done = match act {
            PromptAction::Nothing => Ok(()),
            PromptAction::Show(request) => {
                shown.show_request(&request);
                Ok(())
            }
            PromptAction::More(request) => {
                shown.show_more(&request);
                Ok(())
            }
            PromptAction::ShowAll(requests) => {
                shown.show_all(requests);
                Ok(())
            }
            PromptAction::ApproveAll(requests) => self.approve_all(&requests, shown).await,
            PromptAction::ApproveUnseen(request) => {
                let decision = Decision::approve(me()).unseen();
                self.send_decision(&request, decision, shown).await
            }
            PromptAction::Approve(request) => {
                self.send_decision(&request, Decision::approve(me()), shown)
                    .await
            }
            PromptAction::ApproveEdited(request, arguments) => {
                self.send_decision(
                    &request,
                    Decision::approve_with_edits(me(), arguments),
                    shown,
                )
                .await
            }
            PromptAction::Deny(request, reason) => {
                self.send_decision(&request, Decision::deny(me(), reason.as_deref()), shown)
                    .await
            }
            PromptAction::Edit(request) => {
                shown.pause()?;
                // The editor needs the whole terminal: two readers would take each other's keys.
                keyboard.release()?;
                let edited = self.edit_arguments(&request).await;
                keyboard.reacquire()?;
                edited.map(|(stored, edited)| self.show_edited(&stored, edited, shown))
            }
            PromptAction::Explain(request) => self.explain_call(&request, shown).await,
            PromptAction::Propose(request) => self.propose_rule(&request, shown).await,
            PromptAction::Preview(proposal) => {
                let previewed = self.preview_rule(proposal.rule(), shown).await;
                if previewed.is_err() {
                    // A rule is stored only after the user has seen what it covers.
                    shown.prompt.back_to_choosing();
                }
                previewed
            }
            PromptAction::Always(request, proposal) => {
                self.store_rule(&request, proposal.rule(), shown).await
            }
        };
        if let Err(error) = done {
            shown.note(&error.to_string(), BAD);
            if let Some(hint) = error.hint_text() {
                shown.note(&format!("hint: {hint}"), DIM);
            }
        }
        Ok(())
    }

    /// Approves each of the requests. If one is rejected, the others are decided on all the same.
    async fn approve_all(
        &self,
        requests: &[Arc<ApprovalRequest>],
        shown: &mut LiveDisplay,
    ) -> Result<(), CliError> {
        let mut failed = None;
        for request in requests {
            let decision = Decision::approve(self.cx.current_approver(None));
            let sent = self.send_decision(request, decision, shown).await;
            failed = failed.or(sent.err());
        }
        failed.map_or(Ok(()), Err)
    }

    async fn send_decision(
        &self,
        request: &ApprovalRequest,
        decision: Decision,
        shown: &mut LiveDisplay,
    ) -> Result<(), CliError> {
        match self.session.decide(request, decision).await {
            Ok(AdmittedDecision::Decided { .. }) => Ok(()),
            // The quorum is not complete, so the log still shows the request as pending.
            Ok(AdmittedDecision::Counted { missing }) => {
                let service = self.gate.approvals();
                let counted = describe_counted(&service, request.approval_id, missing).await;
                shown.note(&format!("counted; {counted}"), WARN);
                Ok(())
            }
            Err(error) => {
                shown.prompt.reopen(request);
                Err(CliError::new(describe_rejection(&error)))
            }
        }
    }

    /// Loads the approval request as it was stored: the one on the screen may be redacted.
    async fn load_request(
        &self,
        request: &ApprovalRequest,
    ) -> Result<Arc<ApprovalRequest>, CliError> {
        stored_requests::load_request(&self.gate.approvals(), request.approval_id).await
    }

    async fn edit_arguments(
        &self,
        request: &ApprovalRequest,
    ) -> Result<(Arc<ApprovalRequest>, Option<Arguments>), CliError> {
        // The request on the screen may be redacted: an edit would put its marks into the call.
        let whole = self.load_request(request).await?;
        let view = self.gate.view()?;
        let schema = view
            .get(request.tool.as_str())
            .map(|tool| tool.spec.input.clone());
        let edited = editor::edit_arguments(&whole.arguments, schema.as_ref()).await?;
        Ok((whole, edited))
    }

    /// Shows the edited arguments and what they would change.
    fn show_edited(
        &self,
        request: &ApprovalRequest,
        edited: Option<Arguments>,
        shown: &mut LiveDisplay,
    ) {
        let Some(edited) = edited else {
            return shown.note("nothing was changed", DIM);
        };
        shown.note("changed to:", WARN);
        let changed = show_edited(self.gate, &self.session, request, &edited);
        shown.print_lines(render_shown(&changed, shown.width()));
        shown.prompt.confirm_edited(request, edited);
    }

    async fn explain_call(
        &self,
        request: &ApprovalRequest,
        shown: &mut LiveDisplay,
    ) -> Result<(), CliError> {
        let whole = self.load_request(request).await?;
        let seed = rehearse_call(self.gate, &self.session, request, &whole.arguments)?;
        let explanation = toolgate::layers::explain(self.gate.stack(), seed).await;
        shown.note("the decision of each layer, outermost first:", WARN);
        shown.note(&explanation.to_string(), Style::new());
        Ok(())
    }

    async fn propose_rule(
        &self,
        request: &ApprovalRequest,
        shown: &mut LiveDisplay,
    ) -> Result<(), CliError> {
        // An agent's call belongs to the session of the agent.
        let session = shown
            .screen
            .call(request.approval_id.call_id())
            .map_or(self.session.id(), |call| call.invocation.turn.session);
        let project = self.cx.paths.workspace.display().to_string();
        let view = self.gate.view()?;
        let me = &self.cx.current_user();
        let proposal = RuleProposal::new(request, session, me, &project, &view, shown.now())?;
        self.preview_rule(proposal.rule(), shown).await?;
        shown.prompt.confirm_rule(proposal);
        Ok(())
    }

    /// Shows a rule, and the past approval requests that it would have answered.
    async fn preview_rule(
        &self,
        rule: &StandingRule,
        shown: &mut LiveDisplay,
    ) -> Result<(), CliError> {
        let matched = self.gate.standing_rules().preview(rule).await?;
        let head = StyledLine::styled("rule: ", WARN).with(&rule.to_string(), Style::new());
        shown.print_lines([head]);
        for line in describe_matches(&matched) {
            shown.note(&format!("  {line}"), DIM);
        }
        Ok(())
    }

    async fn store_rule(
        &self,
        request: &ApprovalRequest,
        rule: &StandingRule,
        shown: &mut LiveDisplay,
    ) -> Result<(), CliError> {
        // The rule comes first: if it cannot be stored, nothing has been decided.
        if let Err(error) = self.gate.standing_rules().add(rule.clone()).await {
            shown.prompt.reopen(request);
            return Err(error.into());
        }
        let id = &rule.id;
        let place = match rule.scope {
            RuleScope::Session { .. } => "",
            RuleScope::Project { .. } | RuleScope::Global => "; it applies to other sessions too",
        };
        shown.note(&format!("stored the rule {id}{place}"), GOOD);
        shown.note(
            &format!("`toolgate approvals rules revoke {id}` revokes it"),
            DIM,
        );
        let me = self.cx.current_approver(None);
        self.send_decision(request, Decision::approve(me), shown)
            .await
    }
}
