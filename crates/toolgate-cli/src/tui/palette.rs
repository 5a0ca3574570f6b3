//! The command palette: every command by its name, found by a few of its letters.

use super::keys::{self, Action, BINDINGS};

/// A command that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// What it does.
    pub(crate) action: Action,
    /// What it is called.
    pub(crate) name: &'static str,
    /// Its keys.
    pub(crate) keys: String,
}

/// The commands whose names have the letters of `filter` in this order, best first.
pub(crate) fn commands(filter: &str) -> Vec<Command> {
    let mut found: Vec<(usize, Command)> = Vec::new();
    for binding in BINDINGS.iter().filter(|binding| is_command(binding.action)) {
        if found
            .iter()
            .any(|(_, known)| known.action == binding.action)
        {
            continue;
        }
        let name = name(binding.action);
        if let Some(distance) = distance(filter, name) {
            found.push((
                distance,
                Command {
                    action: binding.action,
                    name,
                    keys: keys::labels(binding),
                },
            ));
        }
    }
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().map(|(_, command)| command).collect()
}

/// Whether it makes sense as a command by itself. Moving a cursor does not.
fn is_command(action: Action) -> bool {
    !matches!(
        action,
        Action::Up
            | Action::Down
            | Action::PageUp
            | Action::PageDown
            | Action::Back
            | Action::NewLine
            | Action::Earlier
            | Action::Later
            | Action::Palette
            | Action::QuitIfEmpty
            | Action::NextPanel
            | Action::PreviousPanel
    )
}

fn name(action: Action) -> &'static str {
    match action {
        Action::Send => "Send the message",
        Action::Interrupt => "Stop the run",
        Action::Quit => "Quit",
        Action::GoOn => "Go on with a stopped run",
        Action::NextAgent => "Next agent",
        Action::PreviousAgent => "Previous agent",
        Action::Top => "Go to the beginning",
        Action::End => "Go to the end",
        Action::PreviousCall => "Select the call before",
        Action::NextCall => "Select the next call",
        Action::Open => "Show everything about the call",
        Action::Approve => "Approve the call",
        Action::Deny => "Deny the call",
        Action::Edit => "Edit the arguments of the call",
        Action::Always => "Always approve calls like this",
        Action::Explain => "Explain why the call is asked about",
        Action::Search => "Search the conversation",
        Action::NextMatch => "Next match",
        Action::PreviousMatch => "Previous match",
        Action::Help => "Help",
        Action::Copy => "Copy the last reply",
        Action::Save => "Save the conversation to a file",
        Action::Thinking => "Show or hide thinking",
        Action::Dismiss => "Dismiss messages",
        Action::NewLine
        | Action::Earlier
        | Action::Later
        | Action::QuitIfEmpty
        | Action::NextPanel
        | Action::PreviousPanel
        | Action::Back
        | Action::Up
        | Action::Down
        | Action::PageUp
        | Action::PageDown
        | Action::Palette => "",
    }
}

/// How far apart the letters of `filter` are in `name`; nothing if they are not all there in this order.
fn distance(filter: &str, name: &str) -> Option<usize> {
    let mut letters = name.chars().flat_map(char::to_lowercase).enumerate();
    let (mut sum, mut last) = (0, None);
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
        assert_eq!(commands("copy")[0].action, Action::Copy);
        assert_eq!(commands("nxag")[0].action, Action::NextAgent);
        assert_eq!(commands("always")[0].action, Action::Always);
        assert!(commands("zzz").is_empty());
    }

    #[test]
    fn every_command_has_a_name_and_is_listed_once() {
        let all = commands("");
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
