//! The parent process: starts the child, kills it, inspects the store, starts it again.

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
    ChildMishap, CrashChild, EffectLog, KillPoint, LedgerChains, MishapPlan, ProcessExtent,
    ScenarioFacts, SessionSnapshot,
    child::{ChildOrder, ChildReport},
    compare_runs, find_losses,
};

/// A store in which cases are run one after the other, each in a session of its own.
pub struct CrashWorld {
    store: StoreHandle,
    place: String,
    dir: PathBuf,
    command: Box<dyn Fn() -> Command + Send>,
    chains: LedgerChains,
    cases: u64,
}

/// The result of one case.
#[derive(Debug)]
pub struct CaseReport {
    /// The scenario's name.
    pub scenario: String,
    /// The number of kills, by the positions of [`KillPoint::KINDS`].
    pub kills: [u32; KillPoint::KINDS.len()],
    /// The reasons of the child when an error of the store stopped it.
    pub stops: Vec<String>,
    /// The extent of each process that ended by itself.
    pub extents: Vec<ProcessExtent>,
    /// The session at the end.
    pub seen: SessionSnapshot,
    /// Every rule that was broken.
    pub violations: Vec<String>,
}

impl CaseReport {
    /// Adds the differences from a case without mishaps.
    pub fn compare_with(mut self, calm: &SessionSnapshot, facts: &ScenarioFacts) -> Self {
        self.violations
            .extend(compare_runs(calm, &self.seen, facts));
        self
    }
}

/// The way in which one process ended.
enum ProcessEnd {
    Done,
    Waiting,
    Killed,
    Stopped(String),
    Failed(String),
}

impl CrashWorld {
    /// More starts than any correct scenario needs.
    const MAX_STARTS: u32 = 40;

    /// Much longer than a child takes.
    const CHILD_TIMEOUT: Duration = Duration::from_secs(60);

    /// Creates a world in `store`, which the child finds at `place`. `command` starts the child;
    /// `dir`, which is created if needed, is for files of cases.
    pub fn new(
        store: StoreHandle,
        place: impl Into<String>,
        dir: impl Into<PathBuf>,
        command: impl Fn() -> Command + Send + 'static,
    ) -> Self {
        let place = place.into();
        let dir = dir.into();
        let chains = LedgerChains::default();
        Self {
            store,
            place,
            dir,
            command: Box::new(command),
            chains,
            cases: 0,
        }
    }

    /// Returns the store.
    pub fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// Runs a scenario in a new session until it is done. This blocks the thread while a child
    /// runs.
    ///
    /// # Errors
    /// If files of the case cannot be written, the child cannot be started, or the store cannot be
    /// read.
    pub async fn run_case(
        &mut self,
        scenario: &str,
        mishaps: &MishapPlan,
    ) -> io::Result<CaseReport> {
        self.cases += 1;
        fs::create_dir_all(&self.dir)?;
        let session = SessionId::new(Uuid::now_v7());
        let effects = EffectLog::open_at(self.dir.join(format!("case-{}.effects", self.cases)));
        let mut report = CaseReport {
            scenario: scenario.to_owned(),
            kills: [0; KillPoint::KINDS.len()],
            stops: Vec::new(),
            extents: Vec::new(),
            seen: SessionSnapshot::default(),
            violations: Vec::new(),
        };
        for start in 0..Self::MAX_STARTS {
            let mishap = mishaps.0.get(start as usize).copied().flatten();
            let order = ChildOrder {
                scenario: scenario.to_owned(),
                place: self.place.clone(),
                session,
                effects: effects.path().to_owned(),
                account: self.dir.join(format!("case-{}.account", self.cases)),
                start,
                mishap,
            };
            let end = self.start_child(&order, &mut report.extents)?;
            let seen = SessionSnapshot::inspect(&self.store, session, &effects, &mut self.chains)
                .await
                .map_err(io::Error::other)?;
            // After every start, not only at the end: a loss that a later process repairs is still
            // a loss.
            report.violations.extend(find_losses(&report.seen, &seen));
            report.seen = seen;
            if !matches!(end, ProcessEnd::Done) {
                report.violations.extend(report.seen.broken.iter().cloned());
            }
            match (end, mishap) {
                (ProcessEnd::Done, _) => return Ok(report),
                (ProcessEnd::Waiting, _) => {}
                (ProcessEnd::Killed, Some(ChildMishap::Kill(kill))) => {
                    report.kills[kill.kind()] += 1
                }
                (ProcessEnd::Stopped(why), Some(ChildMishap::Trouble(_))) => report.stops.push(why),
                (ProcessEnd::Killed, _) => report
                    .violations
                    .push(format!("start {start} was killed by another process")),
                (ProcessEnd::Stopped(why), _) => report
                    .violations
                    .push(format!("start {start} stopped by itself: {why}")),
                (ProcessEnd::Failed(why), _) => {
                    report
                        .violations
                        .push(format!("start {start} failed: {why}"));
                    return Ok(report);
                }
            }
        }
        report
            .violations
            .push(format!("not done after {} starts", Self::MAX_STARTS));
        Ok(report)
    }

    fn start_child(
        &self,
        order: &ChildOrder,
        extents: &mut Vec<ProcessExtent>,
    ) -> io::Result<ProcessEnd> {
        let said = self.dir.join(format!("case-{}.said", self.cases));
        // The report of an earlier start must not be read as this one's.
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
            Some(ChildMishap::Kill(KillPoint::AfterMicros(micros))) => {
                Some(Duration::from_micros(micros))
            }
            _ => None,
        };
        let start = Instant::now();
        let Some(status) = wait_for_child(command, kill_after)? else {
            return Ok(ProcessEnd::Failed(format!(
                "it did not end within {} s",
                Self::CHILD_TIMEOUT.as_secs()
            )));
        };
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let account = fs::read(&order.account)
            .ok()
            .and_then(|text| serde_json::from_slice::<ChildReport>(&text).ok());
        let ended = match (status.code(), account) {
            (Some(code), Some(account)) => {
                extents.push(ProcessExtent {
                    writes: account.writes,
                    effects: account.effects,
                    micros,
                });
                match (code, account.stopped) {
                    (CrashChild::DONE, _) => ProcessEnd::Done,
                    (CrashChild::WAITING, _) => ProcessEnd::Waiting,
                    (CrashChild::STOPPED, why) => ProcessEnd::Stopped(why.unwrap_or_default()),
                    (code, _) => ProcessEnd::Failed(format!("exit code {code}")),
                }
            }
            (None, _) => ProcessEnd::Killed,
            (Some(code), None) => {
                let said = fs::read_to_string(&said).unwrap_or_default();
                ProcessEnd::Failed(format!(
                    "exit code {code} and no report; its stderr:\n{said}"
                ))
            }
        };
        Ok(ended)
    }
}

/// Waits for a process to end; returns `None` if it takes too long. Kills it after some time, if
/// requested.
fn wait_for_child(
    mut command: Command,
    kill_after: Option<Duration>,
) -> io::Result<Option<ExitStatus>> {
    let mut child = command.spawn()?;
    if let Some(span) = kill_after {
        std::thread::sleep(span);
        // A child that has ended by then cannot be killed any more.
        let _ = child.kill();
    }
    let start = Instant::now();
    while start.elapsed() < CrashWorld::CHILD_TIMEOUT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
