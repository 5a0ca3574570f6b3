//! The lines of the prompt, at the bottom of the screen.

use anstyle::Style;
use toolgate::approval::ApprovalRequest;

use super::{ApprovalPrompt, PromptStep, request_key};
use crate::{
    env::style::{DIM, WARN},
    show::{entitlement::Entitlement, render::StyledLine},
};

/// The style of a key. Without a colour: bold yellow cannot be read on a light background.
const KEY: Style = Style::new().bold();

/// The most requests that are listed at once.
const MAX_LISTED: usize = 9;

impl ApprovalPrompt {
    /// Returns the lines at the bottom of the screen, in rows of at most `width` columns.
    pub(crate) fn render_lines(&self, width: usize) -> Vec<StyledLine> {
        let Some(request) = self.current() else {
            return Vec::new();
        };
        match &self.mode {
            PromptStep::Choosing => self.render_choice(request, width),
            PromptStep::Reason(reason) => {
                let line = StyledLine::styled("Why not? ", KEY)
                    .with(reason, Style::new())
                    .with("▏", DIM);
                let keys = [("Enter", "deny; the reason is optional"), ("Esc", "back")];
                [
                    line.wrap(width, &StyledLine::plain("  ")),
                    key_lines(keys, width),
                ]
                .concat()
            }
            PromptStep::Edited(_) => ask(
                "Run it with these arguments?",
                [("y", "approve"), ("e", "edit again"), ("n", "back")],
                width,
            ),
            PromptStep::Rule(proposal) => ask(&proposal.title(), proposal.keys(), width),
            PromptStep::All(requests) => ask(
                &format!("Approve all {} requests above?", requests.len()),
                [("y", "approve all"), ("n", "back")],
                width,
            ),
        }
    }

    /// Returns the question with the keys; if several requests are pending, with a list of them.
    fn render_choice(&self, request: &ApprovalRequest, width: usize) -> Vec<StyledLine> {
        let count = self.questions.len();
        let asked = if count > 1 {
            format!("{count} requests are pending. Run the marked one?")
        } else {
            format!("Run {}?", request.tool)
        };
        let mut lines = StyledLine::styled(&asked, KEY).wrap(width, &StyledLine::new());
        if count > 1 {
            lines.extend(self.render_list(width));
        }
        let may = Entitlement::of(request, &self.me);
        if let Some(notice) = may.notice() {
            let notice = StyledLine::styled("! ", WARN).with(&notice, Style::new());
            lines.extend(notice.wrap(width, &StyledLine::plain("  ")));
        }
        let keys: Vec<(String, &str)> = self
            .offered_keys(request)
            .map(|binding| (binding.label_list(), binding.label))
            .collect();
        let keys = keys.iter().map(|(key, label)| (key.as_str(), *label));
        lines.extend(key_lines(keys, width));
        lines
    }

    /// Lists the requests around the current one.
    fn render_list(&self, width: usize) -> Vec<StyledLine> {
        let count = self.questions.len();
        let first = (self.at + 1).saturating_sub(MAX_LISTED);
        let listed = self
            .questions
            .iter()
            .enumerate()
            .skip(first)
            .take(MAX_LISTED);
        let mut lines: Vec<StyledLine> = listed
            .map(|(at, request)| self.render_listed(at, request).clip(width))
            .collect();
        if count > MAX_LISTED {
            let more = format!("  … and {} more", count - MAX_LISTED);
            lines.push(StyledLine::styled(&more, DIM));
        }
        lines
    }

    fn render_listed(&self, at: usize, request: &ApprovalRequest) -> StyledLine {
        let here = at == self.at;
        let style = if here { KEY } else { DIM };
        let given = self.summaries.get(&request_key(request));
        let given = given.map(String::as_str).unwrap_or_default();
        StyledLine::styled(if here { "▸ " } else { "  " }, KEY)
            .with(&format!("{} ", at + 1), KEY)
            .with(&format!("{} {given}", request.tool), style)
    }
}

/// Returns a question and its keys.
fn ask<'a>(
    question: &str,
    keys: impl IntoIterator<Item = (&'a str, &'a str)>,
    width: usize,
) -> Vec<StyledLine> {
    let mut lines = StyledLine::styled(question, KEY).wrap(width, &StyledLine::new());
    lines.extend(key_lines(keys, width));
    lines
}

/// Returns keys and what they do, in as many rows as they need: each of them is visible, however
/// narrow the terminal is.
pub(in crate::show::live) fn key_lines<'a>(
    keys: impl IntoIterator<Item = (&'a str, &'a str)>,
    width: usize,
) -> Vec<StyledLine> {
    let mut rows: Vec<StyledLine> = Vec::new();
    for (key, means) in keys {
        let entry = StyledLine::styled(key, KEY).with(&format!(" {means}"), Style::new());
        match rows.last_mut() {
            Some(row) if row.width() + 2 + entry.width() <= width => {
                row.push("  ", Style::new());
                row.extend(entry);
            }
            _ => rows.push(entry),
        }
    }
    rows
}
