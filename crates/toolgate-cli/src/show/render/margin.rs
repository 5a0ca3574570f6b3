//! Lines of foreign text behind a margin. A line that is longer than the screen is marked where it
//! wraps, so that its rest cannot be taken for a line of its own.

use toolgate::approval::SHOWN_MARGIN;

use super::StyledLine;
use crate::env::style::{DIM, NOTE};

/// What stands before the rest of a line that is longer than the screen.
pub(super) const CONTINUED: &str = "  ┆ ";

/// Draws a line behind the margin, in rows of at most `width` columns. Nothing is left out.
pub(super) fn wrap_behind_margin(text: StyledLine, width: usize) -> Vec<StyledLine> {
    let mut line = StyledLine::styled(SHOWN_MARGIN, DIM);
    line.extend(text);
    line.wrap_exactly(width, &continued_mark())
}

/// Returns the mark of a continued line. It has another colour than the margin of a new line.
pub(super) fn continued_mark() -> StyledLine {
    StyledLine::styled(CONTINUED, NOTE)
}
