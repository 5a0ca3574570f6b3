//! Shortens the texts of one write.

use std::{fmt::Write as _, sync::LazyLock};

use toolgate_core::SessionId;

use super::{
    DIGIT, DIGIT_BITS, FROM_DICTIONARY, FROM_ITSELF, FROM_NUMBERED, FROM_PREVIOUS, LAST_DIGIT,
    LEAST_LENGTH, LONGEST_TEXT, MARK, REACH, SESSION, dictionary::DICTIONARY,
};

/// The most references that are followed from one event to another.
pub(super) const MAX_DEPTH: u32 = 3;
/// The least length of a range of another event that an event refers to. Shorter ones save a few
/// bytes, and each adds to the events that have to be read first.
const LEAST_OF_PREVIOUS: usize = 20;
/// The least length of a range of an event that a record refers to: completing it needs a query.
const LEAST_OF_NUMBERED: usize = 96;

static DICTIONARY_INDEX: LazyLock<PlaceIndex> = LazyLock::new(|| {
    let mut index = PlaceIndex::new(14);
    index.add_range(DICTIONARY.as_bytes(), 0, 0);
    index
});

/// Shortens the texts of one write: first its events, then what may refer to them.
pub(crate) struct TextShortener {
    session: SessionId,
    /// The dictionary, the events so far, then the text that is being shortened.
    window: Vec<u8>,
    /// The places of the events that can be referred to.
    earlier: PlaceIndex,
    /// The places of the text that is being shortened. Those of an earlier one may be left in it:
    /// what is found is compared.
    own: PlaceIndex,
    events: Vec<WindowEvent>,
}

/// An event in the window.
struct WindowEvent {
    sequence: u64,
    start: usize,
    end: usize,
    /// The number of references that are followed to complete it.
    depth: u32,
}

/// The texts that a text may refer to, beside the dictionary and itself.
#[derive(Clone, Copy)]
enum AllowedSources {
    /// None: the text stays when the session is erased.
    Nothing,
    /// The events shortly before this one.
    Previous { sequence: u64 },
    /// All events of the write.
    Numbered,
}

/// A place of the window in the text to which it belongs.
enum FoundSource<'a> {
    Dictionary,
    Event(&'a WindowEvent),
    Itself,
}

/// A range of the window that the text repeats.
struct FoundRange<'a> {
    source: FoundSource<'a>,
    from: usize,
    length: usize,
}

impl TextShortener {
    /// Begins a write to the log of a session.
    pub(crate) fn new(session: SessionId) -> Self {
        Self {
            session,
            window: DICTIONARY.as_bytes().to_vec(),
            earlier: PlaceIndex::new(12),
            own: PlaceIndex::new(11),
            events: Vec::new(),
        }
    }

    /// Returns the body of an event as it is stored. Later texts can refer to it.
    pub(crate) fn shorten_event(&mut self, sequence: u64, body: String) -> String {
        let start = self.window.len();
        let (stored, depth) = self.shorten_text(&body, AllowedSources::Previous { sequence });
        // Otherwise completing a body could take as many queries as the write has events.
        if depth < MAX_DEPTH {
            let in_reach = |event: &&WindowEvent| sequence - event.sequence < REACH;
            let oldest = self.events.iter().rev().take_while(in_reach).last();
            let oldest = oldest.map_or(start, |event| event.start);
            self.earlier.add_range(&self.window, start, oldest);
        }
        self.events.push(WindowEvent {
            sequence,
            start,
            end: self.window.len(),
            depth,
        });
        stored.unwrap_or(body)
    }

    /// Returns the body of a record as it is stored. The record is deleted with the events of the
    /// write.
    pub(crate) fn shorten_record(&mut self, body: String) -> String {
        self.shorten_last(&body, AllowedSources::Numbered)
            .unwrap_or(body)
    }

    /// Returns a text as it is stored, if it is shorter; it depends on no other row.
    pub(crate) fn shorten_alone(&mut self, body: &str) -> Option<String> {
        self.shorten_last(body, AllowedSources::Nothing)
    }

