//! What goes wrong in a case, made from a seed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a child process is killed. Numbers count from 1 within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kill {
    /// Before the n-th write of the store is done.
    BeforeWrite(u64),
    /// When the n-th write of the store is done and nobody has heard of it.
    AfterWrite(u64),
    /// Before the n-th effect.
    BeforeEffect(u64),
    /// Between the n-th effect and the return of its tool.
    AfterEffect(u64),
    /// By the parent, this many microseconds after the start.
    AfterMicros(u64),
}

impl Kill {
    /// The words for the five kinds, in the order of [`Kill::kind`].
    pub const KINDS: [&'static str; 5] = [
        "before write",
        "after write",
        "before effect",
        "after effect",
        "any time",
    ];

    /// The place of its kind in [`Kill::KINDS`].
    pub const fn kind(self) -> usize {
        match self {
            Self::BeforeWrite(_) => 0,
            Self::AfterWrite(_) => 1,
            Self::BeforeEffect(_) => 2,
            Self::AfterEffect(_) => 3,
            Self::AfterMicros(_) => 4,
        }
    }
}

/// How the store of a child process fails. Numbers count from 1 within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// From the n-th write on, nothing can be written.
    DiskFull(u64),
    /// The n-th write is refused because somebody else is writing.
    Busy(u64),
    /// The n-th write is done, but the connection is lost before the answer comes.
    LostAnswer(u64),
    /// The n-th write takes long.
    Slow(u64),
}

/// One thing that goes wrong in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mishap {
    /// The process is killed.
    Kill(Kill),
    /// The store fails.
    Trouble(Trouble),
}

/// How much one process of a scenario does when nothing goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// How many writes of the store.
    pub writes: u64,
    /// How many effects.
    pub effects: u64,
    /// How long it ran, in microseconds.
    pub micros: u64,
}

impl Extent {
    /// How many places there are at which a process of this extent can be killed. "At any time" counts as one.
    const fn places(self) -> u64 {
        2 * self.writes + 2 * self.effects + 1
    }

    fn kill(self, place: u64, random: &mut fastrand::Rng) -> Kill {
        let Self {
            writes,
            effects,
            micros,
        } = self;
        match (place, place.checked_sub(2 * writes)) {
            (place, None) if place % 2 == 0 => Kill::BeforeWrite(place / 2 + 1),
            (place, None) => Kill::AfterWrite(place / 2 + 1),
            (_, Some(place)) if place >= 2 * effects => Kill::AfterMicros(random.u64(0..=micros)),
            (_, Some(place)) if place % 2 == 0 => Kill::BeforeEffect(place / 2 + 1),
            (_, Some(place)) => Kill::AfterEffect(place / 2 + 1),
        }
    }
}

/// What goes wrong in a case, by start of the child. Starts that are not listed run undisturbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mishaps(pub Vec<Option<Mishap>>);

impl Mishaps {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// One to four kills, for a scenario that does this much in each of its processes when nothing goes wrong.
    ///
    /// With `lap` counting up, the first kill walks through every place there is; the others are anywhere.
    ///
    /// ```
    /// use toolgate_testkit::crash::{Extent, Kill, Mishap, Mishaps};
    /// let calm = [Extent { writes: 3, effects: 1, micros: 9000 }, Extent { writes: 1, effects: 0, micros: 900 }];
    /// let kills = |lap| Mishaps::kills(lap, 7, &calm).0;
    /// assert_eq!(kills(0)[0], Some(Mishap::Kill(Kill::BeforeWrite(1))));
    /// assert_eq!(kills(7)[0], Some(Mishap::Kill(Kill::AfterEffect(1))));
    /// assert_eq!(kills(9)[..2], [None, Some(Mishap::Kill(Kill::BeforeWrite(1)))]);
    /// assert_eq!(kills(3), kills(3));
    /// ```
    pub fn kills(lap: u64, seed: u64, calm: &[Extent]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut place = lap
            % calm
                .iter()
                .map(|extent| extent.places())
                .sum::<u64>()
                .max(1);
        let mut mishaps = Vec::new();
        for extent in calm {
            if let Some(further) = place.checked_sub(extent.places()) {
                place = further;
                mishaps.push(None);
            } else {
                mishaps.push(Some(Mishap::Kill(extent.kill(place, &mut random))));
                break;
            }
        }
        for _ in 0..random.usize(0..=3) {
            let extent = calm[random.usize(0..calm.len())];
            mishaps.push(Some(Mishap::Kill(any_kill(&mut random, extent))));
        }
        Self(mishaps)
    }

