//! What is printed, as data first: lines of styled spans that the live display and the terminal UI both know.

pub mod arguments;
mod blocks;
mod call;
mod diff;
mod line;
mod live;
mod markdown;
mod question;
mod table;

pub use blocks::Blocks;
pub use call::{SPINNER, call_line, status_sign, status_style, status_words, took};
pub use diff::diff;
pub use line::{Line, Span};
pub use live::Live;
pub use markdown::markdown;
pub use question::{question, risk};

/// How wide text is where there is no terminal to ask, and at most.
const WIDTH: usize = 100;

/// How many columns text may take: those of the terminal, as far as lines that long can be read.
pub fn width() -> usize {
    crossterm::terminal::size()
        .map_or(WIDTH, |(width, _)| usize::from(width))
        .clamp(20, WIDTH)
}
