//! What is printed, as data first: lines of styled spans that the live display and the terminal UI both know.

mod diff;
mod line;
mod markdown;
mod table;

pub use diff::diff;
pub use line::{Line, Span};
pub use markdown::markdown;
