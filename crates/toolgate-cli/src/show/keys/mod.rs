//! The key bindings of `chat`, and of approval requests also in `run`. The help, the command palette
//! and the reference page are all generated from one table.

mod answers;
mod bindings;
mod reference;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

pub(crate) use answers::offered_answers;
pub use bindings::BINDINGS;
pub use reference::render_reference;

/// A command of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyAction {
    /// Send the message.
    Send,
    /// Begin a new line.
    NewLine,
    /// An earlier message.
    Earlier,
    /// A later message.
    Later,
    /// Stop the run; a second time quits.
    Interrupt,
    /// Quit, if the message is empty.
    QuitIfEmpty,
    /// Quit.
    Quit,
    /// Resume a stopped run.
    Resume,
    /// To the next panel.
    NextPanel,
    /// To the previous panel.
    PreviousPanel,
    /// Back to the message.
    Back,
    /// The next agent's conversation.
    NextAgent,
    /// The previous agent's conversation.
    PreviousAgent,
    /// One line or entry up.
    Up,
    /// One line or entry down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the beginning.
    Top,
    /// To the end, and follow it.
    End,
    /// The previous call.
    PreviousCall,
    /// The next call.
    NextCall,
    /// Everything about a call.
    Open,
    /// Approve the call.
    Approve,
    /// Approve the call, although the request was not shown in full.
    ApproveUnseen,
    /// Deny the call, with a reason.
    Deny,
    /// Change its arguments in an editor, then approve.
    Edit,
    /// Approve all pending requests, after they were shown.
    ApproveAll,
    /// Approve it and every call like it.
    Always,
    /// Explain why approval is needed.
    Explain,
    /// Search the conversation.
    Search,
    /// Search all sessions.
    SearchSessions,
    /// The next match.
    NextMatch,
    /// The previous match.
    PreviousMatch,
    /// The command palette.
    Palette,
    /// The help.
    Help,
    /// Copy the last reply.
    Copy,
    /// Write the conversation to a file.
    Save,
    /// Show or hide the models' reasoning.
    Thinking,
    /// Dismiss the toasts.
    Dismiss,
    /// Run the action of the newest toast that has one.
    ToastAction,
    /// Cancel one running call.
    CancelCall,
    /// Go to the approval request with the number of the key.
    Choose,
    /// Leave the approval request pending.
    Postpone,
    /// Suspend the program.
    Suspend,
}

/// The place in which a key has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyContext {
    /// Everywhere.
    Anywhere,
    /// In the message.
    Message,
    /// In the message while it is empty.
    EmptyMessage,
    /// In the conversation.
    Conversation,
    /// In the list of agents.
    Agents,
    /// In the pending approvals.
    Approvals,
    /// In a window over everything else.
    Window,
}

impl KeyContext {
    /// All places, in the order of the help.
    pub const ALL: [Self; 7] = [
        Self::Anywhere,
        Self::Message,
        Self::EmptyMessage,
        Self::Approvals,
        Self::Conversation,
        Self::Agents,
        Self::Window,
    ];

    /// Returns its title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Anywhere => "Everywhere",
            Self::Message => "Message",
            Self::EmptyMessage => "Empty message",
            Self::Conversation => "Conversation",
            Self::Agents => "Agents",
            Self::Approvals => "Approvals",
            Self::Window => "Windows",
        }
    }
}

/// A key with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCombo(KeyCode, KeyModifiers);

const fn plain_key(code: KeyCode) -> KeyCombo {
    KeyCombo(code, KeyModifiers::NONE)
}

const fn plain_char(c: char) -> KeyCombo {
    plain_key(KeyCode::Char(c))
}

const fn ctrl_char(c: char) -> KeyCombo {
    KeyCombo(KeyCode::Char(c), KeyModifiers::CONTROL)
}

const fn alt_key(code: KeyCode) -> KeyCombo {
    KeyCombo(code, KeyModifiers::ALT)
}

