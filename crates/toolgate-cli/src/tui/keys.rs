//! Which key does what. The help, the command palette and the reference page are all written from this one table.

use std::fmt::Write;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Something that a person can have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Say to the model what is written.
    Send,
    /// Begin a new line.
    NewLine,
    /// What was said before.
    Earlier,
    /// What was said after that.
    Later,
    /// Stop the run; once more quits.
    Interrupt,
    /// Quit, if nothing is written.
    QuitIfEmpty,
    /// Quit.
    Quit,
    /// Go on with a run that was stopped.
    GoOn,
    /// To the next panel.
    NextPanel,
    /// To the panel before.
    PreviousPanel,
    /// Back to where messages are written.
    Back,
    /// The next agent's conversation.
    NextAgent,
    /// The conversation of the agent before.
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
    /// The call before.
    PreviousCall,
    /// The next call.
    NextCall,
    /// Everything about a call.
    Open,
    /// Approve the call.
    Approve,
    /// Deny the call, with a reason.
    Deny,
    /// Change its arguments in an editor, then approve.
    Edit,
    /// Approve it and every call like it.
    Always,
    /// Say why it is asked about.
    Explain,
    /// Look for words.
    Search,
    /// The next place where they are.
    NextMatch,
    /// The place before.
    PreviousMatch,
    /// The list of all commands.
    Palette,
    /// The help.
    Help,
    /// Copy the last reply.
    Copy,
    /// Write the conversation to a file.
    Save,
    /// Show or hide what models think.
    Thinking,
    /// Take the messages off the screen.
    Dismiss,
}

/// Where a key counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Everywhere.
    Anywhere,
    /// Where messages are written.
    Message,
    /// In the conversation.
    Conversation,
    /// In the list of agents.
    Agents,
    /// Among the calls that wait for a decision.
    Approvals,
    /// In a window over everything else.
    Window,
}

impl Place {
    /// All places, as the help lists them.
    pub const ALL: [Self; 6] = [
        Self::Anywhere,
        Self::Message,
        Self::Approvals,
        Self::Conversation,
        Self::Agents,
        Self::Window,
    ];

    /// What it is called.
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

/// A key and the keys held with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(KeyCode, KeyModifiers);

const fn key(code: KeyCode) -> Key {
    Key(code, KeyModifiers::NONE)
}

const fn plain(c: char) -> Key {
    key(KeyCode::Char(c))
}

const fn ctrl(c: char) -> Key {
    Key(KeyCode::Char(c), KeyModifiers::CONTROL)
}

const fn alt(code: KeyCode) -> Key {
    Key(code, KeyModifiers::ALT)
}

impl Key {
    /// How it is written.
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

    fn is(self, pressed: KeyEvent) -> bool {
        // Terminals disagree about whether a capital letter comes with the shift key.
        let held = pressed.modifiers.difference(KeyModifiers::SHIFT);
        self.0 == pressed.code && self.1 == held
    }
}

/// A line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// Where it counts.
    pub place: Place,
    /// Any of these keys.
    pub keys: &'static [Key],
    /// What it does.
    pub action: Action,
    /// The same in words.
    pub does: &'static str,
}

const fn bind(place: Place, keys: &'static [Key], action: Action, does: &'static str) -> Binding {
    Binding {
        place,
        keys,
        action,
        does,
    }
}

