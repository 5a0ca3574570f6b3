//! What was written: messages, commands, and the files and sessions that they name.

use toolgate::archive::ExportFormat;

use super::{
    super::{
        ChatApp, SessionChange, SessionChoice, UiEffect,
        app::OverlayWindow,
        slash::{self, SlashAction, WrittenText},
    },
    hits, show_info,
};
use crate::show::screen::ConversationItem;

/// Sends the draft to the model, or runs the command that it is.
pub(super) fn send_draft(app: &mut ChatApp) -> Vec<UiEffect> {
    if app.input.is_blank() {
        app.input.take_draft();
        return Vec::new();
    }
    app.completion = None;
    match WrittenText::parse(&app.input.text()) {
        WrittenText::Message(text) => {
            app.input.take_draft();
            app.input.remember(&slash::to_draft(&text));
            // After a message the user wants to see the reply.
            app.agent = 0;
            app.transcripts[0].follow_end();
            vec![UiEffect::Say(text)]
        }
        WrittenText::Command(action, argument) => {
            let draft = app.input.take_draft();
            app.input.remember(draft.trim());
            run_command(app, action, argument)
        }
        // The draft stays, so that it can be corrected.
        WrittenText::Mistake(why) => show_info(why),
    }
}

fn run_command(app: &mut ChatApp, action: SlashAction, argument: String) -> Vec<UiEffect> {
    match action {
        SlashAction::Help => app.window = Some(OverlayWindow::Help { scroll: 0 }),
        SlashAction::Quit => return vec![UiEffect::Quit],
        SlashAction::Export => return export_conversation(app, &argument),
        SlashAction::Resume => return vec![UiEffect::ListSessions],
        SlashAction::Search => return hits::open_search(app, argument),
        SlashAction::Rename if argument.is_empty() => {
            return show_info("write the title after /rename");
        }
        SlashAction::Rename => return vec![UiEffect::Rename(argument)],
        SlashAction::Import if argument.is_empty() => {
            return show_info("write the path of the file after /import");
        }
        SlashAction::Import => return vec![UiEffect::Import(argument)],
        SlashAction::Memory => return vec![UiEffect::Memory(argument)],
        SlashAction::Clear => return change_session(app, SessionChange::Begin),
        SlashAction::Model if argument.is_empty() => {
            return show_info(format!(
                "the model is {}; /model provider:name uses another one",
                app.setup.model
            ));
        }
        SlashAction::Model => return change_session(app, SessionChange::UseModel(argument)),
    }
    Vec::new()
}

/// Continues with another session or model, unless a run would be cut off.
pub(super) fn change_session(app: &ChatApp, change: SessionChange) -> Vec<UiEffect> {
    if app.at_work {
        return show_info("a run is in progress: Ctrl-C stops it, then try again");
    }
    vec![UiEffect::Change(change)]
}

/// Shows the sessions to choose from.
pub(super) fn choose_session(
    app: &mut ChatApp,
    listed: Result<Vec<SessionChoice>, String>,
) -> Vec<UiEffect> {
    match listed {
        Ok(choices) if choices.is_empty() => show_info("there is no other session here yet"),
        Ok(choices) => {
            app.window = Some(OverlayWindow::Sessions {
                choices,
                filter: String::new(),
                selected: 0,
            });
            Vec::new()
        }
        Err(problem) => super::show_error(problem),
    }
}

/// Returns the sessions that fit a filter.
pub(crate) fn filter_sessions<'a>(
    choices: &'a [SessionChoice],
    filter: &str,
) -> Vec<&'a SessionChoice> {
    let wanted = filter.trim().to_lowercase();
    let fits = |choice: &&SessionChoice| {
        choice.about.to_lowercase().contains(&wanted)
            || choice.session.to_string().contains(&wanted)
    };
    choices.iter().filter(fits).collect()
}

/// Opens the session that was chosen.
pub(super) fn open_chosen(
    app: &mut ChatApp,
    choices: &[SessionChoice],
    filter: &str,
    selected: usize,
) -> Vec<UiEffect> {
    let found = filter_sessions(choices, filter);
    match found.get(selected.min(found.len().saturating_sub(1))) {
        Some(choice) => change_session(app, SessionChange::Resume(choice.session)),
        None => {
            app.window = Some(OverlayWindow::Sessions {
                choices: choices.to_vec(),
                filter: filter.to_owned(),
                selected,
            });
            Vec::new()
        }
    }
}

pub(super) fn copy_reply(app: &ChatApp) -> Vec<UiEffect> {
    let items = app
        .focused_agent()
        .map(|agent| agent.items.as_slice())
        .unwrap_or_default();
    let last = items.iter().rev().find_map(|item| match item {
        ConversationItem::Model(text) => Some(text.clone()),
        _ => None,
    });
    last.map_or_else(
        || show_info("there is no reply to copy yet"),
        |text| vec![UiEffect::Copy(text)],
    )
}

/// Saves the conversation as Markdown.
pub(super) fn save_conversation(app: &ChatApp) -> Vec<UiEffect> {
    export_conversation(app, ExportFormat::Markdown.as_str())
}

/// Exports the session with its agents, redacted, in the named format.
fn export_conversation(app: &ChatApp, format: &str) -> Vec<UiEffect> {
    let format = match format {
        "" => Ok(ExportFormat::Markdown),
        word => word.parse::<ExportFormat>(),
    };
    match format {
        Ok(_)
            if app
                .focused_agent()
                .is_none_or(|agent| agent.items.is_empty()) =>
        {
            show_info("there is nothing to export yet")
        }
        Ok(format) => vec![UiEffect::Save(format)],
        Err(error) => show_info(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
