//! Carries out what somebody answered at the prompt: decides, edits, explains, keeps a rule.

use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use toolgate::{
    Admitted, ApprovalRequest, Arguments, Decision, RawArguments, Record, RecordKey, Session,
    ToolRequest, View,
    layers::{AllowRule, Preview, RuleBook, SharedPreview},
};

use super::{
    display::Display,
    editor,
    prompt::Act,
    rule::{Draft, Place},
    terminal::Keyboard,
};
use crate::{
    CliError, Cx, Gate, ids,
    render::{Line, arguments, diff},
};

const GOOD: Style = AnsiColor::Green.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const DIM: Style = Style::new().dimmed();
/// How many calls are listed that a rule would have covered.
const MOST_PREVIEWED: usize = 5;

/// Whoever sits at the terminal, and what they can reach.
pub(crate) struct Desk<'a> {
    cx: &'a Cx,
    gate: &'a Gate,
    session: Session,
}

impl<'a> Desk<'a> {
    /// Answers for whoever sits at the terminal.
    pub(crate) fn new(cx: &'a Cx, gate: &'a Gate, session: &Session) -> Self {
        Self {
            cx,
            gate,
            session: session.clone(),
        }
    }

    /// Does what was answered, and prints what came of it. What cannot be done is printed too: the question stays.
    pub(crate) async fn act(
        &self,
        act: Act,
        shown: &mut Display,
        keyboard: &mut Keyboard,
    ) -> Result<(), CliError> {
        let me = || self.gate.me.clone();
        let done = match act {
            Act::Nothing => Ok(()),
            Act::Show(request) => {
                shown.show_question(&request);
                Ok(())
            }
            Act::Approve(request) => self.decide(&request, Decision::approve(me()), shown).await,
            Act::ApproveEdited(request, arguments) => {
                self.decide(
                    &request,
                    Decision::approve_with_edits(me(), arguments),
                    shown,
                )
                .await
            }
            Act::Deny(request, reason) => {
                self.decide(&request, Decision::deny(me(), reason.as_deref()), shown)
                    .await
            }
            Act::Edit(request) => {
                shown.leave()?;
                keyboard.lend()?;
                let edited = self.edit(&request).await;
                keyboard.take_back()?;
                edited.map(|edited| self.show_edited(&request, edited, shown))
            }
            Act::Explain(request) => self.explain(&request, shown).await,
            Act::Propose(request) => self.propose(&request, shown).await,
            Act::Preview(draft) => self.preview(&draft, shown).await,
            Act::Always(request, draft) => self.always(&request, &draft, shown).await,
        };
        if let Err(error) = done {
            shown.note(&error.to_string(), BAD);
            if let Some(hint) = error.next_step() {
                shown.note(&format!("hint: {hint}"), DIM);
            }
        }
        Ok(())
    }

    async fn decide(
        &self,
        request: &ApprovalRequest,
        decision: Decision,
        shown: &mut Display,
    ) -> Result<(), CliError> {
        match self.session.decide(request, decision).await {
            Ok(Admitted::Decided { .. }) => Ok(()),
            Ok(Admitted::Counted { missing }) => {
                shown.note(&format!("counted; {missing} more have to agree"), WARN);
                Ok(())
            }
            Err(error) => {
                shown.prompt.not_taken(request);
                Err(error.into())
            }
        }
    }

    /// The question as it was put: what is shown of it may leave out secrets.
    async fn whole(&self, request: &ApprovalRequest) -> Result<Arc<ApprovalRequest>, CliError> {
        let key = RecordKey::Question(request.approval_id.call(), request.generation);
        match self.gate.store.record(&key).await? {
            Some(Record::Question(whole)) => Ok(whole),
            _ => Err(CliError::new("the question is not in the store any more")),
        }
    }

    async fn edit(&self, request: &ApprovalRequest) -> Result<Option<Arguments>, CliError> {
        let whole = self.whole(request).await?;
        let view = View::under(&self.gate.registry, &self.gate.stack)?;
        let schema = view
            .get(request.tool.as_str())
            .map(|tool| tool.spec.input.clone());
        editor::edit(&whole.arguments, schema.as_ref()).await
    }

    /// Shows the arguments as they were changed, and what they would do.
    fn show_edited(
        &self,
        request: &Arc<ApprovalRequest>,
        edited: Option<Arguments>,
        shown: &mut Display,
    ) {
        let Some(edited) = edited else {
            return shown.note("nothing was changed", DIM);
        };
        shown.note("changed to:", WARN);
        shown.print(arguments::in_full(edited.as_map(), shown.width()));
        if let Some(change) = self.change(request, &edited) {
            shown.print(diff(&change));
        }
        shown.prompt.edited(request, edited);
    }

