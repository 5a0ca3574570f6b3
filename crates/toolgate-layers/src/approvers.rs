//! Those who can be asked: a person at a terminal, a fixed answer, nobody, one after the other.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Stdin, Stdout, Write},
    sync::{Arc, Mutex, PoisonError},
};

use toolgate_core::{
    ApprovalRequest, Approver, Arguments, Changed, Decision, Principal, Verdict, contained,
};

/// How often an answer that is none is asked for again.
const ASK_AGAIN: usize = 3;

/// The longest line that is read.
const MOST_BYTES: u64 = 1024 * 1024;

/// A decision needs a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("whoever decides needs a name")]
pub struct NoName;

fn named(by: Principal) -> Result<Principal, NoName> {
    if by.as_str().trim().is_empty() {
        Err(NoName)
    } else {
        Ok(by)
    }
}

/// Asks a person line by line.
///
/// Answers are `y`, `yes` or `approve`; `n`, `no` or `deny`, with a reason if wanted; `e` or `edit` with the arguments
/// to run with instead. These exact words and no others: anything else is asked again a few times and then left open.
/// So is a question whose input ends. Questions are put one at a time.
///
/// ```
/// # use {toolgate_core::{Approver, ApprovalRequest, Verdict}, toolgate_layers::Prompt, toolgate_testkit::call};
/// # futures::executor::block_on(async {
/// let ann = Prompt::new("ann", "no not today\n".as_bytes(), Vec::new())?;
/// let decision = ann.decide(ApprovalRequest::about(&call("rm"))).await.unwrap();
/// assert_eq!(decision.verdict, Verdict::Deny { reason: Some("not today".into()) });
/// # Ok::<(), toolgate_layers::NoName>(())
/// # }).unwrap();
/// ```
pub struct Prompt<R, W> {
    by: Principal,
    line: Arc<Mutex<(R, W)>>,
}

impl Prompt<BufReader<Stdin>, Stdout> {
    /// Asks `by` at the terminal this program runs in.
    pub fn terminal(by: impl Into<Principal>) -> Result<Self, NoName> {
        Self::new(by, BufReader::new(io::stdin()), io::stdout())
    }
}

impl<R: BufRead + Send + 'static, W: Write + Send + 'static> Prompt<R, W> {
    /// Asks `by`, who reads `output` and writes `input`.
    pub fn new(by: impl Into<Principal>, input: R, output: W) -> Result<Self, NoName> {
        Ok(Self {
            by: named(by.into())?,
            line: Arc::new(Mutex::new((input, output))),
        })
    }
}

impl<R: BufRead + Send + 'static, W: Write + Send + 'static> Approver for Prompt<R, W> {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        let (line, by) = (self.line.clone(), self.by.clone());
        let ask = move || {
            // Whoever panicked before has left at worst half a line.
            let (input, output) = &mut *line.lock().unwrap_or_else(PoisonError::into_inner);
            ask(&request, input, output)
                .ok()
                .flatten()
                .map(|verdict| Decision { verdict, by })
        };
        match tokio::runtime::Handle::try_current() {
            // Reading blocks, and others have work to do.
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

/// Puts a question until it is answered or there is no use in asking again.
fn ask(
    request: &ApprovalRequest,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<Option<Verdict>> {
    show(request, output)?;
    for _ in 0..=ASK_AGAIN {
        write!(output, "[y]es / [n]o <reason> / [e]dit <json>: ")?;
        output.flush()?;
        let mut line = String::new();
        if input.by_ref().take(MOST_BYTES).read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(None);
        }
        match read(line.trim_end_matches(['\n', '\r'])) {
            Ok(verdict) => return Ok(Some(verdict)),
            Err(problem) => writeln!(output, "{problem}")?,
        }
    }
    writeln!(output, "left open")?;
    Ok(None)
}

fn show(request: &ApprovalRequest, output: &mut impl Write) -> io::Result<()> {
    let risk = serde_json::to_value(request.risk).unwrap_or_default();
    writeln!(output, "{}", request.approval_id)?;
    writeln!(output, "  tool: {}", plain(request.tool.as_str()))?;
    writeln!(
        output,
        "  reason: {}",
        plain(request.reason.as_deref().unwrap_or("none given"))
    )?;
    writeln!(output, "  risk: {}", risk.as_str().unwrap_or("unknown"))?;
    if request.withheld {
        writeln!(
            output,
            "  arguments: not shown; they are too large or may hold secrets"
        )?;
    } else {
        writeln!(
            output,
            "  arguments: {}",
            plain(&request.arguments.as_json().to_string())
        )?;
    }
    if let Some(shown) = &request.shown {
        let text = shown
            .as_str()
            .map_or_else(|| shown.to_string(), str::to_owned);
        text.lines()
            .try_for_each(|line| writeln!(output, "  | {}", plain(line)))?;
    }
    if let Some(until) = request.expires_at {
        writeln!(output, "  until: {until}")?;
    }
    if let Some(quorum) = &request.quorum {
        writeln!(
            output,
            "  to approve: {} different people",
            quorum.needed.max(1)
        )?;
    }
    for changed in &request.changed {
        match changed {
            Changed::File { path } => {
                writeln!(output, "  asked again: {} {}", changed.code(), plain(path))?
            }
            other => writeln!(output, "  asked again: {}", other.code())?,
        }
    }
    Ok(())
}

/// Text that cannot move the cursor, change colours or turn its direction: a model has written it.
fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns(c) {
            out.extend(c.escape_unicode())
        } else {
            out.push(c)
        }
    }
    out
}

/// Reads an answer, to the letter.
fn read(line: &str) -> Result<Verdict, String> {
    let (word, rest) = line
        .split_once(' ')
        .map_or((line, None), |(word, rest)| (word, Some(rest.trim())));
    match (word, rest) {
        ("y" | "yes" | "approve", None) => Ok(Verdict::Approve),
        ("n" | "no" | "deny", reason) => Ok(Verdict::Deny {
            reason: reason
                .filter(|reason| !reason.is_empty())
                .map(str::to_owned),
        }),
        ("e" | "edit", Some(json)) => match Arguments::parse(json) {
            Ok(arguments) => Ok(Verdict::ApproveWithEdits { arguments }),
            Err(error) => Err(format!("these are no arguments: {error}")),
        },
        _ => Err("please answer with one of these words".to_owned()),
    }
}

/// Always decides the same. For tests, and for programs that decide beforehand.
#[derive(Debug, Clone)]
pub struct Fixed(Decision);

impl Fixed {
    /// Always decides `decision`.
    pub fn new(decision: Decision) -> Result<Self, NoName> {
        let Decision { verdict, by } = decision;
        Ok(Self(Decision {
            verdict,
            by: named(by)?,
        }))
    }
}

impl Approver for Fixed {
    async fn decide(&self, _: ApprovalRequest) -> Option<Decision> {
        Some(self.0.clone())
    }
}

/// Leaves every question open, to be answered later and perhaps by another process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Suspend;

impl Approver for Suspend {
    async fn decide(&self, _: ApprovalRequest) -> Option<Decision> {
        None
    }
}

/// Asks the first and, if that one leaves the question open or panics, the second.
#[derive(Debug, Clone)]
pub struct FirstOf<A, B>(pub A, pub B);

impl<A: Approver, B: Approver> Approver for FirstOf<A, B> {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        match contained(self.0.decide(request.clone())).await {
            Ok(Some(decision)) => Some(decision),
            Ok(None) | Err(_) => self.1.decide(request).await,
        }
    }
}

#[cfg(test)]
#[path = "approvers_tests.rs"]
mod tests;
