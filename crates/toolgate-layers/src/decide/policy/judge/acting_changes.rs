//! Files that act later: which of them a call may change. Such a call is asked about each time.

use std::{collections::BTreeSet, fmt};

use super::{Judgement, RuleSet};
use crate::{
    PolicyEffect,
    decide::policy::{
        features::CallFeatures,
        matching::{
            acting_files, git_config, installing_commands, path_patterns::StrictPathPatterns,
            paths::ResolvedPath, shell::shorten,
        },
    },
};

/// The name of the built-in rule about files that act later.
const ACTING_FILES: &str = "files that act later";

/// What a call may change of the files that act later.
pub(super) struct ActingChanges<'f> {
    /// Entries of the list of these files.
    entries: BTreeSet<&'static str>,
    /// The piece of a command that leaves open which file is written.
    unread: Option<&'f str>,
}

impl fmt::Display for ActingChanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<&str> = self.entries.iter().copied().collect();
        let entries = entries.join(", ");
        if !self.entries.is_empty() {
            write!(
                f,
                "may change {entries}, which runs or is obeyed later, outside the gate"
            )?;
        }
        let Some(piece) = self.unread else {
            return Ok(());
        };
        let also = if self.entries.is_empty() { "" } else { "; it " };
        write!(
            f,
            "{also}may change a file that acts later: cannot tell which file this writes: `{}`",
            shorten(piece)
        )
    }
}

impl Judgement {
    /// Returns the judgement about a call that changes these files that act later, and that the
    /// rules judge as `self`.
    pub(super) fn asked_each_time(self, changes: &ActingChanges<'_>) -> Self {
        let built_in = format!("the built-in rule {ACTING_FILES:?} asks: the call {changes}");
        // The approver reads all reasons, not only the one that cannot be configured.
        let reason = match &self.rule {
            Some(_) if self.effect == PolicyEffect::Ask => format!("{}; {built_in}", self.reason),
            Some(_) | None => built_in,
        };
        Self {
            effect: PolicyEffect::Ask,
            rule: Some(ACTING_FILES.into()),
            reason: reason.into(),
            each_time: true,
        }
    }
}

impl RuleSet {
    /// Returns what the call may change of the files that act later; `None` if it is nothing.
    pub(super) fn find_acting_changes<'f>(
        &self,
        facts: &'f CallFeatures<'_>,
    ) -> Option<ActingChanges<'f>> {
        if !facts.call.annotations().may_write() {
            return None;
        }
        let changes = ActingChanges {
            entries: self.changed_acting_files(facts),
            unread: acting_files::find_unread_write(facts),
        };
        let is_any = !changes.entries.is_empty() || changes.unread.is_some();
        is_any.then_some(changes)
    }

    /// Returns the entries of the list of files that act later which the call may change, except
    /// files that a rule allows by their very path.
    fn changed_acting_files(&self, facts: &CallFeatures<'_>) -> BTreeSet<&'static str> {
        let only_reads = acting_files::only_reads(facts);
        let commands = if only_reads {
            &[]
        } else {
            facts.command_places()
        };
        let hinted = facts.hinted_places_without_contents();
        let places = { facts.places.iter() }.chain(hinted.iter()).chain(commands);
        let entry = |place: &ResolvedPath| {
            acting_files::acting_entry(place).filter(|_| !self.names_exactly(place, facts))
        };
        let mut entries: BTreeSet<&'static str> = places.filter_map(entry).collect();
        let plain = acting_files::plainly_named_entries(facts);
        let plain = plain.filter(|(_, place)| !self.names_exactly(place, facts));
        entries.extend(plain.map(|(entry, _)| entry));
        if !only_reads && { facts.glob_texts() }.any(acting_files::expands_to_acting_file) {
            entries.insert("a file that a wildcard may expand to");
        }
        if git_config::may_write_acting_config(facts) {
            entries.insert("a setting of git that runs a program or loads more settings");
        }
        if installing_commands::may_install(facts) {
            entries.insert("a hook, or a setting that runs a program");
        }
        entries
    }

    /// Checks whether a rule allows the call and names the place without wildcards.
    fn names_exactly(&self, place: &ResolvedPath, facts: &CallFeatures<'_>) -> bool {
        self.rules.iter().any(|rule| {
            let is_named = |named: &StrictPathPatterns| place.is_within(named);
            rule.effect == PolicyEffect::Allow
                && rule.named_paths.as_ref().is_some_and(is_named)
                && rule.certainly_matches(facts)
        })
    }
}
