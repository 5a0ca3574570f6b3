//! Tells whether text that arrives later can change what a detector finds, for text in pieces.

use std::ops::Range;

use super::{
    CompiledDetector, CompiledLook, MAX_LOOK_BYTES,
    bundled::NETRC_WORDS,
    private_keys::is_pem_decided,
    secret_names::{is_flag, name_in_anchor},
    skip_bytes,
};

impl CompiledDetector {
    /// Checks whether text that follows can no longer change what is found at `anchor`.
    ///
    /// It may say no although nothing can change: the text is then shown a little later.
    pub(crate) fn is_decided(&self, text: &str, anchor: Range<usize>) -> bool {
        let rest = &text[anchor.end..];
        match &self.look {
            CompiledLook::Pem => is_pem_decided(text, anchor.start),
            // A detector reads no further, except to the end of what it has found.
            _ if rest.len() >= 4 * MAX_LOOK_BYTES => true,
            // `Bearer` and its token may be on two lines; all other shapes end with their word.
            CompiledLook::Shape(_) => has_word_after(rest),
            CompiledLook::UserInfo => rest.contains(char::is_whitespace),
            CompiledLook::Cookie => !may_be_assigned(text, &anchor) || has_line_after(rest),
            CompiledLook::Assigned(_) => !may_be_assigned(text, &anchor) || has_line_after(rest),
            CompiledLook::NamedBy(_) => {
                !may_be_assigned(text, &name_in_anchor(text, &anchor)) || has_line_after(rest)
            }
            CompiledLook::Group(_) if !rest.starts_with(|c: char| c.is_whitespace()) => {
                !rest.is_empty()
            }
            // As many whole words as the longest entry has, and a whole line.
            CompiledLook::Group(_) => {
                let is_word_ended = rest.ends_with(|c: char| c.is_whitespace());
                rest.contains('\n')
                    && rest.split_whitespace().count() >= NETRC_WORDS + usize::from(!is_word_ended)
            }
        }
    }
}

/// Checks whether `rest`, which follows an anchor, has a complete word after that of the anchor.
fn has_word_after(rest: &str) -> bool {
    let mut words = rest.split_ascii_whitespace();
    let begins_with_space = rest.starts_with(|c: char| c.is_ascii_whitespace());
    let needed = if begins_with_space { 1 } else { 2 };
    let ends_with_space = rest.ends_with(|c: char| c.is_ascii_whitespace());
    words.by_ref().take(needed).count() == needed && (words.next().is_some() || ends_with_space)
}

/// Checks whether `rest`, which follows an anchor, has a complete line with text after that of the
/// anchor: a value may be on the next line.
fn has_line_after(rest: &str) -> bool {
    let Some((_, below)) = rest.split_once('\n') else {
        return false;
    };
    let blank = |c: char| c == '[' || c.is_ascii_whitespace();
    below.trim_start_matches(blank).contains('\n')
}

/// Checks whether a value may follow the name at `anchor`, as far as the text shows.
fn may_be_assigned(text: &str, anchor: &Range<usize>) -> bool {
    let bytes = text.as_bytes();
    let sign = skip_bytes(bytes, anchor.end, b"\"'\\] \t");
    match bytes.get(sign) {
        None | Some(b'=' | b':' | b'>') => true,
        Some(_) => is_flag(bytes, anchor),
    }
}
