//! The command palette: every command by its name, found by some of its letters.

use crate::show::keys::{BINDINGS, KeyAction};

/// A command that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PaletteCommand {
    /// The action.
    pub(crate) action: KeyAction,
    /// The name.
    pub(crate) name: &'static str,
    /// The labels of its keys.
    pub(crate) keys: String,
}

/// Returns the commands whose names contain the letters of `filter` in this order, best match
/// first.
pub(crate) fn find_commands(filter: &str) -> Vec<PaletteCommand> {
    let mut found: Vec<(usize, PaletteCommand)> = Vec::new();
    for binding in BINDINGS.iter().filter(|binding| is_command(binding.action)) {
        if found
            .iter()
            .any(|(_, known)| known.action == binding.action)
        {
            continue;
        }
        let name = command_name(binding.action);
        if let Some(distance) = match_distance(filter, name) {
            found.push((
                distance,
                PaletteCommand {
                    action: binding.action,
                    name,
                    keys: binding.label_list(),
                },
            ));
        }
    }
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().map(|(_, command)| command).collect()
}

/// Checks whether an action is a command by itself. Moving a cursor is not.
fn is_command(action: KeyAction) -> bool {
    !matches!(
        action,
        KeyAction::Up
            | KeyAction::Down
            | KeyAction::PageUp
            | KeyAction::PageDown
            | KeyAction::Back
            | KeyAction::NewLine
            | KeyAction::Earlier
            | KeyAction::Later
            | KeyAction::Palette
            | KeyAction::QuitIfEmpty
            | KeyAction::NextPanel
            | KeyAction::PreviousPanel
            | KeyAction::Choose
            | KeyAction::Postpone
    )
}

fn command_name(action: KeyAction) -> &'static str {
    match action {
        KeyAction::Send => "Send the message",
        KeyAction::Interrupt => "Stop the run",
        KeyAction::Quit => "Quit",
        KeyAction::Resume => "Resume a stopped run",
        KeyAction::NextAgent => "Next agent",
        KeyAction::PreviousAgent => "Previous agent",
        KeyAction::Top => "Go to the beginning",
        KeyAction::End => "Go to the end",
        KeyAction::PreviousCall => "Select the previous call",
        KeyAction::NextCall => "Select the next call",
        KeyAction::Open => "Show everything about the call",
        KeyAction::Approve => "Approve the call",
        KeyAction::ApproveUnseen => "Approve the call, although it was not shown in full",
        KeyAction::Deny => "Deny the call",
        KeyAction::ApproveAll => "Approve all pending calls",
        KeyAction::Edit => "Edit the arguments of the call",
        KeyAction::Always => "Always approve calls like this",
        KeyAction::Explain => "Explain why approval is needed",
        KeyAction::Search => "Search the conversation",
        KeyAction::SearchSessions => "Search all sessions",
        KeyAction::NextMatch => "Next match",
        KeyAction::PreviousMatch => "Previous match",
        KeyAction::Help => "Help",
        KeyAction::Copy => "Copy the last reply",
        KeyAction::Save => "Save the conversation to a file",
        KeyAction::Thinking => "Show or hide thinking",
        KeyAction::Dismiss => "Dismiss messages",
        KeyAction::ToastAction => "Do what the newest message offers",
        KeyAction::CancelCall => "Cancel a running call",
        KeyAction::Suspend => "Suspend the program",
        KeyAction::Choose
        | KeyAction::Postpone
        | KeyAction::NewLine
        | KeyAction::Earlier
        | KeyAction::Later
        | KeyAction::QuitIfEmpty
        | KeyAction::NextPanel
        | KeyAction::PreviousPanel
        | KeyAction::Back
        | KeyAction::Up
        | KeyAction::Down
        | KeyAction::PageUp
        | KeyAction::PageDown
        | KeyAction::Palette => "",
    }
}

/// Returns how far apart the letters of `filter` are in `name`; `None` if they do not all occur in
/// this order.
fn match_distance(filter: &str, name: &str) -> Option<usize> {
    let mut letters = name.chars().flat_map(char::to_lowercase).enumerate();
    let mut sum = 0;
    let mut last = None;
    for wanted in filter
        .chars()
        .filter(|c| !c.is_whitespace())
        .flat_map(char::to_lowercase)
    {
        let (place, _) = letters.find(|(_, letter)| *letter == wanted)?;
        sum += last.map_or(place, |last: usize| (place - last - 1) * 2);
        last = Some(place);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_letters_in_order_find_a_command_and_close_ones_come_first() {
        assert_eq!(find_commands("copy")[0].action, KeyAction::Copy);
        assert_eq!(find_commands("nxag")[0].action, KeyAction::NextAgent);
        assert_eq!(find_commands("always")[0].action, KeyAction::Always);
        assert!(find_commands("zzz").is_empty());
    }

    #[test]
    fn every_command_has_a_name_and_is_listed_once() {
        let all = find_commands("");
        assert!(all.iter().all(|command| !command.name.is_empty()));
        for (number, command) in all.iter().enumerate() {
            assert!(
                all[number + 1..]
                    .iter()
                    .all(|other| other.action != command.action),
                "{command:?}"
            );
        }
    }
}
