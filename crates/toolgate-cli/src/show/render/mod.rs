//! Output as data: lines of styled spans that the live display and the terminal UI share.

pub(crate) mod approval;
pub mod arguments;
mod blocks;
mod call;
pub(crate) mod diff;
mod highlight;
mod line;
mod live;
mod margin;
pub(crate) mod markdown;
pub(crate) mod result;
mod snippet;
mod table;

pub use approval::{PAGE_ROWS, render_shown};
pub use blocks::ReplyBlocks;
pub use call::{SPINNER, call_line, format_duration, render_details, status_sign, status_style};
pub(crate) use call::{call_sign, format_other_files};
pub use diff::{render_diff, render_diff_rows};
pub use line::{StyledLine, StyledSpan};
pub(crate) use live::ERASE_BELOW;
pub use live::LiveArea;
pub use markdown::render_markdown;
pub use result::{OutputRows, render_output};
pub(crate) use snippet::snippet_line;
pub(crate) use table::TextTable;

use std::io::IsTerminal;

/// The largest width of text, and the width without a terminal.
const MAX_WIDTH: usize = 100;

/// Returns the width for text: that of the terminal, up to a readable length.
pub fn text_width() -> usize {
    output_width().unwrap_or(MAX_WIDTH).clamp(20, MAX_WIDTH)
}

/// Returns the columns of the terminal that the standard output is. A pipe or a file has no width,
/// also where the program was started from a terminal.
pub(crate) fn output_width() -> Option<usize> {
    let is_terminal = std::io::stdout().is_terminal();
    let size = is_terminal.then(terminal_size).flatten();
    size.map(|(width, _)| usize::from(width))
}

/// Wraps a line of prose at the width of the terminal; a pipe gets one line. Commands that users copy
/// are not wrapped like this: a line break inside one would be copied, too.
pub(crate) fn wrap_for_output(line: &StyledLine, indent: &str) -> Vec<StyledLine> {
    match output_width() {
        Some(width) => line.wrap(width, &StyledLine::plain(indent)),
        None => vec![line.clone()],
    }
}

/// Returns the columns and rows of the terminal, if there is one.
///
/// Unlike `crossterm::terminal::size`, it starts no `tput` where there is none.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    let size = crossterm::terminal::window_size().ok()?;
    Some((size.columns, size.rows)).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}
