//! Files that act later, which no call changes without an approver's decision.

use toolgate_core::{acting_file, acting_file_names};

use crate::decide::policy::{
    features::{CallCommand, CallFeatures},
    matching::{
        paths::{PathLocation, ResolvedPath},
        reading_commands::only_reads_files,
        secret_files::may_end_with,
        write_targets::{find_unread_target, named_targets},
    },
};

/// The list entry of the directory that belongs to git, wherever the workspace begins.
const GIT_DIRECTORY: &str = ".git";

/// Returns the list entry of the file that acts later to which a place leads in any spelling.
pub(crate) fn acting_entry(place: &ResolvedPath) -> Option<&'static str> {
    place.find_in_spellings(entry_at)
}

fn entry_at(spot: &PathLocation) -> Option<&'static str> {
    let PathLocation { absolute, inside } = spot;
    let Some(inside) = inside else {
        return acting_file(absolute);
    };
    let root = absolute[..absolute.len() - inside.len()].trim_end_matches('/');
    // The directories above the root do not count: agents work in `.claude/worktrees/x`. The
    // inside of a git directory is none of a project's files, so it counts everywhere.
    if root.split('/').any(|part| part == GIT_DIRECTORY) {
        return Some(GIT_DIRECTORY);
    }
    let from = root.rfind('/').map_or(0, |at| at + 1);
    acting_file(&absolute[from..])
}

/// Checks whether a text that a shell or a tool expands could become the name of such a file.
pub(crate) fn expands_to_acting_file(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    let parts: Vec<&str> = text.split('/').collect();
    let is_named = |name: &str| (1..=parts.len()).any(|end| may_end_with(&parts[..end], name));
    text.len() <= 512 && { acting_file_names() }.any(|name| !name.contains('*') && is_named(name))
}

/// Checks whether the commands of a call are known, and only read the files that they name.
pub(crate) fn only_reads(facts: &CallFeatures<'_>) -> bool {
    let runs = facts.certain_runs();
    runs.is_some_and(|runs| !runs.is_empty() && runs.into_iter().all(only_reads_files))
}

/// Returns the entries of the files that commands write by names which have no sign of a path, such
/// as `Jenkinsfile`. Elsewhere in a command such a word may be anything: `git diff HEAD`.
pub(crate) fn plainly_named_entries(
    facts: &CallFeatures<'_>,
) -> impl Iterator<Item = (&'static str, ResolvedPath)> {
    let targets = facts
        .commands
        .iter()
        .flat_map(|it| named_targets(it.script()));
    let plain = targets.filter(|name| !name.contains(['/', '.', '~', '\\']));
    plain.filter_map(|name| {
        let place = facts.root.spelled_place(name);
        Some((acting_entry(&place)?, place))
    })
}

/// Returns the piece of a command because of which it cannot be told which file the command writes.
pub(crate) fn find_unread_write<'f>(facts: &'f CallFeatures<'_>) -> Option<&'f str> {
    // Without one of these, every name is in the text.
    let may_expand = |command: &&CallCommand| {
        command
            .text
            .contains(['$', '`', '*', '?', '[', '{', '(', '|'])
            || ["xargs", "parallel"]
                .iter()
                .any(|name| command.text.contains(name))
    };
    let commands = facts.commands.iter().filter(may_expand);
    commands
        .into_iter()
        .find_map(|command| find_unread_target(command.script()))
}
