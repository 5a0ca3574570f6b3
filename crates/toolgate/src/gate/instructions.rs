//! The instructions of a model: the text of the program or the configuration, the place of work, and
//! the `AGENTS.md` or `CLAUDE.md` of the project.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use toolgate_core::Timestamp;

use crate::{
    Error, Result,
    gate::{ConfigTrust, RunSection, StateDir, TrustedConfigs, builder::GateOptions, trust},
};

/// The file names of instructions; the first one that a directory has counts.
pub const INSTRUCTION_NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// The size limit of instructions: they are a part of every request to the model.
const MAX_INSTRUCTION_BYTES: u64 = 64 * 1024;

/// The file with which a project instructs agents, and its text.
///
/// The file comes with the project, and an agent could have changed it. So it is used only if the
/// user trusts exactly these bytes, like a configuration of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionsFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The text of the file.
    pub text: String,
}

impl InstructionsFile {
    /// Finds the file of a project: the nearest one, from `workspace` upward to the root of its
    /// repository. Without a repository, only `workspace` itself counts.
    pub fn of_project(workspace: &Path) -> Option<PathBuf> {
        let is_root = |dir: &&Path| dir.join(".git").exists();
        let root = workspace.ancestors().find(is_root).unwrap_or(workspace);
        let places = { workspace.ancestors() }.take_while(|dir| dir.starts_with(root));
        places
            .flat_map(|dir| INSTRUCTION_NAMES.map(|name| dir.join(name)))
            .find(|path| path.is_file())
    }

    /// Checks whether a path has the name of such a file.
    pub fn is_named_so(path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| INSTRUCTION_NAMES.contains(&name))
    }

    /// Reads a file, trusted or not.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is larger than 64 KiB or is not UTF-8.
    pub fn read(path: PathBuf) -> Result<Self> {
        let mut bytes = Vec::new();
        // One byte more than the limit tells a larger file without loading it.
        let read = File::open(&path)
            .and_then(|file| file.take(MAX_INSTRUCTION_BYTES + 1).read_to_end(&mut bytes));
        let shown = path.display().to_string();
        read.map_err(|error| Error::configuration(format!("{shown}: {error}")))?;
        if bytes.len() as u64 > MAX_INSTRUCTION_BYTES {
            let problem = format!("{shown} is larger than 64 KiB, the limit for instructions");
            // Half of the rules could say the opposite of all of them, so nothing is cut off.
            return Err(Error::configuration(problem)
                .with_hint("shorten it: it is a part of every request to the model"));
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::configuration(format!("{shown} is not UTF-8")).with_hint("save it as UTF-8")
        })?;
        Ok(Self { path, text })
    }

    /// Returns the path under which the file is trusted: that of its directory is resolved.
    pub fn trusted_path(&self) -> PathBuf {
        trust::resolve_directory(&self.path)
    }

    /// Checks whether the user trusts the file with its current text.
    ///
    /// # Errors
    ///
    /// Fails if the list of trusted files cannot be read.
    pub fn check_trust(&self, state: &StateDir) -> Result<ConfigTrust> {
        let trusted = TrustedConfigs::load(state)?;
        Ok(if trusted.covers_instructions(self) {
            ConfigTrust::Trusted
        } else if trusted.knows(&self.trusted_path()) {
            ConfigTrust::Changed
        } else {
            ConfigTrust::Unknown
        })
    }
}

/// What a gate does with the instructions of its project.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProjectInstructions {
    /// There is no such file, or the gate does not look for one.
    Absent,
    /// The model reads the file.
    Used(InstructionsFile),
    /// The user does not trust the file as it is, so the model does not read it.
    Untrusted {
        /// The file.
        path: PathBuf,
        /// True if the user trusted it, and it has changed since.
        changed: bool,
    },
    /// The file cannot be used.
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem, which names the file.
        problem: String,
    },
}

impl ProjectInstructions {
    /// Finds the instructions of the workspace of a gate, and checks their trust.
    pub(super) fn find(options: &GateOptions, run: &RunSection) -> Result<Self> {
        let wanted = options.project_context && run.project_instructions.unwrap_or(true);
        let workspace = options.workspace.as_deref().filter(|_| wanted);
        let Some(path) = workspace.and_then(InstructionsFile::of_project) else {
            return Ok(Self::Absent);
        };
        let file = match InstructionsFile::read(path.clone()) {
            Ok(file) => file,
            // The run continues: a file that is not used cannot do harm, and it is named.
            Err(error) => {
                let problem = error.to_string();
                return Ok(Self::Unusable { path, problem });
            }
        };
        let trust = match &options.evidence_dir {
            Some(state) => file.check_trust(state)?,
            // Without a state directory there is no list of trusted files.
            None => ConfigTrust::Unknown,
        };
        Ok(match trust {
            ConfigTrust::Trusted => Self::Used(file),
            ConfigTrust::Changed => Self::Untrusted {
                path,
                changed: true,
            },
            ConfigTrust::Unknown => Self::Untrusted {
                path,
                changed: false,
            },
        })
    }
}

/// Returns the instructions of a session: those of `[run]` or of the program, then the place of work,
/// then those of the project.
pub(super) fn compose_instructions(
    options: &GateOptions,
    run: &RunSection,
    project: &ProjectInstructions,
    now: Timestamp,
) -> Option<String> {
    let own = run
        .instructions
        .as_deref()
        .or(options.instructions.as_deref());
    let mut parts: Vec<String> = own.map(str::to_owned).into_iter().collect();
    if options.project_context {
        parts.push(describe_place(options.workspace.as_deref(), now));
    }
    if let ProjectInstructions::Used(file) = project {
        let name = file.path.file_name().unwrap_or_default();
        let heading = format!("# Instructions of this project ({})", name.display());
        parts.push(format!("{heading}\n\n{}", file.text.trim()));
    }
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Describes the directory, the date and the operating system. The date has no time of day: providers
/// cache a text only while it stays the same.
fn describe_place(workspace: Option<&Path>, now: Timestamp) -> String {
    let now = now.to_string();
    let date = now.split('T').next().unwrap_or(&now);
    let mut lines = vec![
        format!("Date: {date} (UTC)"),
        format!(
            "Operating system: {} ({})",
            std::env::consts::OS,
            std::env::consts::ARCH
        ),
    ];
    if let Some(workspace) = workspace {
        // A name can contain line breaks, and must not look like instructions of its own.
        let shown = workspace
            .display()
            .to_string()
            .replace(char::is_control, " ");
        lines.insert(0, format!("Directory: {shown}"));
    }
    lines.join("\n")
}
