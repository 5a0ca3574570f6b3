//! Shortens the texts of one write.

use std::{fmt::Write as _, sync::LazyLock};

use toolgate_core::SessionId;

use super::{
    DIGIT, DIGIT_BITS, FROM_DICTIONARY, FROM_ITSELF, FROM_NUMBERED, FROM_PREVIOUS, LAST_DIGIT,
    LEAST_LENGTH, LONGEST_TEXT, MARK, REACH, SESSION, dictionary::DICTIONARY,
};

/// The most references that are followed from one event to another.
const MAX_DEPTH: u32 = 3;
/// The least length of a range of another event that an event refers to. Shorter ones save a few
/// bytes, and each adds to the events that have to be read first.
const LEAST_OF_PREVIOUS: usize = 20;
/// The least length of a range of an event that a record refers to: completing it needs a query.
const LEAST_OF_NUMBERED: usize = 96;
/// The number of places without a range after which some are left out: first as many as a digest or an
/// id has, which is repeated as a whole or not at all, and then more and more. A long text that repeats
/// nothing is passed quickly.
const PATIENCE: usize = 64;
const PATIENCE_WITH_WORDS: usize = 8;
/// The most places that are left out within a word.
const MOST_WITHIN_WORDS: usize = 3;
/// The length of what the texts of most writes have together.
const USUAL_TEXTS: usize = 12 * 1024;

/// The number of places of most texts that are searched.
const USUAL_PLACES: usize = 512;

static DICTIONARY_INDEX: LazyLock<PlaceIndex> = LazyLock::new(|| {
    let mut index = PlaceIndex::new(13);
    let window = DICTIONARY.as_bytes();
    for at in 0..=window.len() - LEAST_LENGTH {
        index.add(WindowWord::at(window, at), at);
    }
    index
});

/// Shortens the texts of one write: first its events, then what may refer to them.
pub(crate) struct TextShortener {
    session: SessionId,
    /// The dictionary, the events so far, then the text that is being shortened.
    window: Vec<u8>,
    dictionary: &'static PlaceIndex,
    /// Places of the events that can be referred to.
    earlier: PlaceIndex,
    /// Places of the text that is being shortened. Those of an earlier one may be left in it: what
    /// is found is compared.
    own: PlaceIndex,
    /// The places of this text that are in the index.
    own_places: Vec<usize>,
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

/// The text to which a place of the window belongs.
#[derive(Clone, Copy)]
enum FoundSource<'a> {
    Dictionary,
    Event(&'a WindowEvent),
    /// The text that is being shortened, which begins at this place.
    Itself(usize),
}

/// A range of the window that the text repeats.
#[derive(Clone, Copy)]
struct FoundRange<'a> {
    source: FoundSource<'a>,
    from: usize,
    /// The place in the text, relative to the window.
    at: usize,
    length: usize,
}

