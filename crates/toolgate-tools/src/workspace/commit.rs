//! Writes planned changes so that either all of them happen or none.

use std::{ffi::OsString, io, io::Write, path::Path};

use cap_std::fs::{Dir, OpenOptions};
use toolgate_core::{CallId, ErrorCategory, ToolError};
use toolgate_rooted::{RootedDir, RootedPath};

use crate::{
    Workspace,
    workspace::{blocking::HaltFlag, open::FileSnapshot, walk::TEMP_PREFIX},
};

/// The planned change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedChange {
    /// The path of the file: a resolved target, reached through no link.
    pub(crate) place: RootedPath,
    /// The old path, if the file is renamed.
    pub(crate) renamed_from: Option<RootedPath>,
    /// The content when the plan was made; `None` if the file did not exist.
    pub(crate) before: Option<FileSnapshot>,
    /// The new content; `None` to delete the file.
    pub(crate) after: Option<FileSnapshot>,
}

/// Writes all changes or none.
///
/// First every new content is written to a temporary file next to its target and synced to disk.
/// Then each temporary file is renamed to its target, if the target is still what the plan was made
/// from. A reader finds the old file or the new one, also after a crash. If a step fails, the steps
/// before it are undone.
pub(crate) fn commit_changes(
    workspace: &Workspace,
    call: CallId,
    changes: &[PlannedChange],
    halt: &HaltFlag,
    watch: &mut dyn FnMut(usize) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    let mut staged = Vec::with_capacity(changes.len());
    for (number, change) in changes.iter().enumerate() {
        halt.check_running()?;
        staged.push(StagedChange::new(workspace, call, number, change)?);
    }
    // From here on the call can no longer be stopped: half of a change would be worse than all of it.
    halt.begin_writing()?;
    for number in 0..staged.len() {
        let published = watch(number).and_then(|()| staged[number].publish());
        if let Err(error) = published {
            // The failed step itself changed nothing; its temporary file is deleted on drop.
            return Err(undo_published(&mut staged[..number], error));
        }
    }
    staged.iter_mut().for_each(StagedChange::keep_directories);
    Ok(())
}

/// A change whose content is written to a temporary file and not published yet.
struct StagedChange<'a> {
    workspace: &'a Workspace,
    change: &'a PlannedChange,
    dir: RootedDir,
    name: OsString,
    /// The name of the temporary file, until it is renamed.
    temp: Option<String>,
    call: CallId,
    number: usize,
    /// Directories that were created for it, outermost first; removed again unless the change stays.
    made: Vec<(RootedDir, OsString)>,
}

impl<'a> StagedChange<'a> {
    fn new(
        workspace: &'a Workspace,
        call: CallId,
        number: usize,
        change: &'a PlannedChange,
    ) -> Result<Self, ToolError> {
        let refused = |error: io::Error| workspace.explain_io_error(&change.place, &error);
        let name = change
            .place
            .as_path()
            .file_name()
            .ok_or_else(|| refused(io::ErrorKind::InvalidInput.into()))?;
        let dir = workspace.dir().try_clone().map_err(refused)?;
        let name = name.to_owned();
        let made = Vec::new();
        let mut staged = Self {
            workspace,
            change,
            dir,
            name,
            temp: None,
            call,
            number,
            made,
        };
        staged.open_directory().map_err(refused)?;
        staged.check_unchanged()?;
        if let Some(after) = &change.after {
            staged.write_temp_file(after).map_err(refused)?;
        }
        Ok(staged)
    }

    /// Opens the directory of the file; creates missing directories unless the file is deleted.
    fn open_directory(&mut self) -> io::Result<()> {
        for step in self
            .change
            .place
            .as_path()
            .parent()
            .into_iter()
            .flat_map(Path::components)
        {
            let step = step.as_os_str();
            let inner = match self.dir.open_dir(step) {
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && self.change.after.is_some() =>
                {
                    match self.dir.as_dir().create_dir(step) {
                        Ok(()) => self.made.push((self.dir.try_clone()?, step.to_owned())),
                        // Another change of the same plan, or another process, created it.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        Err(error) => return Err(error),
                    }
                    // Although it was just created: another process may have put a link in its
                    // place by now.
                    self.dir.open_dir(step)?
                }
                opened => opened?,
            };
            self.dir = inner;
        }
        Ok(())
    }

    /// Checks that the file is still what the plan was made from.
    fn check_unchanged(&self) -> Result<(), ToolError> {
        let place = &self.change.place;
        let found = self
            .workspace
            .read_target_in(&self.dir, &self.name, place)?;
        let text = match (&self.change.before, &found) {
            (None, None) => return Ok(()),
            (Some(before), Some(found)) if before.digest == found.digest => return Ok(()),
            (None, Some(_)) => {
                format!("{place} was created by another process in the meantime; read it first")
            }
            (Some(_), None) => format!("{place} was deleted by another process in the meantime"),
            (Some(_), Some(_)) => {
                format!("{place} was changed by another process in the meantime; read it again")
            }
        };
        Err(ToolError::new(text).with_category(ErrorCategory::Conflict))
    }

