//! Remembers what earlier looks at a text have found, so that no byte is searched twice for the same
//! thing.

/// Searches of one text for the next byte of a kind.
///
/// A detector looks at up to a thousand bytes after its anchor. A hostile text has an anchor every
/// few bytes, and each look fails: without a memory that is hundreds of times the length of the
/// text. The anchors come in order, so each search continues where the last one ended.
#[derive(Default)]
pub(crate) struct Lookahead {
    searches: [Search; SearchFor::COUNT],
    /// Number of bytes that were examined, here and by the detectors.
    #[cfg(test)]
    pub(crate) examined: usize,
}

/// The kinds of bytes that detectors search for.
#[derive(Clone, Copy)]
pub(crate) enum SearchFor {
    /// The end of a URL.
    UrlEnd,
    At,
    EqualsSign,
    Digit,
    /// A byte that no word of code has.
    NonWord,
    /// The end of a part of a JSON web token.
    TokenPartEnd,
    /// The same, from the second part on.
    SecondPartEnd,
    /// The line that ends the armour of a key.
    KeyEnd,
    LineEnd,
}

impl SearchFor {
    const COUNT: usize = Self::LineEnd as usize + 1;

    fn matches(self, text: &[u8], at: usize) -> bool {
        let byte = text[at];
        match self {
            // White space beyond ASCII is left to the detector.
            Self::UrlEnd => byte.is_ascii_whitespace() || b"\"'<>`".contains(&byte),
            Self::At => byte == b'@',
            Self::EqualsSign => byte == b'=',
            Self::Digit => byte.is_ascii_digit(),
            Self::NonWord => !(byte.is_ascii_alphabetic() || b"_.:&*|?!".contains(&byte)),
            Self::TokenPartEnd | Self::SecondPartEnd => {
                !(byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
            }
            Self::KeyEnd => text[at..].starts_with(b"-----END"),
            Self::LineEnd => byte == b'\n',
        }
    }
}

/// One search: from `from` to `to` there is nothing.
#[derive(Clone, Copy, Default)]
struct Search {
    from: usize,
    to: usize,
}

impl Lookahead {
    /// Returns the position of the first byte of a kind from `start` on, or the end of the text, or
    /// the end of what is searched: at least `most` bytes.
    pub(crate) fn find_next(
        &mut self,
        kind: SearchFor,
        text: &[u8],
        start: usize,
        most: usize,
    ) -> usize {
        let search = &mut self.searches[kind as usize];
        let known = search.from <= start && start <= search.to;
        let mut at = if known { search.to } else { start };
        let begun = at;
        let end = start.saturating_add(most).min(text.len());
        while at < end && !kind.matches(text, at) {
            at += 1;
        }
        *search = Search {
            from: start,
            to: at,
        };
        self.charge(at - begun);
        at
    }

    /// Counts the bytes of a look, for tests of its cost.
    pub(crate) fn charge(&mut self, bytes: usize) {
        #[cfg(test)]
        {
            self.examined += bytes + 1;
        }
        #[cfg(not(test))]
        let _ = bytes;
    }
}