impl TextShortener {
    /// Begins a write to the log of a session.
    pub(crate) fn new(session: SessionId) -> Self {
        let mut window = Vec::with_capacity(DICTIONARY.len() + USUAL_TEXTS);
        window.extend_from_slice(DICTIONARY.as_bytes());
        Self {
            session,
            window,
            dictionary: LazyLock::force(&DICTIONARY_INDEX),
            earlier: PlaceIndex::new(11),
            own: PlaceIndex::new(10),
            own_places: Vec::with_capacity(USUAL_PLACES),
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
            for at in &self.own_places {
                let word = WindowWord::at(&self.window, *at);
                self.earlier.add_behind(word, *at, oldest);
            }
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
        self.own_places.clear();
        // Not `any`, which looks at one byte after the other.
        let has_control = text.bytes().fold(false, |has, byte| has | (byte < b' '));
        if has_control || text.len() > LONGEST_TEXT {
            return (None, 0);
        }
        let mut stored = String::with_capacity(text.len() / 2);
        stored.push(MARK);
        let mut names_session = false;
        let mut depth = 0;
        let mut copied = start;
        let mut at = start;
        let mut misses = 0;
        while at + LEAST_LENGTH <= self.window.len() {
            let word = WindowWord::at(&self.window, at);
            let found = self.find_range(word, start, at, allowed);
            let found = found.map(|range| range.extended(&self.window, copied));
            let found = found.and_then(|range| range.on_characters(text, start));
            let next = match found {
                Some(range) => {
                    stored.push_str(&text[copied - start..range.at - start]);
                    if range.is_numbered(allowed) && !names_session {
                        names_session = true;
                        let id = self.session.uuid().simple();
                        let _ = write!(stored, "{}{id}", char::from(SESSION));
                    }
                    range.write_to(&mut stored, allowed);
                    depth = depth.max(range.source.depth());
                    copied = range.at + range.length;
                    misses = 0;
                    copied
                }
                None => {
                    misses += 1;
                    let within_words = (misses / PATIENCE_WITH_WORDS).min(MOST_WITHIN_WORDS);
                    at + 1 + within_words.max(misses / PATIENCE)
                }
            };
            // What is inside of a range is found where the range is from.
            self.own.add(word, at);
            self.own_places.push(at);
            at = next;
        }
        stored.push_str(&text[copied - start..]);
        if stored.len() < text.len() {
            (Some(stored), depth)
        } else {
            (None, 0)
        }
    }

    /// Returns the longest known range that the text, which begins at `start`, repeats at `at`.
    fn find_range<'a>(
        &'a self,
        word: WindowWord,
        start: usize,
        at: usize,
        allowed: AllowedSources,
    ) -> Option<FoundRange<'a>> {
        let mut longest: Option<FoundRange<'a>> = None;
        let mut consider = |source: FoundSource<'a>, from: usize, end: usize| {
            let Some(least) = source.least_length(allowed) else {
                return;
            };
            // The last bytes of the shortest range first: most ranges that begin alike are too short, and
            // would be compared again from each of their bytes.
            if !self.is_equal_word(from + least, at + least, end) {
                return;
            }
            let range = FoundRange {
                source,
                from,
                at,
                length: equal_bytes(&self.window[from..end], &self.window[at..]),
            };
            let is_longer = longest.is_none_or(|longest| longest.length <= range.length);
            if is_longer && range.length >= least {
                longest = Some(range);
            }
        };
        if let Some(from) = self.own.find(&self.window, word)
            && (start..at).contains(&from)
        {
            consider(FoundSource::Itself(start), from, at);
        }
        if !matches!(allowed, AllowedSources::Nothing)
            && let Some(from) = self.earlier.find(&self.window, word)
        {
            let number = self.events.partition_point(|event| event.end <= from);
            let event = &self.events[number];
            consider(FoundSource::Event(event), from, event.end);
        }
        if let Some(from) = self.dictionary.find(&self.window, word) {
            consider(FoundSource::Dictionary, from, DICTIONARY.len());
        }
        longest
    }

    /// Checks whether the eight bytes that end at `from_end` and at `at_end` are equal, and a range of the
    /// source that ends at `end` has the former.
    fn is_equal_word(&self, from_end: usize, at_end: usize, end: usize) -> bool {
        let word = |to: usize| self.window.get(to - LEAST_LENGTH..to);
        from_end <= end && word(at_end).is_some_and(|there| word(from_end) == Some(there))
    }
}

impl FoundSource<'_> {
    /// Returns the least length of a range of it to which a text may refer, if it may refer to it.
    fn least_length(&self, allowed: AllowedSources) -> Option<usize> {
        match (self, allowed) {
            (Self::Dictionary | Self::Itself(_), _) => Some(LEAST_LENGTH),
            (Self::Event(_), AllowedSources::Nothing) => None,
            (Self::Event(event), AllowedSources::Previous { sequence }) => {
                (sequence - event.sequence <= REACH).then_some(LEAST_OF_PREVIOUS)
            }
            (Self::Event(_), AllowedSources::Numbered) => Some(LEAST_OF_NUMBERED),
        }
    }

    /// Returns the number of references that are followed if a text refers to it.
    fn depth(&self) -> u32 {
        match self {
            Self::Event(event) => event.depth + 1,
            Self::Dictionary | Self::Itself(_) => 0,
        }
    }

    /// Returns the place in the window where it begins.
    fn start(&self) -> usize {
        match self {
            Self::Dictionary => 0,
            Self::Event(event) => event.start,
            Self::Itself(start) => *start,
        }
    }
}

