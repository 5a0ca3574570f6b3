//! The key bindings. The help, the command palette and the reference page are all generated from
//! this one table.

use std::fmt::Write;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

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
    /// Approve it and every call like it.
    Always,
    /// Explain why approval is needed.
    Explain,
    /// Search the conversation.
    Search,
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
}

/// The place in which a key has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyContext {
    /// Everywhere.
    Anywhere,
    /// In the message.
    Message,
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
    pub const ALL: [Self; 6] = [
        Self::Anywhere,
        Self::Message,
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
}

const fn bind_keys(
    place: KeyContext,
    keys: &'static [KeyCombo],
    action: KeyAction,
    does: &'static str,
) -> KeyBinding {
    KeyBinding {
        place,
        keys,
        action,
        does,
    }
}

/// The table of key bindings.
pub const BINDINGS: &[KeyBinding] = &[
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('c')],
        KeyAction::Interrupt,
        "stop the run (it is saved); again to quit",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('q')],
        KeyAction::Quit,
        "quit",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('p')],
        KeyAction::Palette,
        "all commands",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::F(1))],
        KeyAction::Help,
        "this help",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::Tab)],
        KeyAction::NextPanel,
        "next panel; approvals first",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::BackTab)],
        KeyAction::PreviousPanel,
        "previous panel",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::Esc)],
        KeyAction::Back,
        "close, or back to the message",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('n')],
        KeyAction::NextAgent,
        "next agent",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('b')],
        KeyAction::PreviousAgent,
        "previous agent",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::PageUp)],
        KeyAction::PageUp,
        "a page up",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[plain_key(KeyCode::PageDown)],
        KeyAction::PageDown,
        "a page down",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('f')],
        KeyAction::Search,
        "search",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('r')],
        KeyAction::Resume,
        "resume a stopped run",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('y')],
        KeyAction::Copy,
        "copy the last reply",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('s')],
        KeyAction::Save,
        "write the conversation to a file",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('t')],
        KeyAction::Thinking,
        "show or hide thinking",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('x')],
        KeyAction::Dismiss,
        "dismiss messages",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('o')],
        KeyAction::ToastAction,
        "do what the newest message offers",
    ),
    bind_keys(
        KeyContext::Anywhere,
        &[ctrl_char('k')],
        KeyAction::CancelCall,
        "cancel the selected call, or the oldest running one",
    ),
    bind_keys(
        KeyContext::Message,
        &[plain_key(KeyCode::Enter)],
        KeyAction::Send,
        "send; also while the model works",
    ),
    bind_keys(
        KeyContext::Message,
        // Few terminals tell Shift-Enter from Enter; Ctrl-J is a line feed in all of them.
        &[alt_key(KeyCode::Enter), ctrl_char('j')],
        KeyAction::NewLine,
        "new line",
    ),
    bind_keys(
        KeyContext::Message,
        &[plain_key(KeyCode::Up)],
        KeyAction::Earlier,
        "line up, or an earlier message",
    ),
    bind_keys(
        KeyContext::Message,
        &[plain_key(KeyCode::Down)],
        KeyAction::Later,
        "line down, or a later message",
    ),
    bind_keys(
        KeyContext::Message,
        &[ctrl_char('d')],
        KeyAction::QuitIfEmpty,
        "quit, if the message is empty",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_char('y')],
        KeyAction::Approve,
        "approve",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_char('U')],
        KeyAction::ApproveUnseen,
        "approve, although it was not shown in full",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_char('n')],
        KeyAction::Deny,
        "deny, with a reason",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_char('e')],
        KeyAction::Edit,
        "change the arguments in $EDITOR, then approve",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_char('a')],
        KeyAction::Always,
        "approve this and every call like it",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_char('?')],
        KeyAction::Explain,
        "explain what each layer decides",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_key(KeyCode::Up), plain_char('k')],
        KeyAction::Up,
        "previous call",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_key(KeyCode::Down), plain_char('j')],
        KeyAction::Down,
        "next call",
    ),
    bind_keys(
        KeyContext::Approvals,
        &[plain_key(KeyCode::Enter)],
        KeyAction::Open,
        "everything about the call",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::Up), plain_char('k')],
        KeyAction::Up,
        "line up",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::Down), plain_char('j')],
        KeyAction::Down,
        "line down",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::Home), plain_char('g')],
        KeyAction::Top,
        "to the beginning",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::End), plain_char('G')],
        KeyAction::End,
        "to the end, and follow it",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('[')],
        KeyAction::PreviousCall,
        "previous call",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char(']')],
        KeyAction::NextCall,
        "next call",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_key(KeyCode::Enter)],
        KeyAction::Open,
        "everything about the call",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('/')],
        KeyAction::Search,
        "search",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('n')],
        KeyAction::NextMatch,
        "next match",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('N')],
        KeyAction::PreviousMatch,
        "previous match",
    ),
    bind_keys(
        KeyContext::Conversation,
        &[plain_char('?')],
        KeyAction::Help,
        "this help",
    ),
    bind_keys(
        KeyContext::Agents,
        &[plain_key(KeyCode::Up), plain_char('k')],
        KeyAction::PreviousAgent,
        "previous agent",
    ),
    bind_keys(
        KeyContext::Agents,
        &[plain_key(KeyCode::Down), plain_char('j')],
        KeyAction::NextAgent,
        "next agent",
    ),
    bind_keys(
        KeyContext::Agents,
        &[plain_char('?')],
        KeyAction::Help,
        "this help",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_key(KeyCode::Up), plain_char('k')],
        KeyAction::Up,
        "line up",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_key(KeyCode::Down), plain_char('j')],
        KeyAction::Down,
        "line down",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_key(KeyCode::Home), plain_char('g')],
        KeyAction::Top,
        "to the beginning",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_key(KeyCode::End), plain_char('G')],
        KeyAction::End,
        "to the end",
    ),
    bind_keys(
        KeyContext::Window,
        &[plain_char('q')],
        KeyAction::Back,
        "close",
    ),
];

/// Returns the action of a key in a place.
pub fn find_action(place: KeyContext, pressed: KeyEvent) -> Option<KeyAction> {
    let bound = |place| {
        BINDINGS
            .iter()
            .find(|b| b.place == place && b.keys.iter().any(|key| key.matches_event(pressed)))
    };
    // The place wins over bindings that hold everywhere.
    bound(place)
        .or_else(|| bound(KeyContext::Anywhere))
        .map(|binding| binding.action)
}

/// Returns the labels of a binding's keys.
pub fn key_labels(binding: &KeyBinding) -> String {
    binding
        .keys
        .iter()
        .map(|key| key.label())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Renders the reference page of the keys.
pub fn render_reference() -> String {
    let mut page =
        "# Keys of `toolgate chat`\n\nGenerated from the table of keys by `cargo xtask generate`. F1 shows the \
                    same on the screen; Ctrl-P finds a command by its name.\n"
            .to_owned();
    for place in KeyContext::ALL {
        let _ = write!(
            page,
            "\n## {}\n\n| Keys | Action |\n|---|---|\n",
            place.title()
        );
        for binding in BINDINGS.iter().filter(|binding| binding.place == place) {
            let keys = binding
                .keys
                .iter()
                .map(|key| format!("`{}`", key.label()))
                .collect::<Vec<_>>()
                .join(", ");
            let _ = writeln!(page, "| {keys} | {} |", binding.does);
        }
    }
    page
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
