//! Writes planned changes so that all of them happen or none does.

use std::{ffi::OsString, io, io::Write, path::Path};

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, OpenOptions};
use toolgate_core::{CallId, ErrorCategory, ToolError};

use crate::{Workspace, blocking::Halt, files::Snapshot, place::Place, walk::TEMP_PREFIX};

/// What is to become of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Which file: a target, through no link.
    pub(crate) place: Place,
    /// What the file was called, if it is renamed.
    pub(crate) renamed_from: Option<Place>,
    /// What was there when the plan was made.
    pub(crate) before: Option<Snapshot>,
    /// What is to be there.
    pub(crate) after: Option<Snapshot>,
}

/// Writes all changes or none.
///
/// First every new content is written beside its file and brought to the disk; then each takes its place in one step,
/// if what is there is still what the plan was made from. Whoever looks, also after a crash, finds the old file or the
/// new one. If a step fails, the steps before it are taken back.
pub(crate) fn commit(
    workspace: &Workspace,
    call: CallId,
    changes: &[Planned],
    halt: &Halt,
    watch: &mut dyn FnMut(usize) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    let mut staged = Vec::with_capacity(changes.len());
    for (number, change) in changes.iter().enumerate() {
        halt.check()?;
        staged.push(Staged::new(workspace, call, number, change)?);
    }
    halt.begin()?;
    for number in 0..staged.len() {
        let published = watch(number).and_then(|()| staged[number].publish());
        if let Err(error) = published {
            return Err(put_back(&mut staged[..number], error));
        }
    }
    staged.iter_mut().for_each(Staged::keep);
    Ok(())
}

/// A change that is ready to take place.
struct Staged<'a> {
    workspace: &'a Workspace,
    change: &'a Planned,
    dir: Dir,
    name: OsString,
    /// The file with the new content, until it has taken its place.
    temp: Option<String>,
    call: CallId,
    number: usize,
    /// Directories that were made for it, outermost first; taken away again unless the change stays.
    made: Vec<(Dir, OsString)>,
}

impl<'a> Staged<'a> {
    fn new(
        workspace: &'a Workspace,
        call: CallId,
        number: usize,
        change: &'a Planned,
    ) -> Result<Self, ToolError> {
        let refused = |error: io::Error| workspace.refusal(&change.place, &error);
        let name = change
            .place
            .as_path()
            .file_name()
            .ok_or_else(|| refused(io::ErrorKind::InvalidInput.into()))?;
        let dir = workspace.dir().try_clone().map_err(refused)?;
        let (name, made) = (name.to_owned(), Vec::new());
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
        staged.enter().map_err(refused)?;
        staged.check()?;
        if let Some(after) = &change.after {
            staged.write(after).map_err(refused)?;
        }
        Ok(staged)
    }

    /// Opens the directory of the file; for a new file the directories are made.
    fn enter(&mut self) -> io::Result<()> {
        for step in self
            .change
            .place
            .as_path()
            .parent()
            .into_iter()
            .flat_map(Path::components)
        {
            let step = step.as_os_str();
            let inner = match self.dir.open_dir_nofollow(step) {
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && self.change.after.is_some() =>
                {
                    match self.dir.create_dir(step) {
                        Ok(()) => self.made.push((self.dir.try_clone()?, step.to_owned())),
                        // A sibling made it just now.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        Err(error) => return Err(error),
                    }
                    self.dir.open_dir_nofollow(step)?
                }
                opened => opened?,
            };
            self.dir = inner;
        }
        Ok(())
    }

    /// Whether the file is still what the plan was made from.
    fn check(&self) -> Result<(), ToolError> {
        let (place, found) = (
            &self.change.place,
            self.workspace
                .look_in(&self.dir, &self.name, &self.change.place)?,
        );
        let text = match (&self.change.before, &found) {
            (None, None) => return Ok(()),
            (Some(before), Some(found)) if before.digest == found.digest => return Ok(()),
            (None, Some(_)) => {
                format!("{place} was made by somebody else meanwhile; read it first")
            }
            (Some(_), None) => format!("{place} was taken away by somebody else meanwhile"),
            (Some(_), Some(_)) => {
                format!("{place} was changed by somebody else meanwhile; read it again")
            }
        };
        Err(ToolError::new(text).with_category(ErrorCategory::Conflict))
    }

