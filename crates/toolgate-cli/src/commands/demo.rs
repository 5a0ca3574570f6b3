//! `toolgate demo`: an agent mends a small project before your eyes.

use std::path::PathBuf;

use clap::Args;

/// Shows what Toolgate does, without a key and without a network.
///
/// A scripted model mends a small project in a temporary directory. Its tools are real: it reads files, runs the tests in
/// a sandbox, is refused a file with secrets, and asks before it changes anything. In the end all receipts are verified.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate demo                  decide yourself about the edit
  toolgate demo --yes            approve it, for unattended use
  toolgate demo --yes --crash    kill the process in the middle of the edit, and go on
  toolgate demo --yes --json     the events, one JSON object per line")]
pub struct DemoArgs {
    /// Approve what needs an approval
    #[arg(long, short)]
    pub yes: bool,
    /// Kill the process (SIGKILL) in the middle of the edit, and resume
    #[arg(long)]
    pub crash: bool,
    /// Keep the project afterwards
    #[arg(long)]
    pub keep: bool,
    /// Take up the demo in this project; the process kills itself in the middle of the edit
    #[arg(long, hide = true, value_name = "DIR")]
    pub doomed_in: Option<PathBuf>,
    /// The session of the doomed process
    #[arg(long, hide = true, value_name = "ID", requires = "doomed_in")]
    pub session: Option<String>,
}