    /// Shortens a text that no other one can refer to.
    fn shorten_last(&mut self, text: &str, allowed: AllowedSources) -> Option<String> {
        let start = self.window.len();
        let (stored, _) = self.shorten_text(text, allowed);
        self.window.truncate(start);
        stored
    }

    /// Returns the text with references, if it is shorter, and how many are followed to complete it.
    fn shorten_text(&mut self, text: &str, allowed: AllowedSources) -> (Option<String>, u32) {
        let start = self.window.len();
        self.window.extend_from_slice(text.as_bytes());
        if text.len() > LONGEST_TEXT || text.bytes().any(|byte| byte < b' ') {
            return (None, 0);
        }
        let mut stored = String::with_capacity(text.len());
        stored.push(MARK);
        let mut names_session = false;
        let mut depth = 0;
        let mut copied = 0;
        let mut at = 0;
        while at + LEAST_LENGTH <= text.len() {
            let found = self.find_range(start, start + at, allowed);
            let end = found
                .as_ref()
                .map_or(at, |found| text.floor_char_boundary(at + found.length));
            let is_range = end >= at + LEAST_LENGTH && text.is_char_boundary(at);
            let next = match found.filter(|_| is_range) {
                Some(found) => {
                    stored.push_str(&text[copied..at]);
                    if found.is_numbered(allowed) && !names_session {
                        names_session = true;
                        let id = self.session.uuid().simple();
                        let _ = write!(stored, "{}{id}", char::from(SESSION));
                    }
                    found.write_to(&mut stored, start + at, end - at, allowed);
                    depth = depth.max(found.source.depth());
                    copied = end;
                    end
                }
                None => at + 1,
            };
            for place in at..next.min(text.len() - LEAST_LENGTH + 1) {
                self.own.add(&self.window, start + place);
            }
            at = next;
        }
        stored.push_str(&text[copied..]);
        if stored.len() < text.len() {
            (Some(stored), depth)
        } else {
            (None, 0)
        }
    }

    /// Returns the longest known range that the text, which begins at `start`, repeats at `at`.
    fn find_range(
        &self,
        start: usize,
        at: usize,
        allowed: AllowedSources,
    ) -> Option<FoundRange<'_>> {
        let own = self.own.find(&self.window, at);
        let own = own
            .filter(|from| (start..at).contains(from))
            .map(|from| (FoundSource::Itself, from, at));
        let earlier = self.earlier.find(&self.window, at).map(|from| {
            let number = self.events.partition_point(|event| event.end <= from);
            let event = &self.events[number];
            (FoundSource::Event(event), from, event.end)
        });
        let known = DICTIONARY_INDEX.find(&self.window, at);
        let known = known.map(|from| (FoundSource::Dictionary, from, DICTIONARY.len()));
        let ranges = [own, earlier, known].into_iter().flatten();
        let ranges = ranges.map(|(source, from, end)| FoundRange {
            source,
            from,
            length: equal_bytes(&self.window[from..end], &self.window[at..]),
        });
        ranges
            .filter(|range| range.is_allowed(allowed))
            .max_by_key(|range| range.length)
    }
}

impl FoundSource<'_> {
    /// Returns the number of references that are followed if a text refers to it.
    fn depth(&self) -> u32 {
        match self {
            Self::Event(event) => event.depth + 1,
            Self::Dictionary | Self::Itself => 0,
        }
    }
}

