//! The mishaps of a case, made from a seed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The point at which a child process is killed. Numbers count from 1 within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillPoint {
    /// Before the n-th write of the store is carried out.
    BeforeWrite(u64),
    /// After the n-th write of the store is carried out, before the caller gets the answer.
    AfterWrite(u64),
    /// Before the n-th effect.
    BeforeEffect(u64),
    /// Between the n-th effect and the return of its tool.
    AfterEffect(u64),
    /// By the parent, this many microseconds after the start.
    AfterMicros(u64),
}

impl KillPoint {
    /// The names of the five kinds, in the order of [`KillPoint::kind`].
    pub const KINDS: [&'static str; 5] = [
        "before write",
        "after write",
        "before effect",
        "after effect",
        "any time",
    ];

    /// Returns the position of its kind in [`KillPoint::KINDS`].
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

/// A failure of a child's store. Numbers count from 1 within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreTrouble {
    /// From the n-th write on, nothing can be written.
    DiskFull(u64),
    /// The n-th write is rejected because another process is writing.
    Busy(u64),
    /// The n-th write is carried out, but the connection is lost before the answer.
    LostAnswer(u64),
    /// The n-th write takes long.
    Slow(u64),
}

/// A mishap in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildMishap {
    /// The process is killed.
    Kill(KillPoint),
    /// The store fails.
    Trouble(StoreTrouble),
}

/// The amount of work in one process of a scenario without mishaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessExtent {
    /// The number of writes of the store.
    pub writes: u64,
    /// The number of effects.
    pub effects: u64,
    /// The duration in microseconds.
    pub micros: u64,
}

impl ProcessExtent {
    /// Returns the number of points at which a process of this extent can be killed. "At any time"
    /// counts as one.
    const fn kill_point_count(self) -> u64 {
        2 * self.writes + 2 * self.effects + 1
    }

    fn nth_kill(self, place: u64, random: &mut fastrand::Rng) -> KillPoint {
        let Self {
            writes,
            effects,
            micros,
        } = self;
        // Two points for each write, two for each effect, and one for any time.
        match (place, place.checked_sub(2 * writes)) {
            (place, None) if place % 2 == 0 => KillPoint::BeforeWrite(place / 2 + 1),
            (place, None) => KillPoint::AfterWrite(place / 2 + 1),
            (_, Some(place)) if place >= 2 * effects => {
                KillPoint::AfterMicros(random.u64(0..=micros))
            }
            (_, Some(place)) if place % 2 == 0 => KillPoint::BeforeEffect(place / 2 + 1),
            (_, Some(place)) => KillPoint::AfterEffect(place / 2 + 1),
        }
    }
}

/// The mishaps of a case, by start of the child. Starts that are not listed run undisturbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MishapPlan(pub Vec<Option<ChildMishap>>);

impl MishapPlan {
    /// Creates an empty plan.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Plans one to four kills, for a scenario with these extents of its processes without mishaps.
    ///
    /// With `lap` counting up, the first kill visits every point; the others are random.
    ///
    /// ```
    /// use toolgate_testkit::crash::{ProcessExtent, KillPoint, ChildMishap, MishapPlan};
    /// let calm = [ProcessExtent { writes: 3, effects: 1, micros: 9000 }, ProcessExtent { writes: 1, effects: 0, micros: 900 }];
    /// let kills = |lap| MishapPlan::plan_kills(lap, 7, &calm).0;
    /// assert_eq!(kills(0)[0], Some(ChildMishap::Kill(KillPoint::BeforeWrite(1))));
    /// assert_eq!(kills(7)[0], Some(ChildMishap::Kill(KillPoint::AfterEffect(1))));
    /// assert_eq!(kills(9)[..2], [None, Some(ChildMishap::Kill(KillPoint::BeforeWrite(1)))]);
    /// assert_eq!(kills(3), kills(3));
    /// ```
    pub fn plan_kills(lap: u64, seed: u64, calm: &[ProcessExtent]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut place = lap
            % calm
                .iter()
                .map(|extent| extent.kill_point_count())
                .sum::<u64>()
                .max(1);
        let mut mishaps = Vec::new();
        for extent in calm {
            if let Some(further) = place.checked_sub(extent.kill_point_count()) {
                place = further;
                mishaps.push(None);
            } else {
                mishaps.push(Some(ChildMishap::Kill(extent.nth_kill(place, &mut random))));
                break;
            }
        }
        for _ in 0..random.usize(0..=3) {
            let extent = calm[random.usize(0..calm.len())];
            mishaps.push(Some(ChildMishap::Kill(random_kill(&mut random, extent))));
        }
        Self(mishaps)
    }

