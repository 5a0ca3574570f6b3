//! Approvers: a person at a terminal, a fixed decision, none, or one after the other.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Stdin, Stdout, Write},
    sync::{Arc, Mutex, PoisonError},
};

use toolgate_core::{
    ApprovalRequest, Approver, ApproverIdentity, Arguments, Decision, Redactor, RejectCode,
    Timestamp, Verdict, VisibleText, admit_decision, run_contained,
};

use crate::SharedRedactor;

/// Number of times an invalid answer is prompted for again.
const MAX_REPROMPTS: usize = 3;

/// Maximum length of an input line.
const MAX_LINE_BYTES: u64 = 1024 * 1024;

/// An approver that asks a person, line by line. The request is written in full, as
/// [`ApprovalRequest::show`](toolgate_core::ApprovalRequest::show) returns it.
///
/// Answers are `y`, `yes` or `approve`; `n`, `no` or `deny`, optionally with a reason; `e` or
/// `edit` with the arguments to run with instead. A request whose arguments are withheld is approved
/// only with the word `unseen`, and the decision records that. Only these exact words count: after anything else
/// the prompt is repeated a few times, and then the request stays pending. It also stays pending if
/// the input ends, and if the person has no name to record. Requests are shown one at a time. A
/// person who may not approve a request is told why and can only deny it.
///
/// ```
/// # use {toolgate_core::{Approver, ApprovalRequest, Verdict}, toolgate_layers::Prompt, toolgate_testkit::call};
/// # futures::executor::block_on(async {
/// let ann = Prompt::new("ann", "no not today\n".as_bytes(), Vec::new());
/// let decision = ann.decide(ApprovalRequest::for_call(&call("rm"))).await.unwrap();
/// assert_eq!(decision.verdict, Verdict::Deny { reason: Some("not today".into()) });
/// # });
/// ```
pub struct Prompt<R, W> {
    by: ApproverIdentity,
    secrets: Option<SharedRedactor>,
    line: Arc<Mutex<(R, W)>>,
}

impl Prompt<BufReader<Stdin>, Stdout> {
    /// Creates an approver for `by` at the terminal this program runs in.
    pub fn terminal(by: impl Into<ApproverIdentity>) -> Self {
        Self::new(by, BufReader::new(io::stdin()), io::stdout())
    }
}

impl<R: BufRead + Send + 'static, W: Write + Send + 'static> Prompt<R, W> {
    /// Creates an approver for `by`, who reads `output` and writes `input`.
    pub fn new(by: impl Into<ApproverIdentity>, input: R, output: W) -> Self {
        Self {
            by: by.into(),
            secrets: None,
            line: Arc::new(Mutex::new((input, output))),
        }
    }

    /// Masks the secret values that this redactor finds
    /// ([`ApprovalRequest::show`](toolgate_core::ApprovalRequest::show)). Without one, everything
    /// is shown.
    pub fn redactor(mut self, secrets: SharedRedactor) -> Self {
        self.secrets = Some(secrets);
        self
    }
}

impl<R: BufRead + Send + 'static, W: Write + Send + 'static> Approver for Prompt<R, W> {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        let line = self.line.clone();
        let by = self.by.clone();
        let secrets = self.secrets.clone();
        let ask = move || {
            // A poisoned lock is harmless: a panic has left half a line at worst.
            let (input, output) = &mut *line.lock().unwrap_or_else(PoisonError::into_inner);
            // A decision without a name would be rejected: better not to ask for it.
            if by.as_str().trim().is_empty() {
                writeln!(
                    output,
                    "the approver has no name; the request stays pending"
                )
                .ok()?;
                return None;
            }
            let secrets = secrets.as_ref().map(|secrets| secrets as &dyn Redactor);
            let verdict = prompt_for_verdict(&request, &by, secrets, input, output);
            let verdict = verdict.ok().flatten()?;
            let unseen = request.withheld && verdict == Verdict::Approve;
            Some(Decision {
                verdict,
                by,
                unseen,
                approval_reason: None,
            })
        };
        match tokio::runtime::Handle::try_current() {
            // Reading blocks, and would hold up other tasks of this thread.
            Ok(runtime) => runtime.spawn_blocking(ask).await.ok().flatten(),
            Err(_) => ask(),
        }
    }
}

impl<R, W> fmt::Debug for Prompt<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt")
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}

