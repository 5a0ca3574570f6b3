//! The side of the parent: starts the child, kills it, looks at the store, starts it again.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use toolgate_core::{SessionId, StoreHandle};
use uuid::Uuid;

use super::{
    Chains, CrashChild, EffectLog, Extent, Facts, Kill, Mishap, Mishaps, Seen,
    child::{Account, Order},
    compare, kept,
};

/// A store in which cases are run one after the other, each in a session of its own.
pub struct World {
    store: StoreHandle,
    place: String,
    dir: PathBuf,
    command: Box<dyn Fn() -> Command + Send>,
    chains: Chains,
    cases: u64,
}

/// What came of one case.
#[derive(Debug)]
pub struct CaseReport {
    /// Which scenario.
    pub scenario: String,
    /// How often the child was killed, by the places of [`Kill::KINDS`].
    pub kills: [u32; Kill::KINDS.len()],
    /// What the child said when an error of the store stopped it.
    pub stops: Vec<String>,
    /// How much each process of the case did, as far as it ended by itself.
    pub extents: Vec<Extent>,
    /// How the session looks at the end.
    pub seen: Seen,
    /// Every rule that was broken.
    pub violations: Vec<String>,
}

impl CaseReport {
    /// Compares the end with that of a case without mishaps.
    pub fn judged(mut self, calm: &Seen, facts: &Facts) -> Self {
        self.violations.extend(compare(calm, &self.seen, facts));
        self
    }
}

/// How one process ended.
enum End {
    Done,
    Waiting,
    Killed,
    Stopped(String),
    Failed(String),
}

impl World {
    /// More starts than any sound scenario needs.
    const MOST_STARTS: u32 = 40;

    /// Much longer than a child takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A world in `store`, which the child finds at `place`. `command` starts the child; `dir`, which is made if need
    /// be, is for files of cases.
    pub fn new(
        store: StoreHandle,
        place: impl Into<String>,
        dir: impl Into<PathBuf>,
        command: impl Fn() -> Command + Send + 'static,
    ) -> Self {
        let (place, dir, chains) = (place.into(), dir.into(), Chains::default());
        Self {
            store,
            place,
            dir,
            command: Box::new(command),
            chains,
            cases: 0,
        }
    }

    /// The store.
    pub fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// Runs a scenario in a new session until it is done. This blocks the thread while a child runs.
    pub async fn run(&mut self, scenario: &str, mishaps: &Mishaps) -> io::Result<CaseReport> {
        self.cases += 1;
        fs::create_dir_all(&self.dir)?;
        let session = SessionId::new(Uuid::now_v7());
        let effects = EffectLog::at(self.dir.join(format!("case-{}.effects", self.cases)));
        let mut report = CaseReport {
            scenario: scenario.to_owned(),
            kills: [0; Kill::KINDS.len()],
            stops: Vec::new(),
            extents: Vec::new(),
            seen: Seen::default(),
            violations: Vec::new(),
        };
        for start in 0..Self::MOST_STARTS {
            let mishap = mishaps.0.get(start as usize).copied().flatten();
            let order = Order {
                scenario: scenario.to_owned(),
                place: self.place.clone(),
                session,
                effects: effects.path().to_owned(),
                account: self.dir.join(format!("case-{}.account", self.cases)),
                start,
                mishap,
            };
            let end = self.start_child(&order, &mut report.extents)?;
            let seen = Seen::look(&self.store, session, &effects, &mut self.chains)
                .await
                .map_err(io::Error::other)?;
            report.violations.extend(kept(&report.seen, &seen));
            report.seen = seen;
            if !matches!(end, End::Done) {
                report.violations.extend(report.seen.broken.iter().cloned());
            }
            match (end, mishap) {
                (End::Done, _) => return Ok(report),
                (End::Waiting, _) => {}
                (End::Killed, Some(Mishap::Kill(kill))) => report.kills[kill.kind()] += 1,
                (End::Stopped(why), Some(Mishap::Trouble(_))) => report.stops.push(why),
                (End::Killed, _) => report
                    .violations
                    .push(format!("start {start} was killed by somebody else")),
                (End::Stopped(why), _) => report
                    .violations
                    .push(format!("start {start} stopped by itself: {why}")),
                (End::Failed(why), _) => {
                    report
                        .violations
                        .push(format!("start {start} failed: {why}"));
                    return Ok(report);
                }
            }
        }
        report
            .violations
            .push(format!("it is not done after {} starts", Self::MOST_STARTS));
        Ok(report)
    }

    fn start_child(&self, order: &Order, extents: &mut Vec<Extent>) -> io::Result<End> {
        let said = self.dir.join(format!("case-{}.said", self.cases));
        let _ = fs::remove_file(&order.account);
        let mut command = (self.command)();
        command
            .env(CrashChild::VARIABLE, serde_json::to_string(order)?)
            .env_remove("NEXTEST");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said)?);
        let kill_after = match order.mishap {
            Some(Mishap::Kill(Kill::AfterMicros(micros))) => Some(Duration::from_micros(micros)),
            _ => None,
        };
        let start = Instant::now();
        let Some(status) = wait(command, kill_after)? else {
            return Ok(End::Failed(format!(
                "it did not end within {} s",
                Self::PATIENCE.as_secs()
            )));
        };
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let account = fs::read(&order.account)
            .ok()
            .and_then(|text| serde_json::from_slice::<Account>(&text).ok());
        let ended = match (status.code(), account) {
            (Some(code), Some(account)) => {
                extents.push(Extent {
                    writes: account.writes,
                    effects: account.effects,
                    micros,
                });
                match (code, account.stopped) {
                    (CrashChild::DONE, _) => End::Done,
                    (CrashChild::WAITING, _) => End::Waiting,
                    (CrashChild::STOPPED, why) => End::Stopped(why.unwrap_or_default()),
                    (code, _) => End::Failed(format!("exit code {code}")),
                }
            }
            (None, _) => End::Killed,
            (Some(code), None) => {
                let said = fs::read_to_string(&said).unwrap_or_default();
                End::Failed(format!(
                    "exit code {code} and no word how it ended; it said:\n{said}"
                ))
            }
        };
        Ok(ended)
    }
}

/// Waits for a process to end; nothing if it takes too long. Kills it after some time, if asked to.
fn wait(mut command: Command, kill_after: Option<Duration>) -> io::Result<Option<ExitStatus>> {
    let mut child = command.spawn()?;
    if let Some(span) = kill_after {
        std::thread::sleep(span);
        // One that has ended by then is not there to be killed.
        let _ = child.kill();
    }
    let start = Instant::now();
    while start.elapsed() < World::PATIENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
