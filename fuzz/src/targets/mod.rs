//! The targets, a file each. A new one is a file with a constant `TARGET`, and a line here.

mod canonical_json;
mod cassette;
mod config;
mod edits;
mod events;
mod hosts;
mod importers;
mod ledger;
mod memories;
mod messages;
mod patch;
mod paths;
mod redactor;
mod renderer;
mod schemas;
mod search;
mod shell;
mod shell_words;
mod skills;
mod sse;
mod tokens;

use crate::FuzzTarget;

/// All targets.
pub static TARGETS: &[FuzzTarget] = &[
    shell::TARGET,
    paths::TARGET,
    hosts::TARGET,
    patch::TARGET,
    redactor::TARGET,
    renderer::TARGET,
    canonical_json::TARGET,
    tokens::TARGET,
    config::TARGET,
    sse::TARGET,
    events::TARGET,
    ledger::TARGET,
    skills::TARGET,
    memories::TARGET,
    cassette::TARGET,
    messages::TARGET,
    schemas::TARGET,
    search::embeddings::TARGET,
    importers::archive::TARGET,
    importers::claude::TARGET,
    importers::cline::TARGET,
    importers::codex::TARGET,
    importers::gemini::TARGET,
    importers::markdown::TARGET,
    importers::opencode::TARGET,
    importers::qwen::TARGET,
    search::query::TARGET,
];

#[cfg(test)]
mod tests;
