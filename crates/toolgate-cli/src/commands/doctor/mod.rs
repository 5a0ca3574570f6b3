//! `toolgate doctor`: finds problems that keep Toolgate from working here, and suggests fixes.

mod database;
mod home;
mod setup;

use clap::Args;
use serde::Serialize;

use crate::{
    CliError, CommandContext, Exit,
    env::{runtime, style},
    show::render::{StyledLine, TextTable},
};

/// Checks the home, the database, the keys, the configuration, the kernel, the terminal and the
/// models.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is changed. Exits with 1 if something is broken; what is only unusual is marked with !.

Examples:
  toolgate doctor
  toolgate doctor --deep                     also read the whole database
  toolgate doctor --json | jq -c 'select(.state != \"fine\")'")]
pub struct DoctorArgs {
    /// Read the whole database: every event, record and receipt
    #[arg(long)]
    pub deep: bool,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct DoctorFinding {
    check: &'static str,
    state: FindingState,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum FindingState {
    Fine,
    Unusual,
    Broken,
}

impl DoctorFinding {
    fn fine(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            check,
            state: FindingState::Fine,
            detail: detail.into(),
            fix: None,
        }
    }

    fn unusual(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            state: FindingState::Unusual,
            detail: detail.into(),
            fix: Some(fix.into()),
        }
    }

    fn broken(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            state: FindingState::Broken,
            detail: detail.into(),
            fix: Some(fix.into()),
        }
    }

    /// Builds a finding from an error, with its hint as the fix.
    fn error(check: &'static str, error: &CliError) -> Self {
        Self {
            check,
            state: FindingState::Broken,
            detail: error.to_string(),
            fix: error.hint_text().map(str::to_owned),
        }
    }
}

/// Runs all checks.
pub(crate) fn run(args: &DoctorArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let mut findings = vec![
        crate::commands::doctor::home::check_home(cx),
        crate::commands::doctor::home::check_disk(cx),
        crate::commands::doctor::home::check_clock(cx),
    ];
    findings.extend(runtime::block_on(async {
        Ok(database::check_database(cx, args.deep).await)
    })?);
    findings.push(crate::commands::doctor::home::check_keys(cx));
    findings.extend(setup::check_configuration(cx));
    findings.extend([
        setup::check_sandbox(cx),
        setup::check_models(cx),
        setup::check_terminal(cx),
    ]);
    if cx.out.is_json() {
        findings
            .iter()
            .try_for_each(|finding| cx.out.print_json(finding))?
    } else {
        print_findings(cx, &findings)?
    }
    let broken = findings
        .iter()
        .any(|finding| finding.state == FindingState::Broken);
    Ok(if broken { Exit::Failed } else { Exit::Done })
}

fn print_findings(cx: &CommandContext, findings: &[DoctorFinding]) -> Result<(), CliError> {
    let mut table = TextTable::for_output();
    for finding in findings
        .iter()
        .filter(|finding| !cx.out.is_quiet() || finding.state == FindingState::Broken)
    {
        let mark = match finding.state {
            FindingState::Fine => style::good("✓"),
            FindingState::Unusual => style::warn("!"),
            FindingState::Broken => style::bad("✗"),
        };
        table.add_row([
            mark,
            style::bold(finding.check),
            finding.detail.as_str().into(),
        ]);
        if let Some(fix) = &finding.fix {
            let mut line = style::note("fix:");
            line.extend(format!(" {fix}").into());
            table.add_row([StyledLine::new(), StyledLine::new(), line]);
        }
    }
    if !table.is_empty() {
        cx.out.print_line(table)?;
    }
    Ok(())
}
