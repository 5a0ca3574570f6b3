//! Asks the judge of a call about the files that its arguments do not name.

use std::path::Path;

use toolgate_core::{Access, AccessVerdict, Call, ErrorCategory, ToolError};
use toolgate_rooted::RootedPath;

use crate::Workspace;

/// The use of a file that is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// Its name is shown.
    List,
    /// Its content is shown.
    Read,
}

impl Workspace {
    /// Returns the workspace for one call: what the call does not name is judged before it is
    /// shown, in results and in messages.
    pub(crate) fn for_call(&self, call: &Call) -> Self {
        if !call.has_access_judge() {
            return self.clone();
        }
        self.clone()
            .with_changed_inner(|inner| inner.judged = Some(call.clone()))
    }

    /// Judges the use of a path relative to the root.
    pub(crate) fn judge_file(&self, path: &Path, how: FileUse) -> AccessVerdict {
        let Some(call) = &self.0.judged else {
            return AccessVerdict::Allowed;
        };
        let path = self.root().join(path);
        call.judge_access(match how {
            FileUse::List => Access::ListEntry(&path),
            FileUse::Read => Access::ReadFile(&path),
        })
    }

    /// Returns an explanation that quotes a file, or one that does not if its content may not be
    /// shown. A tool may be allowed to change a file that it may not show.
    pub(crate) fn explain_content(&self, place: &RootedPath, why: String) -> String {
        if self.judge_file(place.as_path(), FileUse::Read).is_allowed() {
            why
        } else {
            "it does not match the file, whose content may not be shown".to_owned()
        }
    }

    /// Fails if the content of a file may not be shown.
    pub(crate) fn check_readable(&self, place: &RootedPath) -> Result<(), ToolError> {
        let text = match self.judge_file(place.as_path(), FileUse::Read) {
            AccessVerdict::Allowed => return Ok(()),
            AccessVerdict::NeedsApproval(why) => format!("reading {place} needs approval: {why}"),
            AccessVerdict::Denied(why) => format!("{place} may not be read: {why}"),
        };
        Err(ToolError::new(text).with_category(ErrorCategory::Permission))
    }
}
