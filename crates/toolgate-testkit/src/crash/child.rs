//! The child process: its order, and a store that fails as planned.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, channel::oneshot, future::BoxFuture};
use serde::{Deserialize, Serialize};
use toolgate_core::{SessionId, Store, StoreError};

use super::{ChildMishap, EffectLog, KillPoint, StoreTrouble};
use crate::{FaultyStore, StoreCall, StoreFault};

/// The task of a child process. Ends the process when it is done.
#[derive(Debug)]
pub struct CrashChild {
    order: ChildOrder,
    effects: EffectLog,
    writes: Arc<AtomicU64>,
}

/// The way in which a child process ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildEnd {
    /// The scenario is complete.
    Done,
    /// It waits for an external input, and continues with the next start.
    Waiting,
    /// It could not continue, for this reason. After an error of the store this is a valid end.
    Stopped(String),
}

/// The order that the parent gives the child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ChildOrder {
    pub(super) scenario: String,
    pub(super) place: String,
    pub(super) session: SessionId,
    pub(super) effects: PathBuf,
    pub(super) account: PathBuf,
    pub(super) start: u32,
    pub(super) mishap: Option<ChildMishap>,
}

/// The data that the child leaves for the parent when it ends by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ChildReport {
    pub(super) writes: u64,
    pub(super) effects: u64,
    pub(super) stopped: Option<String>,
}

impl CrashChild {
    /// The environment variable that holds the order.
    pub const VARIABLE: &'static str = "TOOLGATE_CRASH_CHILD";

    pub(super) const DONE: i32 = 0;
    pub(super) const WAITING: i32 = 64;
    pub(super) const STOPPED: i32 = 65;

    /// Returns the task of this process, if it was started by a parent of this kit.
    pub fn from_env() -> Option<Self> {
        let order = std::env::var(Self::VARIABLE).ok()?;
        let order: ChildOrder =
            serde_json::from_str(&order).expect("the parent writes a readable order");
        let kill = match order.mishap {
            Some(ChildMishap::Kill(kill)) => Some(kill),
            Some(ChildMishap::Trouble(_)) | None => None,
        };
        let effects = EffectLog::open_at(order.effects.clone()).with_kill(kill);
        Some(Self {
            order,
            effects,
            writes: Arc::default(),
        })
    }

    /// Returns the name of the scenario to drive.
    pub fn scenario(&self) -> &str {
        &self.order.scenario
    }

    /// Returns the location of the store.
    pub fn store_location(&self) -> &str {
        &self.order.place
    }

    /// Returns the session to drive.
    pub fn session(&self) -> SessionId {
        self.order.session
    }

    /// Returns the number of this start within the case, counted from 0.
    pub fn start_number(&self) -> u32 {
        self.order.start
    }

    /// Returns the log in which tools record their effects.
    pub fn effects(&self) -> &EffectLog {
        &self.effects
    }

    /// Returns the log in which callbacks record that they were called: a separate log without
    /// planned kills.
    pub fn notices(&self) -> EffectLog {
        EffectLog::open_at(notices_path(&self.order.effects))
    }

    /// Returns the log in which models record what they were asked for: a separate log without
    /// planned kills.
    pub fn model_requests(&self) -> EffectLog {
        EffectLog::open_at(model_requests_path(&self.order.effects))
    }

    /// Puts the planned failures of this process in front of the store.
    pub fn wrap_store<S: Store>(&self, inner: S) -> FaultyStore<S> {
        let mishap = self.order.mishap;
        let writes = self.writes.clone();
        FaultyStore::new(inner, move |call: StoreCall, write| {
            writes.fetch_max(write, Ordering::SeqCst);
            // Reads always pass: the numbers of a plan count writes only.
            if call.is_write() {
                planned_fault(mishap, write)
            } else {
                StoreFault::Pass
            }
        })
    }

    /// Ends the process and reports to the parent how.
    pub fn exit_with(self, ended: ChildEnd) -> ! {
        let (code, stopped) = match ended {
            ChildEnd::Done => (Self::DONE, None),
            ChildEnd::Waiting => (Self::WAITING, None),
            ChildEnd::Stopped(why) => (Self::STOPPED, Some(why)),
        };
        let account = ChildReport {
            writes: self.writes.load(Ordering::SeqCst),
            effects: self.effects.effect_count(),
            stopped,
        };
        let text = serde_json::to_vec(&account).expect("an account is plain data");
        fs::write(&self.order.account, text).expect("the parent's directory can be written to");
        std::process::exit(code)
    }
}

/// Returns the path of a case's notices, given the path of its effects.
pub(super) fn notices_path(effects: &Path) -> PathBuf {
    effects.with_extension("notices")
}

/// Returns the path of a case's model requests, given the path of its effects.
pub(super) fn model_requests_path(effects: &Path) -> PathBuf {
    effects.with_extension("asks")
}

fn planned_fault(mishap: Option<ChildMishap>, write: u64) -> StoreFault {
    match mishap {
        Some(ChildMishap::Kill(KillPoint::BeforeWrite(at))) if at == write => {
            StoreFault::KillBefore
        }
        Some(ChildMishap::Kill(KillPoint::AfterWrite(at))) if at == write => StoreFault::KillAfter,
        Some(ChildMishap::Trouble(StoreTrouble::DiskFull(from))) if write >= from => {
            StoreFault::Fail(store_failure("the disk is full"))
        }
        Some(ChildMishap::Trouble(StoreTrouble::Busy(at))) if at == write => {
            StoreFault::Fail(store_failure("the database is busy"))
        }
        Some(ChildMishap::Trouble(StoreTrouble::LostAnswer(at))) if at == write => {
            StoreFault::DoneButFail(store_failure("the connection was lost"))
        }
        Some(ChildMishap::Trouble(StoreTrouble::Slow(at))) if at == write => {
            StoreFault::Wait(short_delay())
        }
        _ => StoreFault::Pass,
    }
}

fn store_failure(why: &'static str) -> StoreError {
    StoreError::Backend(Box::new(InjectedFailure(why)))
}

/// Waits a time that is long for a disk and short for a test.
fn short_delay() -> BoxFuture<'static, ()> {
    // A thread, because the child may use any runtime, or a paused clock.
    let (tell, told) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(tell);
    });
    told.map(|_| ()).boxed()
}

/// A planned failure.
#[derive(Debug)]
struct InjectedFailure(&'static str);

impl fmt::Display for InjectedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InjectedFailure {}
