//! Features of a call that rules are matched against: the paths, commands and hosts in its
//! arguments.
//!
//! Argument names decide only what may be allowed. For what is forbidden, every short text of a
//! call counts, keys included, because a tool may use an argument of any name in any way.
//!
//! `argument_walk` collects the texts, `call_command` reads commands, `named_places` resolves paths
//! and `named_hosts` finds hosts.

mod argument_walk;
mod call_command;
mod named_hosts;
mod named_places;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, cell::OnceCell};

use toolgate_core::{Call, Resource, ResourceKind};

pub(crate) use self::{
    call_command::CallCommand,
    named_hosts::{CallHosts, CallUrl},
};
use crate::decide::policy::{
    argument_roles::ArgumentRole,
    matching::{
        paths::{PathRoot, ResolvedPath},
        shell::{self, CommandWords, MAX_COMMAND_BYTES},
    },
};

/// The facts that some rule needs; the others are not extracted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FeatureNeeds {
    pub(crate) paths: bool,
    pub(crate) commands: bool,
    pub(crate) urls: bool,
}

/// The facts about one call.
pub(crate) struct CallFeatures<'a> {
    pub(crate) call: &'a Call,
    pub(crate) root: &'a PathRoot,
    /// Number of times the same call was made before.
    pub(crate) earlier: usize,
    pub(crate) places: Vec<ResolvedPath>,
    /// True if there is a path that cannot be resolved.
    pub(crate) lost: bool,
    /// True if every argument that names a path was understood.
    pub(crate) paths_certain: bool,
    pub(crate) commands: Vec<CallCommand>,
    pub(crate) urls: Vec<CallUrl>,
    /// True if every argument that names a URL or a host was understood.
    pub(crate) urls_certain: bool,
    /// Values of arguments with the name of a path.
    named: Vec<(Cow<'a, str>, ArgumentRole)>,
    /// Other short texts and keys that may name a path or a host.
    texts: Vec<&'a str>,
    /// The directories that the call names; relative paths may start from them.
    dirs: Vec<String>,
    /// True if another argument changes what the commands do.
    surrounded: bool,
    /// True if the call names more than is examined.
    pub(crate) crowded: bool,
    /// Number of bytes of commands that may still be read.
    unread_bytes: usize,
    hinted: OnceCell<Vec<ResolvedPath>>,
    hinted_besides_contents: OnceCell<Vec<ResolvedPath>>,
    spoken: OnceCell<Vec<ResolvedPath>>,
    words: OnceCell<Vec<String>>,
    hosts: OnceCell<CallHosts>,
}

/// Maximum length of a text that counts as a possible path or host without a matching name.
const MAX_HINT_BYTES: usize = 512;

/// Maximum number of texts of one kind that are examined: paths, hints, URLs and words of commands.
/// A call with more is never allowed without approval.
const MAX_EXAMINED: usize = 4096;

/// The same for the different words of commands, which are cheaper.
const MAX_COMMAND_WORDS: usize = 4 * MAX_EXAMINED;

const MAX_DIRECTORIES: usize = 16;

impl<'a> CallFeatures<'a> {
    pub(crate) fn extract_from(
        call: &'a Call,
        root: &'a PathRoot,
        needs: FeatureNeeds,
        earlier: usize,
    ) -> Self {
        let mut facts = Self {
            call,
            root,
            earlier,
            places: Vec::new(),
            lost: false,
            paths_certain: true,
            commands: Vec::new(),
            urls: Vec::new(),
            urls_certain: true,
            named: Vec::new(),
            texts: Vec::new(),
            dirs: Vec::new(),
            surrounded: false,
            crowded: false,
            unread_bytes: MAX_COMMAND_BYTES,
            hinted: OnceCell::new(),
            hinted_besides_contents: OnceCell::new(),
            spoken: OnceCell::new(),
            words: OnceCell::new(),
            hosts: OnceCell::new(),
        };
        if needs.paths || needs.commands || needs.urls {
            facts.walk_object(call.arguments.as_map(), needs);
        }
        if needs.paths {
            let named = |it: &&Resource| it.kind == ResourceKind::Path && !it.is_workspace();
            let resources = call.annotations().resources.iter().filter(named);
            for value in resources.filter_map(|it| call.arguments.as_json().pointer(&it.argument)) {
                facts.add_paths(value, ArgumentRole::Path);
            }
        }
        facts.resolve_named_paths();
        facts
    }

    /// Returns the commands that the call runs, if all of them are certain.
    pub(crate) fn certain_runs(&self) -> Option<Vec<&CommandWords>> {
        let runs: Option<Vec<_>> = self
            .commands
            .iter()
            .map(|command| command.runs.as_ref())
            .collect();
        runs.map(|runs| runs.into_iter().flatten().collect())
    }

    /// Returns every word of the commands, however they are quoted.
    pub(crate) fn command_words(&self) -> &[String] {
        self.words.get_or_init(|| {
            let runs = self.commands.iter().flat_map(CallCommand::possible_runs);
            let mut words = shell::unique_words(runs);
            words.truncate(MAX_COMMAND_WORDS);
            words
        })
    }

    /// Checks whether the call names more paths, hosts or commands than are examined.
    pub(crate) fn exceeds_limits(&self) -> bool {
        self.crowded || self.command_words().len() >= MAX_COMMAND_WORDS
    }
}