impl FoundRange<'_> {
    /// Adds the bytes before it that are equal, too, from `copied` on: some places are not searched.
    fn extended(self, window: &[u8], copied: usize) -> Self {
        let mut room = (self.at - copied).min(self.from - self.source.start());
        if let FoundSource::Itself(_) = self.source {
            // A text is completed from its beginning: the range has to end before its repetition.
            room = room.min(self.at - self.from - self.length);
        }
        let before = (1..=room).take_while(|n| window[self.at - n] == window[self.from - n]);
        let before = before.count();
        Self {
            from: self.from - before,
            at: self.at - before,
            length: self.length + before,
            ..self
        }
    }

    /// Returns the whole characters of it, if they are enough, in a text that begins at `start`.
    fn on_characters(self, text: &str, start: usize) -> Option<Self> {
        let first = text.ceil_char_boundary(self.at - start);
        let end = text.floor_char_boundary(self.at - start + self.length);
        let left_out = first + start - self.at;
        (end >= first + LEAST_LENGTH).then(|| Self {
            from: self.from + left_out,
            at: self.at + left_out,
            length: end - first,
            ..self
        })
    }

    /// Checks whether the reference has the number of an event.
    fn is_numbered(&self, allowed: AllowedSources) -> bool {
        matches!(self.source, FoundSource::Event(_)) && matches!(allowed, AllowedSources::Numbered)
    }

    /// Writes a reference to it.
    fn write_to(&self, stored: &mut String, allowed: AllowedSources) {
        match &self.source {
            FoundSource::Dictionary => {
                stored.push(char::from(FROM_DICTIONARY));
                write_number(stored, self.from as u64);
            }
            FoundSource::Itself(_) => {
                stored.push(char::from(FROM_ITSELF));
                write_number(stored, (self.at - self.from) as u64);
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
        write_number(stored, (self.length - LEAST_LENGTH) as u64);
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
fn equal_bytes(mut a: &[u8], mut b: &[u8]) -> usize {
    let mut equal = 0;
    while let (Some((word, rest)), Some((other, other_rest))) =
        (a.split_first_chunk::<8>(), b.split_first_chunk::<8>())
    {
        let difference = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*other);
        if difference != 0 {
            // The first byte of a word is its lowest.
            return equal + (difference.trailing_zeros() / 8) as usize;
        }
        equal += 8;
        a = rest;
        b = other_rest;
    }
    let rest = a.iter().zip(b);
    equal + rest.take_while(|(a, b)| a == b).count()
}

/// Eight bytes of a window.
#[derive(Clone, Copy)]
struct WindowWord {
    bytes: u64,
    hash: u64,
}

impl WindowWord {
    fn at(window: &[u8], at: usize) -> Self {
        let bytes = window[at..at + LEAST_LENGTH].try_into();
        let bytes = u64::from_le_bytes(bytes.expect("eight bytes"));
        Self {
            bytes,
            hash: bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Returns bits of the hash that no slot depends on, at the place where an index has them.
    fn tag(self) -> u32 {
        (self.hash >> 16) as u32 & !PLACE_MASK
    }
}

/// Places of a window, by the eight bytes that begin there; one for each hash.
struct PlaceIndex {
    /// In the lower bits, one more than the place, or zero for none; above them, more bits of its hash, so
    /// that the window is not read for other words.
    places: Vec<u32>,
    bits: u32,
}

/// The number of bits of a place in an index.
const PLACE_BITS: u32 = 20;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

impl PlaceIndex {
    fn new(bits: u32) -> Self {
        Self {
            places: vec![0; 1 << bits],
            bits,
        }
    }

    fn slot(&self, word: WindowWord) -> usize {
        (word.hash >> (u64::BITS - self.bits)) as usize
    }

    fn add(&mut self, word: WindowWord, at: usize) {
        // A place beyond a megabyte is not found, which only costs space.
        if at < PLACE_MASK as usize {
            let slot = self.slot(word);
            self.places[slot] = word.tag() | (at as u32 + 1);
        }
    }

    /// Adds a place, unless one at or behind `oldest` is there: the fewer events are referred to,
    /// the fewer have to be read.
    fn add_behind(&mut self, word: WindowWord, at: usize, oldest: usize) {
        if (self.places[self.slot(word)] & PLACE_MASK) as usize <= oldest {
            self.add(word, at);
        }
    }

    /// Returns a place where the same bytes begin.
    fn find(&self, window: &[u8], word: WindowWord) -> Option<usize> {
        let found = self.places[self.slot(word)];
        if found & !PLACE_MASK != word.tag() {
            return None;
        }
        let place = ((found & PLACE_MASK) as usize).checked_sub(1)?;
        let there = window.get(place..place + LEAST_LENGTH)?;
        (u64::from_le_bytes(there.try_into().ok()?) == word.bytes).then_some(place)
    }
}