    /// Writes the content beside the file and waits until it is on the disk.
    fn write(&mut self, content: &Snapshot) -> io::Result<()> {
        let name = format!(
            "{TEMP_PREFIX}{}-{}-{}.tmp",
            self.call,
            std::process::id(),
            self.number
        );
        // Left behind by an attempt of the same call that was killed.
        let _ = self.dir.remove_file(&name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = self.dir.open_with(&name, &options)?.into_std();
        self.temp = Some(name);
        file.write_all(&content.bytes)?;
        if self.change.before.is_some() {
            keep_owner(&self.dir, &self.name, &file);
            set_mode(&file, content.mode)?;
        } else if content.mode != crate::files::NEW_FILE {
            set_mode(&file, content.mode)?;
        }
        file.sync_all()
    }

    /// Lets the new content take the place of the old in one step.
    fn publish(&mut self) -> Result<(), ToolError> {
        self.check()?;
        let place = &self.change.place;
        let done = match (&self.temp, &self.change.before) {
            (Some(temp), None) => self.link(temp),
            (Some(temp), Some(_)) => self.dir.rename(temp, &self.dir, &self.name).map(|()| true),
            (None, _) => self.dir.remove_file(&self.name).map(|()| true),
        };
        match done {
            Ok(moved) => {
                if moved {
                    self.temp = None;
                }
                // A change that is lost with the power is no half change, so a system that cannot do this is fine.
                let _ = self.dir.open(".").and_then(|dir| dir.sync_all());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let text = format!("{place} was made by somebody else meanwhile; read it first");
                Err(ToolError::new(text).with_category(ErrorCategory::Conflict))
            }
            Err(error) => Err(self.workspace.refusal(place, &error)),
        }
    }

    /// Gives a new file its name, unless the name is taken by now. Says whether the other name is gone.
    fn link(&self, temp: &str) -> io::Result<bool> {
        match self.dir.hard_link(temp, &self.dir, &self.name) {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // A disk without hard links. It was looked at a moment ago, and nothing was there.
            Err(_) => self.dir.rename(temp, &self.dir, &self.name).map(|()| true),
        }
    }

    /// Puts back what was there before.
    fn take_back(&mut self) -> Result<(), ToolError> {
        let refused = |error: io::Error| self.workspace.refusal(&self.change.place, &error);
        let Some(before) = &self.change.before else {
            return self.dir.remove_file(&self.name).map_err(refused);
        };
        self.write(before)
            .map_err(|error| self.workspace.refusal(&self.change.place, &error))?;
        let temp = self.temp.take().unwrap_or_default();
        self.dir
            .rename(&temp, &self.dir, &self.name)
            .map_err(|error| self.workspace.refusal(&self.change.place, &error))
    }

    /// Says that the change stays.
    fn keep(&mut self) {
        self.made.clear();
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(temp) = &self.temp {
            let _ = self.dir.remove_file(temp);
        }
        for (dir, name) in self.made.iter().rev() {
            // One that is not empty has become somebody else's.
            let _ = dir.remove_dir(name);
        }
    }
}

/// Takes back the steps before the one that failed.
fn put_back(published: &mut [Staged<'_>], mut error: ToolError) -> ToolError {
    let mut lost = Vec::new();
    for staged in published.iter_mut().rev() {
        if staged.take_back().is_err() {
            staged.keep();
            lost.push(staged.change.place.to_string());
        }
    }
    if lost.is_empty() {
        error.model.push_str("; nothing was changed");
        return error;
    }
    error.model = format!(
        "{}; these files were changed and could not be put back: {}",
        error.model,
        lost.join(", ")
    );
    error.with_category(ErrorCategory::Unknown)
}

/// Takes away what attempts of a call have left behind when they were killed.
pub(crate) fn tidy_up(workspace: &Workspace, call: CallId, place: &Place) {
    let Ok((dir, _)) = workspace.open_parent(place) else {
        return;
    };
    let Ok(entries) = dir.entries() else { return };
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

/// A file that is replaced still belongs to whom it belonged to, where the system allows it.
#[cfg(unix)]
fn keep_owner(dir: &Dir, name: &OsString, file: &std::fs::File) {
    use {cap_std::fs::MetadataExt, std::os::unix::fs::MetadataExt as _};
    let (Ok(old), Ok(new)) = (dir.symlink_metadata(name), file.metadata()) else {
        return;
    };
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        let (owner, group) = (
            rustix::fs::Uid::from_raw(old.uid()),
            rustix::fs::Gid::from_raw(old.gid()),
        );
        let _ = rustix::fs::fchown(file, Some(owner), Some(group));
    }
}

#[cfg(not(unix))]
fn keep_owner(_: &Dir, _: &OsString, _: &std::fs::File) {}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
