//! Measures things in interleaved rounds and prints them as one table.
//!
//! These machines are shared and noisy, so nothing is read alone: every row has a floor that was measured in the
//! same rounds, and the ratio of the two is what counts.

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

use serde::Serialize;

/// One line of the cost sheet.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CostRow {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The cost of the same work without Toolgate; `None` if there is no such work.
    pub(crate) floor: Option<f64>,
    pub(crate) ratio: Option<f64>,
    /// The description of the floor; only for people.
    #[serde(skip)]
    pub(crate) note: String,
    /// The goal, if there is one; only for people.
    #[serde(skip)]
    pub(crate) goal: Option<CostGoal>,
}

/// The goal of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CostGoal {
    RatioAtLeast(f64),
    RatioAtMost(f64),
    ValueAtMost(f64),
}

impl CostRow {
    pub(crate) fn new(
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        floor: Option<f64>,
        note: &str,
    ) -> Self {
        let ratio = floor
            .filter(|floor| *floor > 0.0)
            .map(|floor| value / floor);
        Self {
            name: name.into(),
            value,
            unit,
            floor,
            ratio,
            note: note.to_owned(),
            goal: None,
        }
    }

    /// Sets the goal of the row.
    pub(crate) fn aiming(self, goal: CostGoal) -> Self {
        Self {
            goal: Some(goal),
            ..self
        }
    }

    /// Returns the goal and whether it is reached, as text.
    pub(crate) fn verdict(&self) -> String {
        let ratio = self.ratio.unwrap_or(f64::NAN);
        let (aim, met) = match self.goal {
            None => return String::new(),
            Some(CostGoal::RatioAtLeast(least)) => {
                (format!("ratio at least {least}"), ratio >= least)
            }
            Some(CostGoal::RatioAtMost(most)) => (format!("ratio at most {most}"), ratio <= most),
            Some(CostGoal::ValueAtMost(most)) => {
                (format!("at most {most} {}", self.unit), self.value <= most)
            }
        };
        format!("{aim}: {}", if met { "met" } else { "missed" })
    }
}

/// The clock for a contender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchClock {
    /// Processor time: disturbed least by a busy machine.
    Cpu,
    /// Wall-clock time, for work that mostly waits.
    Wall,
}

type RoundWork<'a> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + 'a>> + 'a>;

/// Several ways to do something, measured in turns.
pub(crate) struct Contest<'a> {
    watch: BenchClock,
    contenders: Vec<(&'static str, f64, RoundWork<'a>)>,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(watch: BenchClock) -> Self {
        Self {
            watch,
            contenders: Vec::new(),
        }
    }

    /// Adds a contender that does `count` things per round.
    pub(crate) fn add<F, Fut>(mut self, name: &'static str, count: usize, work: F) -> Self
    where
        F: Fn() -> Fut + 'a,
        Fut: Future<Output = ()> + 'a,
    {
        self.contenders
            .push((name, count as f64, Box::new(move || Box::pin(work()))));
        self
    }

    /// Returns the median time of one thing in nanoseconds, by contender.
    pub(crate) async fn run(self, rounds: usize) -> Vec<(&'static str, f64)> {
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); self.contenders.len()];
        for round in 0..rounds + 2 {
            for (at, (_, count, work)) in self.contenders.iter().enumerate() {
                if self.watch == BenchClock::Cpu {
                    settle_allocator(work).await;
                }
                let cpu = cpu_ns();
                let wall = Instant::now();
                work().await;
                let spent = match self.watch {
                    BenchClock::Cpu => cpu_ns() - cpu,
                    BenchClock::Wall => {
                        u64::try_from(wall.elapsed().as_nanos()).unwrap_or(u64::MAX)
                    }
                };
                // The first rounds warm up caches and allocators.
                if round >= 2 {
                    times[at].push(spent as f64 / count);
                }
            }
        }
        self.contenders
            .iter()
            .zip(times)
            .map(|((name, ..), times)| (*name, median(times)))
            .collect()
    }
}

/// Runs a contender untimed for longer than the allocator waits before it returns free pages, so that
/// the pages of the contender before it are not returned at its expense.
async fn settle_allocator(work: &RoundWork<'_>) {
    /// Twice the delay that mimalloc has by default.
    const SETTLED: Duration = Duration::from_millis(20);
    let start = Instant::now();
    while start.elapsed() < SETTLED {
        work().await;
    }
}

pub(crate) fn of(results: &[(&'static str, f64)], name: &str) -> f64 {
    results
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(f64::NAN, |(_, time)| *time)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the processor time of this process.
#[expect(unsafe_code, reason = "the standard library has no processor clock")]
pub(crate) fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the call only writes to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Prints rows for people or as JSON.
pub(crate) fn print(rows: &[CostRow], json: bool) -> Result<(), serde_json::Error> {
    if json {
        println!("{}", serde_json::to_string_pretty(rows)?);
        return Ok(());
    }
    println!(
        "{:<52} {:>16} {:>12} {:>8}  floor",
        "what", "value", "floor", "ratio"
    );
    for row in rows {
        let number =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let value = format!("{:.2} {}", row.value, row.unit);
        let floor = number(row.floor);
        let ratio = number(row.ratio);
        println!(
            "{:<52} {value:>16} {floor:>12} {ratio:>8}  {:<44} {}",
            row.name,
            row.note,
            row.verdict()
        );
    }
    Ok(())
}
