//! `toolgate doctor`: looks for what keeps Toolgate from working here, and says how to mend it.

mod database;
mod places;
mod setup;

use clap::Args;
use serde::Serialize;

use crate::{CliError, Cx, Exit, runtime, style, table::Table};

/// Looks at the home, the database, the keys, the configuration, the kernel, the terminal and the models.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is changed. Ends with 1 if something is broken; what is only unusual is marked with !.

Examples:
  toolgate doctor
  toolgate doctor --deep                     also read the whole database
  toolgate doctor --json | jq -c 'select(.state != \"fine\")'")]
pub struct DoctorArgs {
    /// Read the whole database: every event, record and receipt
    #[arg(long)]
    pub deep: bool,
}

/// What was found about one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Fine,
    Unusual,
    Broken,
}

impl Finding {
    fn fine(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Fine,
            detail: detail.into(),
            fix: None,
        }
    }

    fn unusual(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Unusual,
            detail: detail.into(),
            fix: Some(fix.into()),
        }
    }

    fn broken(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Broken,
            detail: detail.into(),
            fix: Some(fix.into()),
        }
    }

    /// What an error says, with the hint that a command would give.
    fn error(check: &'static str, error: &CliError) -> Self {
        Self {
            check,
            state: State::Broken,
            detail: error.to_string(),
            fix: error.next_step().map(str::to_owned),
        }
    }
}

/// Looks at everything.
pub(crate) fn run(args: &DoctorArgs, cx: &Cx) -> Result<Exit, CliError> {
    let mut findings = vec![places::home(cx), places::disk(cx), places::clock(cx)];
    findings.extend(runtime::block_on(async {
        Ok(database::look(cx, args.deep).await)
    })?);
    findings.push(places::keys(cx));
    findings.extend(setup::configuration(cx));
    findings.extend([setup::sandbox(cx), setup::models(cx), setup::terminal(cx)]);
    match cx.out.is_json() {
        true => findings
            .iter()
            .try_for_each(|finding| cx.out.json(finding))?,
        false => print(cx, &findings)?,
    }
    let broken = findings
        .iter()
        .any(|finding| finding.state == State::Broken);
    Ok(if broken { Exit::Failed } else { Exit::Done })
}

fn print(cx: &Cx, findings: &[Finding]) -> Result<(), CliError> {
    let mut table = Table::new();
    for finding in findings
        .iter()
        .filter(|finding| !cx.out.is_quiet() || finding.state == State::Broken)
    {
        let mark = match finding.state {
            State::Fine => style::good("✓"),
            State::Unusual => style::warn("!"),
            State::Broken => style::bad("✗"),
        };
        table.row([
            mark.to_string(),
            style::bold(finding.check).to_string(),
            style::plain(&finding.detail),
        ]);
        if let Some(fix) = &finding.fix {
            table.row([
                String::new(),
                String::new(),
                format!("{} {}", style::note("fix:"), style::plain(fix)),
            ]);
        }
    }
    if !table.is_empty() {
        cx.out.line(table)?;
    }
    Ok(())
}