/// The table.
pub const BINDINGS: &[Binding] = &[
    bind(
        Place::Anywhere,
        &[ctrl('c')],
        Action::Interrupt,
        "stop the run (it is saved); once more quits",
    ),
    bind(Place::Anywhere, &[ctrl('q')], Action::Quit, "quit"),
    bind(
        Place::Anywhere,
        &[ctrl('p')],
        Action::Palette,
        "all commands",
    ),
    bind(
        Place::Anywhere,
        &[key(KeyCode::F(1))],
        Action::Help,
        "this help",
    ),
    bind(
        Place::Anywhere,
        &[key(KeyCode::Tab)],
        Action::NextPanel,
        "next panel; approvals first",
    ),
    bind(
        Place::Anywhere,
        &[key(KeyCode::BackTab)],
        Action::PreviousPanel,
        "panel before",
    ),
    bind(
        Place::Anywhere,
        &[key(KeyCode::Esc)],
        Action::Back,
        "close, or back to the message",
    ),
    bind(
        Place::Anywhere,
        &[ctrl('n')],
        Action::NextAgent,
        "next agent",
    ),
    bind(
        Place::Anywhere,
        &[ctrl('b')],
        Action::PreviousAgent,
        "agent before",
    ),
    bind(
        Place::Anywhere,
        &[key(KeyCode::PageUp)],
        Action::PageUp,
        "a page up",
    ),
    bind(
        Place::Anywhere,
        &[key(KeyCode::PageDown)],
        Action::PageDown,
        "a page down",
    ),
    bind(
        Place::Anywhere,
        &[ctrl('f')],
        Action::Search,
        "look for words",
    ),
    bind(
        Place::Anywhere,
        &[ctrl('r')],
        Action::GoOn,
        "go on with a stopped run",
    ),
    bind(
        Place::Anywhere,
        &[ctrl('y')],
        Action::Copy,
        "copy the last reply",
    ),
    bind(
        Place::Anywhere,
        &[ctrl('s')],
        Action::Save,
        "write the conversation to a file",
    ),
    bind(
        Place::Anywhere,
        &[ctrl('t')],
        Action::Thinking,
        "show or hide what models think",
    ),
    bind(
        Place::Anywhere,
        &[ctrl('x')],
        Action::Dismiss,
        "take the messages off the screen",
    ),
    bind(
        Place::Message,
        &[key(KeyCode::Enter)],
        Action::Send,
        "send; also while the model works",
    ),
    bind(
        Place::Message,
        &[alt(KeyCode::Enter), ctrl('j')],
        Action::NewLine,
        "new line",
    ),
    bind(
        Place::Message,
        &[key(KeyCode::Up)],
        Action::Earlier,
        "line up, or an earlier message",
    ),
    bind(
        Place::Message,
        &[key(KeyCode::Down)],
        Action::Later,
        "line down, or a later message",
    ),
    bind(
        Place::Message,
        &[ctrl('d')],
        Action::QuitIfEmpty,
        "quit, if nothing is written",
    ),
    bind(Place::Approvals, &[plain('y')], Action::Approve, "approve"),
    bind(
        Place::Approvals,
        &[plain('n')],
        Action::Deny,
        "deny, with a reason",
    ),
    bind(
        Place::Approvals,
        &[plain('e')],
        Action::Edit,
        "change the arguments in $EDITOR, then approve",
    ),
    bind(
        Place::Approvals,
        &[plain('a')],
        Action::Always,
        "approve this and every call like it",
    ),
    bind(
        Place::Approvals,
        &[plain('?')],
        Action::Explain,
        "say what each layer makes of it",
    ),
    bind(
        Place::Approvals,
        &[key(KeyCode::Up), plain('k')],
        Action::Up,
        "call before",
    ),
    bind(
        Place::Approvals,
        &[key(KeyCode::Down), plain('j')],
        Action::Down,
        "next call",
    ),
    bind(
        Place::Approvals,
        &[key(KeyCode::Enter)],
        Action::Open,
        "everything about the call",
    ),
    bind(
        Place::Conversation,
        &[key(KeyCode::Up), plain('k')],
        Action::Up,
        "line up",
    ),
    bind(
        Place::Conversation,
        &[key(KeyCode::Down), plain('j')],
        Action::Down,
        "line down",
    ),
    bind(
        Place::Conversation,
        &[key(KeyCode::Home), plain('g')],
        Action::Top,
        "to the beginning",
    ),
    bind(
        Place::Conversation,
        &[key(KeyCode::End), plain('G')],
        Action::End,
        "to the end, and follow it",
    ),
    bind(
        Place::Conversation,
        &[plain('[')],
        Action::PreviousCall,
        "call before",
    ),
    bind(
        Place::Conversation,
        &[plain(']')],
        Action::NextCall,
        "next call",
    ),
    bind(
        Place::Conversation,
        &[key(KeyCode::Enter)],
        Action::Open,
        "everything about the call",
    ),
    bind(
        Place::Conversation,
        &[plain('/')],
        Action::Search,
        "look for words",
    ),
    bind(
        Place::Conversation,
        &[plain('n')],
        Action::NextMatch,
        "next place",
    ),
    bind(
        Place::Conversation,
        &[plain('N')],
        Action::PreviousMatch,
        "place before",
    ),
    bind(
        Place::Conversation,
        &[plain('?')],
        Action::Help,
        "this help",
    ),
    bind(
        Place::Agents,
        &[key(KeyCode::Up), plain('k')],
        Action::PreviousAgent,
        "agent before",
    ),
    bind(
        Place::Agents,
        &[key(KeyCode::Down), plain('j')],
        Action::NextAgent,
        "next agent",
    ),
    bind(Place::Agents, &[plain('?')], Action::Help, "this help"),
    bind(
        Place::Window,
        &[key(KeyCode::Up), plain('k')],
        Action::Up,
        "line up",
    ),
    bind(
        Place::Window,
        &[key(KeyCode::Down), plain('j')],
        Action::Down,
        "line down",
    ),
    bind(
        Place::Window,
        &[key(KeyCode::Home), plain('g')],
        Action::Top,
        "to the beginning",
    ),
    bind(
        Place::Window,
        &[key(KeyCode::End), plain('G')],
        Action::End,
        "to the end",
    ),
    bind(Place::Window, &[plain('q')], Action::Back, "close"),
];

