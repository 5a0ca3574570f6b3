//! Output as data: lines of styled spans that the live display and the terminal UI share.

pub(crate) mod approval;
pub mod arguments;
mod blocks;
mod call;
pub(crate) mod diff;
mod line;
mod live;
pub(crate) mod markdown;
mod table;

pub use approval::render_shown;
pub use blocks::ReplyBlocks;
pub(crate) use call::state_sign;
pub use call::{SPINNER, call_line, format_duration, status_sign, status_style};
pub use diff::render_diff;
pub use line::{StyledLine, StyledSpan};
pub use live::LiveArea;
pub use markdown::render_markdown;
pub(crate) use table::TextTable;

/// The largest width of text, and the width without a terminal.
const MAX_WIDTH: usize = 100;

/// Returns the width for text: that of the terminal, up to a readable length.
pub fn text_width() -> usize {
    crossterm::terminal::size()
        .map_or(MAX_WIDTH, |(width, _)| usize::from(width))
        .clamp(20, MAX_WIDTH)
}