    /// Writes the content to a temporary file next to the target and syncs it to disk.
    fn write_temp_file(&mut self, content: &FileSnapshot) -> io::Result<()> {
        let name = format!(
            "{TEMP_PREFIX}{}-{}-{}.tmp",
            self.call,
            std::process::id(),
            self.number
        );
        // Left behind by an attempt of the same call that was killed.
        let _ = self.dir.as_dir().remove_file(&name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = self.dir.as_dir().open_with(&name, &options)?.into_std();
        // Noted before the first byte: if a write fails, drop deletes the file.
        self.temp = Some(name);
        file.write_all(&content.bytes)?;
        // A replaced file keeps its owner and mode. A new one gets what the umask leaves, unless the
        // plan sets another mode.
        if self.change.before.is_some() {
            preserve_owner(self.dir.as_dir(), &self.name, &file);
            set_mode(&file, content.mode)?;
        } else if content.mode != crate::workspace::open::NEW_FILE_MODE {
            set_mode(&file, content.mode)?;
        }
        file.sync_all()
    }

    /// Replaces the old content by the new in one step.
    fn publish(&mut self) -> Result<(), ToolError> {
        // Checked again right before the rename: staging other files may have taken long. A change in
        // between is still lost; the file system has no compare-and-rename.
        self.check_unchanged()?;
        let place = &self.change.place;
        let done = match (&self.temp, &self.change.before) {
            (Some(temp), None) => self.link_new_file(temp),
            (Some(temp), Some(_)) => self.rename(temp).map(|()| true),
            (None, _) => self.dir.as_dir().remove_file(&self.name).map(|()| true),
        };
        match done {
            Ok(moved) => {
                if moved {
                    self.temp = None;
                }
                // Best effort: without it a power failure may lose the rename, but never half of it.
                let _ = self.dir.as_dir().open(".").and_then(|dir| dir.sync_all());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let text = format!(
                    "{place} was created by another process in the meantime; read it first"
                );
                Err(ToolError::new(text).with_category(ErrorCategory::Conflict))
            }
            Err(error) => Err(self.workspace.explain_io_error(place, &error)),
        }
    }

    /// Gives a new file its name, unless that name exists by now. Returns true if the temporary name
    /// is gone.
    fn link_new_file(&self, temp: &str) -> io::Result<bool> {
        // A hard link fails if the name exists; a rename would replace the other file silently.
        match self
            .dir
            .as_dir()
            .hard_link(temp, self.dir.as_dir(), &self.name)
        {
            // The temporary name still exists; it is deleted on drop.
            Ok(()) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // A file system without hard links. The name was checked just before and was free.
            Err(_) => self.rename(temp).map(|()| true),
        }
    }

    fn rename(&self, temp: &str) -> io::Result<()> {
        let dir = self.dir.as_dir();
        dir.rename(temp, dir, &self.name)
    }

    /// Restores the old content.
    fn undo(&mut self) -> Result<(), ToolError> {
        let refused =
            |error: io::Error| self.workspace.explain_io_error(&self.change.place, &error);
        let Some(before) = &self.change.before else {
            return self.dir.as_dir().remove_file(&self.name).map_err(refused);
        };
        self.write_temp_file(before)
            .map_err(|error| self.workspace.explain_io_error(&self.change.place, &error))?;
        let temp = self.temp.take().unwrap_or_default();
        self.rename(&temp)
            .map_err(|error| self.workspace.explain_io_error(&self.change.place, &error))
    }

    /// Keeps the directories that were created for the change.
    fn keep_directories(&mut self) {
        self.made.clear();
    }
}

impl Drop for StagedChange<'_> {
    fn drop(&mut self) {
        if let Some(temp) = &self.temp {
            let _ = self.dir.as_dir().remove_file(temp);
        }
        for (dir, name) in self.made.iter().rev() {
            // Fails if it is not empty: then another process uses it by now.
            let _ = dir.as_dir().remove_dir(name);
        }
    }
}

/// Undoes the steps before the one that failed, and adds the result to its error.
fn undo_published(published: &mut [StagedChange<'_>], mut error: ToolError) -> ToolError {
    let mut lost = Vec::new();
    for staged in published.iter_mut().rev() {
        if staged.undo().is_err() {
            // The new file stays, so its directories must stay too.
            staged.keep_directories();
            lost.push(staged.change.place.to_string());
        }
    }
    if lost.is_empty() {
        error.model.push_str("; nothing was changed");
        return error;
    }
    error.model = format!(
        "{}; these files were changed and could not be restored: {}",
        error.model,
        lost.join(", ")
    );
    // Neither all nor nothing was done, so the category of the failed step no longer holds.
    error.with_category(ErrorCategory::Unknown)
}

/// Deletes the temporary files that killed attempts of a call have left behind.
pub(crate) fn delete_temp_files(workspace: &Workspace, call: CallId, place: &RootedPath) {
    let Ok((dir, _)) = workspace.dir().open_parent(place) else {
        return;
    };
    let dir = dir.as_dir();
    let Ok(entries) = dir.entries() else { return };
    // Without the process number: the killed attempt ran in another process.
    let prefix = format!("{TEMP_PREFIX}{call}-");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for name in names.filter(|name| name.starts_with(&prefix) && name.ends_with(".tmp")) {
        let _ = dir.remove_file(name);
    }
}

#[cfg(unix)]
fn set_mode(file: &std::fs::File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_: &std::fs::File, _: u32) -> io::Result<()> {
    Ok(())
}

/// Gives the new file the owner and group of the old one, where the system allows it.
#[cfg(unix)]
fn preserve_owner(dir: &Dir, name: &OsString, file: &std::fs::File) {
    use {cap_std::fs::MetadataExt, std::os::unix::fs::MetadataExt as _};
    let (Ok(old), Ok(new)) = (dir.symlink_metadata(name), file.metadata()) else {
        return;
    };
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        let owner = rustix::fs::Uid::from_raw(old.uid());
        let group = rustix::fs::Gid::from_raw(old.gid());
        let _ = rustix::fs::fchown(file, Some(owner), Some(group));
    }
}

#[cfg(not(unix))]
fn preserve_owner(_: &Dir, _: &OsString, _: &std::fs::File) {}

#[cfg(test)]
mod tests;