    /// One failure of the store, and perhaps another one after it. With `lap` counting up, the first one walks through
    /// every write of the first process.
    pub fn troubles(lap: u64, seed: u64, calm: &[Extent]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let writes = calm.first().map_or(1, |extent| extent.writes.max(1));
        let first = trouble(lap % 4, lap / 4 % writes + 1);
        let second = random
            .bool()
            .then(|| trouble(random.u64(0..4), random.u64(1..=writes)));
        Self(
            [first]
                .into_iter()
                .chain(second)
                .map(|trouble| Some(Mishap::Trouble(trouble)))
                .collect(),
        )
    }
}

impl fmt::Display for Mishaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mishap = |mishap: &Option<Mishap>| match mishap {
            Some(Mishap::Kill(kill)) => format!("{kill:?}"),
            Some(Mishap::Trouble(trouble)) => format!("{trouble:?}"),
            None => "nothing".to_owned(),
        };
        let words: Vec<_> = self.0.iter().map(mishap).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", then "))
    }
}

/// Early places are likelier: a process that takes a session up again has less left to do.
fn any_kill(random: &mut fastrand::Rng, extent: Extent) -> Kill {
    let mut early = |most: u64| {
        let bound = random.u64(1..=most.max(1));
        random.u64(1..=bound)
    };
    let (write, effect, micros) = (
        early(extent.writes),
        early(extent.effects),
        early(extent.micros),
    );
    match random.u8(0..5) {
        0 => Kill::BeforeWrite(write),
        1 => Kill::AfterWrite(write),
        2 => Kill::BeforeEffect(effect),
        3 => Kill::AfterEffect(effect),
        _ => Kill::AfterMicros(micros),
    }
}

fn trouble(kind: u64, write: u64) -> Trouble {
    match kind {
        0 => Trouble::DiskFull(write),
        1 => Trouble::Busy(write),
        2 => Trouble::LostAnswer(write),
        _ => Trouble::Slow(write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_kill_walks_through_every_place_and_starts_over() {
        let calm = [
            Extent {
                writes: 2,
                effects: 1,
                micros: 0,
            },
            Extent {
                writes: 0,
                effects: 0,
                micros: 0,
            },
        ];
        let first = |lap| {
            Mishaps::kills(lap, 1, &calm)
                .0
                .into_iter()
                .enumerate()
                .find_map(|(at, m)| Some((at, m?)))
        };
        let firsts: Vec<_> = (0..9).filter_map(first).collect();
        let all = [
            (0, Kill::BeforeWrite(1)),
            (0, Kill::AfterWrite(1)),
            (0, Kill::BeforeWrite(2)),
            (0, Kill::AfterWrite(2)),
            (0, Kill::BeforeEffect(1)),
            (0, Kill::AfterEffect(1)),
            (0, Kill::AfterMicros(0)),
            (1, Kill::AfterMicros(0)),
            (0, Kill::BeforeWrite(1)),
        ];
        assert_eq!(firsts, all.map(|(at, kill)| (at, Mishap::Kill(kill))));
    }

    #[test]
    fn troubles_walk_through_every_write_in_every_kind() {
        let calm = [Extent {
            writes: 2,
            effects: 0,
            micros: 0,
        }];
        let firsts: Vec<_> = (0..8)
            .map(|lap| Mishaps::troubles(lap, 1, &calm).0[0])
            .collect();
        for write in 1..=2 {
            for kind in 0..4 {
                assert!(firsts.contains(&Some(Mishap::Trouble(trouble(kind, write)))));
            }
        }
    }
}