    /// Plans one failure of the store, and perhaps another one after it. With `lap` counting up,
    /// the first one visits every write of the first process.
    pub fn plan_troubles(lap: u64, seed: u64, calm: &[ProcessExtent]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let writes = calm.first().map_or(1, |extent| extent.writes.max(1));
        let first = nth_trouble(lap % 4, lap / 4 % writes + 1);
        let second = random
            .bool()
            .then(|| nth_trouble(random.u64(0..4), random.u64(1..=writes)));
        Self(
            [first]
                .into_iter()
                .chain(second)
                .map(|trouble| Some(ChildMishap::Trouble(trouble)))
                .collect(),
        )
    }
}

impl fmt::Display for MishapPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mishap = |mishap: &Option<ChildMishap>| match mishap {
            Some(ChildMishap::Kill(kill)) => format!("{kill:?}"),
            Some(ChildMishap::Trouble(trouble)) => format!("{trouble:?}"),
            None => "nothing".to_owned(),
        };
        let words: Vec<_> = self.0.iter().map(mishap).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", then "))
    }
}

/// Returns a random kill. Early points are likelier: a process that resumes a session has less left
/// to do.
fn random_kill(random: &mut fastrand::Rng, extent: ProcessExtent) -> KillPoint {
    let mut early = |most: u64| {
        let bound = random.u64(1..=most.max(1));
        random.u64(1..=bound)
    };
    let write = early(extent.writes);
    let effect = early(extent.effects);
    let micros = early(extent.micros);
    match random.u8(0..5) {
        0 => KillPoint::BeforeWrite(write),
        1 => KillPoint::AfterWrite(write),
        2 => KillPoint::BeforeEffect(effect),
        3 => KillPoint::AfterEffect(effect),
        _ => KillPoint::AfterMicros(micros),
    }
}

fn nth_trouble(kind: u64, write: u64) -> StoreTrouble {
    match kind {
        0 => StoreTrouble::DiskFull(write),
        1 => StoreTrouble::Busy(write),
        2 => StoreTrouble::LostAnswer(write),
        _ => StoreTrouble::Slow(write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_kill_visits_every_point_and_starts_over() {
        let calm = [
            ProcessExtent {
                writes: 2,
                effects: 1,
                micros: 0,
            },
            ProcessExtent {
                writes: 0,
                effects: 0,
                micros: 0,
            },
        ];
        let first = |lap| {
            MishapPlan::plan_kills(lap, 1, &calm)
                .0
                .into_iter()
                .enumerate()
                .find_map(|(at, m)| Some((at, m?)))
        };
        let firsts: Vec<_> = (0..9).filter_map(first).collect();
        let all = [
            (0, KillPoint::BeforeWrite(1)),
            (0, KillPoint::AfterWrite(1)),
            (0, KillPoint::BeforeWrite(2)),
            (0, KillPoint::AfterWrite(2)),
            (0, KillPoint::BeforeEffect(1)),
            (0, KillPoint::AfterEffect(1)),
            (0, KillPoint::AfterMicros(0)),
            (1, KillPoint::AfterMicros(0)),
            (0, KillPoint::BeforeWrite(1)),
        ];
        assert_eq!(firsts, all.map(|(at, kill)| (at, ChildMishap::Kill(kill))));
    }

    #[test]
    fn troubles_visit_every_write_in_every_kind() {
        let calm = [ProcessExtent {
            writes: 2,
            effects: 0,
            micros: 0,
        }];
        let firsts: Vec<_> = (0..8)
            .map(|lap| MishapPlan::plan_troubles(lap, 1, &calm).0[0])
            .collect();
        for write in 1..=2 {
            for kind in 0..4 {
                assert!(firsts.contains(&Some(ChildMishap::Trouble(nth_trouble(kind, write)))));
            }
        }
    }
}