/// What a key does in a place.
pub fn action(place: Place, pressed: KeyEvent) -> Option<Action> {
    let bound = |place| {
        BINDINGS
            .iter()
            .find(|b| b.place == place && b.keys.iter().any(|key| key.is(pressed)))
    };
    bound(place)
        .or_else(|| bound(Place::Anywhere))
        .map(|binding| binding.action)
}

/// How the keys of a line are written.
pub fn labels(binding: &Binding) -> String {
    binding
        .keys
        .iter()
        .map(|key| key.label())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The reference page of the keys.
pub fn reference() -> String {
    let mut page =
        "# Keys of `toolgate chat`\n\nWritten from the table of keys by `cargo xtask generate`. F1 shows the \
                    same on the screen; Ctrl-P finds a command by its name.\n"
            .to_owned();
    for place in Place::ALL {
        let _ = write!(
            page,
            "\n## {}\n\n| Keys | What they do |\n|---|---|\n",
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
        let typed = |binding: &Binding| {
            let here = matches!(binding.place, Place::Message | Place::Anywhere);
            here && binding
                .keys
                .iter()
                .any(|key| matches!(key, Key(KeyCode::Char(_), KeyModifiers::NONE)))
        };
        assert_eq!(BINDINGS.iter().filter(|binding| typed(binding)).count(), 0);
    }

    #[test]
    fn the_place_counts_before_everywhere() {
        let up = KeyEvent::new(KeyCode::Char('n'), KeyModifiers::NONE);
        assert_eq!(action(Place::Approvals, up), Some(Action::Deny));
        assert_eq!(action(Place::Conversation, up), Some(Action::NextMatch));
        assert_eq!(action(Place::Message, up), None);
        let held = KeyEvent::new(KeyCode::Char('N'), KeyModifiers::SHIFT);
        assert_eq!(
            action(Place::Conversation, held),
            Some(Action::PreviousMatch)
        );
    }
}
