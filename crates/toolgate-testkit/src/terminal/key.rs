//! Keys, as terminals send them.

/// A key on the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// A letter with the control key held.
    Ctrl(char),
    /// A character with the alternate key held.
    Alt(char),
    /// Return.
    Enter,
    /// Escape.
    Escape,
    /// Tab.
    Tab,
    /// Tab with shift held.
    BackTab,
    /// Deletes backwards.
    Backspace,
    /// Deletes forwards.
    Delete,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// To the start.
    Home,
    /// To the end.
    End,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// A function key, 1 to 12.
    F(u8),
}

impl Key {
    /// Returns the bytes that a terminal sends for it.
    pub fn sequence(self) -> String {
        let fixed = match self {
            Self::Char(c) => return c.to_string(),
            Self::Ctrl(c) => return char::from((c.to_ascii_uppercase() as u8) & 0x1f).to_string(),
            Self::Alt(c) => return format!("\u{1b}{c}"),
            Self::F(number) => return function_sequence(number),
            // A line feed would be Ctrl-J.
            Self::Enter => "\r",
            Self::Escape => "\u{1b}",
            Self::Tab => "\t",
            Self::BackTab => "\u{1b}[Z",
            Self::Backspace => "\u{7f}",
            Self::Delete => "\u{1b}[3~",
            Self::Up => "\u{1b}[A",
            Self::Down => "\u{1b}[B",
            Self::Right => "\u{1b}[C",
            Self::Left => "\u{1b}[D",
            Self::Home => "\u{1b}[H",
            Self::End => "\u{1b}[F",
            Self::PageUp => "\u{1b}[5~",
            Self::PageDown => "\u{1b}[6~",
        };
        fixed.to_owned()
    }
}

fn function_sequence(number: u8) -> String {
    match number {
        1..=4 => format!("\u{1b}O{}", char::from(b'O' + number)),
        // The numbers have gaps where keys no longer exist.
        5 => "\u{1b}[15~".to_owned(),
        6..=10 => format!("\u{1b}[{}~", number + 11),
        _ => format!("\u{1b}[{}~", number + 12),
    }
}