impl KeyCombo {
    /// Returns its label.
    pub fn label(self) -> String {
        let name = match self.0 {
            KeyCode::Char(c) if self.1.is_empty() => c.to_string(),
            KeyCode::Char(c) => c.to_ascii_uppercase().to_string(),
            KeyCode::F(number) => format!("F{number}"),
            KeyCode::PageUp => "PgUp".to_owned(),
            KeyCode::PageDown => "PgDn".to_owned(),
            KeyCode::BackTab => "Shift-Tab".to_owned(),
            other => format!("{other:?}"),
        };
        match self.1 {
            KeyModifiers::CONTROL => format!("Ctrl-{name}"),
            KeyModifiers::ALT => format!("Alt-{name}"),
            _ => name,
        }
    }

    fn matches_event(self, pressed: KeyEvent) -> bool {
        // Terminals disagree about whether a capital letter comes with the shift key.
        let held = pressed.modifiers.difference(KeyModifiers::SHIFT);
        self.0 == pressed.code && self.1 == held
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct KeyBinding {
    /// The place.
    pub place: KeyContext,
    /// The keys, any of them.
    pub keys: &'static [KeyCombo],
    /// The action.
    pub action: KeyAction,
    /// The description.
    pub does: &'static str,
    /// A word or two for a line of keys; empty if it is in none.
    pub label: &'static str,
}

impl KeyBinding {
    /// Returns the labels of its keys.
    pub fn key_labels(&self) -> Vec<String> {
        match self.action {
            KeyAction::Choose => vec!["1-9".to_owned()],
            _ => self.keys.iter().map(|key| key.label()).collect(),
        }
    }

    /// Returns the labels of its keys in one text.
    pub fn label_list(&self) -> String {
        self.key_labels().join(", ")
    }
}

/// Returns the action of a key in a place.
pub fn find_action(place: KeyContext, pressed: KeyEvent) -> Option<KeyAction> {
    let bound = |place| {
        BINDINGS
            .iter()
            .find(|b| b.place == place && b.keys.iter().any(|key| key.matches_event(pressed)))
    };
    // The place wins over bindings that hold everywhere.
    let wider = match place {
        KeyContext::EmptyMessage => bound(KeyContext::Message),
        _ => None,
    };
    bound(place)
        .or(wider)
        .or_else(|| bound(KeyContext::Anywhere))
        .map(|binding| binding.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_in_one_place() {
        for (number, one) in BINDINGS.iter().enumerate() {
            for other in BINDINGS[number + 1..]
                .iter()
                .filter(|other| other.place == one.place)
            {
                let shared = one.keys.iter().find(|key| other.keys.contains(key));
                assert!(
                    shared.is_none(),
                    "{shared:?} in {:?}: {} and {}",
                    one.place,
                    one.does,
                    other.does
                );
            }
        }
    }

    #[test]
    fn letters_that_people_write_are_never_commands_in_a_message() {
        let typed = |binding: &KeyBinding| {
            let here = matches!(binding.place, KeyContext::Message | KeyContext::Anywhere);
            here && binding
                .keys
                .iter()
                .any(|key| matches!(key, KeyCombo(KeyCode::Char(_), KeyModifiers::NONE)))
        };
        assert_eq!(BINDINGS.iter().filter(|binding| typed(binding)).count(), 0);
    }

    #[test]
    fn the_place_counts_before_everywhere() {
        let up = KeyEvent::new(KeyCode::Char('n'), KeyModifiers::NONE);
        assert_eq!(
            find_action(KeyContext::Approvals, up),
            Some(KeyAction::Deny)
        );
        assert_eq!(
            find_action(KeyContext::Conversation, up),
            Some(KeyAction::NextMatch)
        );
        assert_eq!(find_action(KeyContext::Message, up), None);
        let held = KeyEvent::new(KeyCode::Char('N'), KeyModifiers::SHIFT);
        assert_eq!(
            find_action(KeyContext::Conversation, held),
            Some(KeyAction::PreviousMatch)
        );
    }
}
