//! Fuzz targets: whatever reads bytes that a model, a server, a file or another process wrote.
//!
//! A [`FuzzTarget`] feeds one input to the real code and checks properties of the result, usually
//! against a second, simpler implementation. The same targets run in two ways. The program of this
//! crate replays the corpus and tries seeded mutations on the stable compiler; that is a stage of
//! `cargo xtask test`. `cargo xtask fuzz` runs them with libFuzzer, where a nightly compiler and
//! `cargo-fuzz` are installed.
//!
//! ```
//! let target = toolgate_fuzz::find_target("canonical_json").expect("a target");
//! // A property that does not hold is a panic.
//! (target.run)(br#"{"b":1.0,"a":[1e2]}"#);
//! ```

pub mod harness;
mod targets;

use std::hash::{DefaultHasher, Hash, Hasher};

pub use targets::TARGETS;

/// Code that reads foreign bytes, together with what must hold for every input.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// The name, which is also the folder of its corpus.
    pub name: &'static str,
    /// Runs the code on one input. It panics if a property does not hold.
    pub run: fn(&[u8]) -> InputTrace,
    /// Words that inputs are assembled from and mutated with.
    pub words: &'static [&'static str],
    /// The longest input that is tried.
    pub max_bytes: usize,
    /// The limit on the memory that one input may use.
    pub memory: MemoryBound,
}

impl FuzzTarget {
    /// Returns a target with the usual limits, for use in constants.
    pub const fn new(
        name: &'static str,
        run: fn(&[u8]) -> InputTrace,
        words: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            run,
            words,
            max_bytes: 4096,
            memory: MemoryBound::USUAL,
        }
    }

    /// Sets the longest input that is tried.
    pub const fn with_max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Sets the limit on memory.
    pub const fn with_memory(self, memory: MemoryBound) -> Self {
        Self { memory, ..self }
    }
}

/// A limit on memory that grows with the input: `base + per_byte * length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBound {
    /// Bytes for an empty input. Tables that are built on first use count too.
    pub base: usize,
    /// Bytes for each byte of the input.
    pub per_byte: usize,
}

impl MemoryBound {
    /// The limit of targets without one of their own.
    pub const USUAL: Self = Self {
        base: 8 << 20,
        per_byte: 512,
    };

    /// Returns the limit for an input of this length.
    pub const fn limit_for(self, length: usize) -> usize {
        self.base + self.per_byte * length
    }
}

/// A summary of what the code did with an input. The stable compiler does not report coverage, so
/// an input with a trace that no other had is kept and mutated further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InputTrace(u64);

impl InputTrace {
    /// Returns the trace of an input that the target has no use for.
    pub const NOTHING: Self = Self(0);

    /// Summarises values, such as the kind of the result and small counts.
    pub fn of(values: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        values.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Summarises a message by its letters, without what it quotes and counts.
    pub fn of_message(message: &str) -> Self {
        let mut quoted = false;
        let text: String = message
            .chars()
            .filter(|c| {
                quoted ^= matches!(c, '"' | '`');
                !quoted && (c.is_ascii_lowercase() || *c == ' ')
            })
            .take(80)
            .collect();
        Self::of(text)
    }
}

// As in the program, so that the tests see its limits.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: harness::allocator::CountingAllocator = harness::allocator::CountingAllocator;

/// Returns the target of this name.
pub fn find_target(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|target| target.name == name)
}