    /// What a call with these arguments would change, as text.
    fn change(&self, request: &ApprovalRequest, arguments: &Arguments) -> Option<String> {
        let preview: SharedPreview = self.gate.parts.get()?;
        let seed = self.rehearsal(request, arguments).ok()?;
        let previewed = preview.preview(&toolgate::Call::new(seed))?;
        previewed.shown.as_str().map(str::to_owned)
    }

    fn rehearsal(
        &self,
        request: &ApprovalRequest,
        arguments: &Arguments,
    ) -> Result<toolgate::CallSeed, CliError> {
        let view = View::under(&self.gate.registry, &self.gate.stack)?;
        let tool = request.tool.to_string();
        let arguments = RawArguments::Json(arguments.as_json().clone());
        let call = ToolRequest {
            provider_call_id: String::new(),
            tool,
            arguments,
        };
        Ok(self.session.dispatcher().rehearsal(&view, &call))
    }

    async fn explain(
        &self,
        request: &ApprovalRequest,
        shown: &mut Display,
    ) -> Result<(), CliError> {
        let whole = self.whole(request).await?;
        let seed = self.rehearsal(request, &whole.arguments)?;
        let explanation = toolgate::explain(&self.gate.stack, seed).await;
        shown.note("what each layer says, outermost first:", WARN);
        shown.note(&explanation.to_string(), Style::new());
        Ok(())
    }

    async fn propose(
        &self,
        request: &ApprovalRequest,
        shown: &mut Display,
    ) -> Result<(), CliError> {
        let whole = self.whole(request).await?;
        if request.withheld || request.arguments.digest() != whole.arguments.digest() {
            return Err(CliError::new(
                "the arguments hold a secret, and a rule would keep it",
            ));
        }
        let view = View::under(&self.gate.registry, &self.gate.stack)?;
        let annotations = view
            .get(request.tool.as_str())
            .map(|tool| tool.spec.annotations.clone());
        let draft = Draft::new((*whole).clone(), &annotations.unwrap_or_default());
        self.preview(&draft, shown).await?;
        shown.prompt.proposed(draft);
        Ok(())
    }

    fn rule(&self, draft: &Draft, shown: &Display) -> AllowRule {
        let project = self.cx.paths.workspace.display().to_string();
        draft.rule(self.session.id(), &project, &self.gate.me, shown.now())
    }

    fn book(&self) -> Result<RuleBook, CliError> {
        self.gate
            .parts
            .get()
            .ok_or_else(|| CliError::new("there is nowhere to keep rules"))
    }

    /// Shows what a rule says, and which calls of the past it would have covered.
    async fn preview(&self, draft: &Draft, shown: &mut Display) -> Result<(), CliError> {
        let rule = self.rule(draft, shown);
        let matched = self.book()?.preview(&rule).await?;
        let mut head =
            Line::styled("rule: ", WARN).with(&format!("allow {}", rule.tool), Style::new().bold());
        for (pointer, pattern) in &rule.arguments {
            let value = match pattern {
                toolgate::layers::ArgumentPattern::Equals(value) => value.to_string(),
                toolgate::layers::ArgumentPattern::Glob(glob) => glob.clone(),
            };
            head.push(
                &format!(" {}={value}", pointer.trim_start_matches('/')),
                Style::new(),
            );
        }
        head.push(&format!(" {}", draft.place.words()), Style::new());
        let mut lines = vec![head];
        let count = matched.len();
        let asked = if count == 1 {
            "one question that was asked".to_owned()
        } else {
            format!("{count} questions that were asked")
        };
        lines.push(Line::styled(
            &format!("  it would have answered {asked}, this one included"),
            DIM,
        ));
        for call in matched.iter().rev().take(MOST_PREVIEWED) {
            let text = format!(
                "  {} {} in session {}",
                call.asked_at,
                call.tool,
                ids::short(call.session)
            );
            lines.push(Line::styled(&text, DIM));
        }
        shown.print(lines);
        Ok(())
    }

    async fn always(
        &self,
        request: &ApprovalRequest,
        draft: &Draft,
        shown: &mut Display,
    ) -> Result<(), CliError> {
        let rule = self.rule(draft, shown);
        let id = rule.id.clone();
        if let Err(error) = self.book()?.add(rule).await {
            shown.prompt.not_taken(request);
            return Err(error.into());
        }
        let place = match draft.place {
            Place::Session => "",
            Place::Project | Place::Everywhere => "; other sessions heed it too",
        };
        shown.note(&format!("kept the rule {id}{place}"), GOOD);
        shown.note(
            &format!("`toolgate approvals rules revoke {id}` takes it back"),
            DIM,
        );
        self.decide(request, Decision::approve(self.gate.me.clone()), shown)
            .await
    }
}