impl FoundRange<'_> {
    fn is_allowed(&self, allowed: AllowedSources) -> bool {
        let least = match (&self.source, allowed) {
            (FoundSource::Dictionary | FoundSource::Itself, _) => LEAST_LENGTH,
            (FoundSource::Event(_), AllowedSources::Nothing) => return false,
            (FoundSource::Event(event), AllowedSources::Previous { sequence }) => {
                if sequence - event.sequence > REACH {
                    return false;
                }
                LEAST_OF_PREVIOUS
            }
            (FoundSource::Event(_), AllowedSources::Numbered) => LEAST_OF_NUMBERED,
        };
        self.length >= least
    }

    /// Checks whether the reference has the number of an event.
    fn is_numbered(&self, allowed: AllowedSources) -> bool {
        matches!(self.source, FoundSource::Event(_)) && matches!(allowed, AllowedSources::Numbered)
    }

    /// Writes a reference to the first `length` bytes of the range, which the text repeats at `at`.
    fn write_to(&self, stored: &mut String, at: usize, length: usize, allowed: AllowedSources) {
        match &self.source {
            FoundSource::Dictionary => {
                stored.push(char::from(FROM_DICTIONARY));
                write_number(stored, self.from as u64);
            }
            FoundSource::Itself => {
                stored.push(char::from(FROM_ITSELF));
                write_number(stored, (at - self.from) as u64);
            }
            FoundSource::Event(event) => {
                match allowed {
                    AllowedSources::Previous { sequence } => {
                        let places = (sequence - event.sequence) as u8;
                        stored.push(char::from(FROM_PREVIOUS + places - 1));
                    }
                    AllowedSources::Numbered | AllowedSources::Nothing => {
                        stored.push(char::from(FROM_NUMBERED));
                        write_number(stored, event.sequence);
                    }
                }
                write_number(stored, (self.from - event.start) as u64);
            }
        }
        write_number(stored, (length - LEAST_LENGTH) as u64);
    }
}

/// Writes a number in digits of five bits, the highest first. The last digit has another form.
pub(super) fn write_number(stored: &mut String, number: u64) {
    let higher = number >> DIGIT_BITS;
    let last = (number & ((1 << DIGIT_BITS) - 1)) as u8;
    if higher > 0 {
        let digits = (u64::BITS - higher.leading_zeros()).div_ceil(DIGIT_BITS);
        for digit in (0..digits).rev() {
            let bits = (higher >> (digit * DIGIT_BITS)) as u8 & ((1 << DIGIT_BITS) - 1);
            stored.push(char::from(DIGIT + bits));
        }
    }
    stored.push(char::from(LAST_DIGIT + last));
}

/// Returns the number of bytes that are equal at the beginning.
fn equal_bytes(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    let equal = words.take_while(|(a, b)| a == b).count() * 8;
    let rest = a[equal..].iter().zip(&b[equal..]);
    equal + rest.take_while(|(a, b)| a == b).count()
}

/// The newest place of a window, by the eight bytes that begin there.
struct PlaceIndex {
    /// One more than the place; zero for none.
    places: Vec<u32>,
    bits: u32,
}

impl PlaceIndex {
    fn new(bits: u32) -> Self {
        Self {
            places: vec![0; 1 << bits],
            bits,
        }
    }

    fn slot(&self, window: &[u8], at: usize) -> usize {
        let bytes = window[at..at + LEAST_LENGTH].try_into();
        let word = u64::from_le_bytes(bytes.expect("eight bytes"));
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - self.bits)) as usize
    }

    fn add(&mut self, window: &[u8], at: usize) {
        let slot = self.slot(window, at);
        // A place beyond four gigabytes is not found, which only costs space.
        self.places[slot] = u32::try_from(at + 1).unwrap_or(0);
    }

    /// Adds the places from `start` to the end. Of those that begin alike, the first at or behind
    /// `oldest` stays: the fewer events are referred to, the fewer are read.
    fn add_range(&mut self, window: &[u8], start: usize, oldest: usize) {
        for at in start..(window.len() + 1).saturating_sub(LEAST_LENGTH) {
            let slot = self.slot(window, at);
            if self.places[slot] as usize <= oldest {
                self.places[slot] = u32::try_from(at + 1).unwrap_or(0);
            }
        }
    }

    /// Returns a place that may begin like the one at `at`.
    fn find(&self, window: &[u8], at: usize) -> Option<usize> {
        let place = self.places[self.slot(window, at)];
        (place as usize).checked_sub(1)
    }
}