/// Prompts until there is a valid answer, the input ends, or the attempts are used.
fn prompt_for_verdict(
    request: &ApprovalRequest,
    by: &ApproverIdentity,
    secrets: Option<&dyn Redactor>,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<Option<Verdict>> {
    writeln!(output, "{}", request.approval_id)?;
    for line in request.show(secrets).lines() {
        writeln!(output, "  {line}")?;
    }
    // Only who asks counts here; whether the request has expired is checked with the decision.
    let may_approve = request.check_approver(by, Timestamp::EPOCH);
    if let Err(code) = may_approve {
        let name = VisibleText::new(by.as_str());
        writeln!(output, "{name} cannot approve this: {code}")?;
        let denial = Decision::deny(by.clone(), None);
        if admit_decision(request, &[], &denial, Timestamp::EPOCH).is_err() {
            writeln!(output, "the request stays pending")?;
            return Ok(None);
        }
    }
    for _ in 0..=MAX_REPROMPTS {
        write!(output, "{}", offered_answers(request, may_approve))?;
        output.flush()?;
        let mut line = String::new();
        // A line without its end may be truncated, so it approves nothing.
        if input.by_ref().take(MAX_LINE_BYTES).read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(None);
        }
        match parse_verdict(line.trim_end_matches(['\n', '\r']), request.withheld) {
            Ok(verdict) if may_approve.is_ok() || matches!(verdict, Verdict::Deny { .. }) => {
                return Ok(Some(verdict));
            }
            Ok(_) => writeln!(
                output,
                "you can only deny this request, or leave it pending"
            )?,
            Err(problem) => writeln!(output, "{problem}")?,
        }
    }
    writeln!(output, "no decision; the request stays pending")?;
    Ok(None)
}

/// Returns the answers that this approver can give.
fn offered_answers(request: &ApprovalRequest, may_approve: Result<(), RejectCode>) -> &'static str {
    match may_approve {
        Ok(()) if request.withheld => "unseen / [n]o <reason> / [e]dit <json>: ",
        Ok(()) => "[y]es / [n]o <reason> / [e]dit <json>: ",
        Err(_) => "[n]o <reason>: ",
    }
}

/// Parses an answer, by its exact words.
fn parse_verdict(line: &str, withheld: bool) -> Result<Verdict, String> {
    let (word, rest) = line
        .split_once(' ')
        .map_or((line, None), |(word, rest)| (word, Some(rest.trim())));
    match (word, rest) {
        ("y" | "yes" | "approve", None) if !withheld => Ok(Verdict::Approve),
        ("unseen", None) if withheld => Ok(Verdict::Approve),
        ("n" | "no" | "deny", reason) => Ok(Verdict::Deny {
            reason: reason
                .filter(|reason| !reason.is_empty())
                .map(str::to_owned),
        }),
        ("e" | "edit", Some(json)) => match Arguments::parse(json) {
            Ok(arguments) => Ok(Verdict::ApproveWithEdits { arguments }),
            Err(error) => Err(format!("these are not valid arguments: {error}")),
        },
        _ => Err("please answer with one of these words".to_owned()),
    }
}

/// An approver that always makes the same decision. For tests, and for programs that decide
/// beforehand.
#[derive(Debug, Clone)]
pub struct FixedApprover(Decision);

impl FixedApprover {
    /// Creates an approver that always makes `decision`. Without the name of an approver in it,
    /// requests stay pending.
    pub fn new(decision: Decision) -> Self {
        Self(decision)
    }
}

impl Approver for FixedApprover {
    async fn decide(&self, _: ApprovalRequest) -> Option<Decision> {
        let named = !self.0.by.as_str().trim().is_empty();
        named.then(|| self.0.clone())
    }
}

/// An approver that leaves every request pending, to be decided later and perhaps by another
/// process.
#[derive(Debug, Clone, Copy, Default)]
pub struct SuspendingApprover;

impl Approver for SuspendingApprover {
    async fn decide(&self, _: ApprovalRequest) -> Option<Decision> {
        None
    }
}

/// Two approvers: the second is asked if the first leaves the request pending or panics.
#[derive(Debug, Clone)]
pub struct FirstOf<A, B>(pub A, pub B);

impl<A: Approver, B: Approver> Approver for FirstOf<A, B> {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        match run_contained(self.0.decide(request.clone())).await {
            Ok(Some(decision)) => Some(decision),
            Ok(None) | Err(_) => self.1.decide(request).await,
        }
    }
}

#[cfg(test)]
mod tests;
