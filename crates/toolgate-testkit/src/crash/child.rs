//! The side of the child process: what it is to do, and a store that fails as planned.

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

use super::{EffectLog, Kill, Mishap, Trouble};
use crate::{Fault, FaultyStore, StoreCall};

/// What a child process was started for. Ends the process when it is done.
#[derive(Debug)]
pub struct CrashChild {
    order: Order,
    effects: EffectLog,
    writes: Arc<AtomicU64>,
}

/// How a child process ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The scenario is over.
    Done,
    /// It waits for somebody outside, and goes on with the next start.
    Waiting,
    /// It could not go on, and says why. With an error of the store this is a good end.
    Stopped(String),
}

/// What the parent tells the child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) scenario: String,
    pub(super) place: String,
    pub(super) session: SessionId,
    pub(super) effects: PathBuf,
    pub(super) account: PathBuf,
    pub(super) start: u32,
    pub(super) mishap: Option<Mishap>,
}

/// What the child leaves behind for the parent when it ends by itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Account {
    pub(super) writes: u64,
    pub(super) effects: u64,
    pub(super) stopped: Option<String>,
}

impl CrashChild {
    /// The environment variable in which the order comes.
    pub const VARIABLE: &'static str = "TOOLGATE_CRASH_CHILD";

    pub(super) const DONE: i32 = 0;
    pub(super) const WAITING: i32 = 64;
    pub(super) const STOPPED: i32 = 65;

    /// What this process was started for, if it is a child of a parent of this kit.
    pub fn from_env() -> Option<Self> {
        let order = std::env::var(Self::VARIABLE).ok()?;
        let order: Order =
            serde_json::from_str(&order).expect("the parent writes a readable order");
        let kill = match order.mishap {
            Some(Mishap::Kill(kill)) => Some(kill),
            Some(Mishap::Trouble(_)) | None => None,
        };
        let effects = EffectLog::at(order.effects.clone()).with_kill(kill);
        Some(Self {
            order,
            effects,
            writes: Arc::default(),
        })
    }

    /// Which scenario is to be driven.
    pub fn scenario(&self) -> &str {
        &self.order.scenario
    }

    /// Where the store is.
    pub fn place(&self) -> &str {
        &self.order.place
    }

    /// Which session is to be driven.
    pub fn session(&self) -> SessionId {
        self.order.session
    }

    /// The how-manieth start of this case it is, counted from 0.
    pub fn start(&self) -> u32 {
        self.order.start
    }

    /// Where tools write what they do.
    pub fn effects(&self) -> &EffectLog {
        &self.effects
    }

    /// Where callbacks write that they were called: a log of its own, without planned kills.
    pub fn notices(&self) -> EffectLog {
        EffectLog::at(notices_of(&self.order.effects))
    }

    /// Where models write what they were asked for: a log of its own, without planned kills.
    pub fn asks(&self) -> EffectLog {
        EffectLog::at(asks_of(&self.order.effects))
    }

    /// Puts what is planned for this process in front of the store.
    pub fn store<S: Store>(&self, inner: S) -> FaultyStore<S> {
        let (mishap, writes) = (self.order.mishap, self.writes.clone());
        FaultyStore::new(inner, move |call: StoreCall, write| {
            writes.fetch_max(write, Ordering::SeqCst);
            if call.writes() {
                fault(mishap, write)
            } else {
                Fault::Pass
            }
        })
    }

    /// Ends the process and tells the parent how.
    pub fn end(self, ended: Ended) -> ! {
        let (code, stopped) = match ended {
            Ended::Done => (Self::DONE, None),
            Ended::Waiting => (Self::WAITING, None),
            Ended::Stopped(why) => (Self::STOPPED, Some(why)),
        };
        let account = Account {
            writes: self.writes.load(Ordering::SeqCst),
            effects: self.effects.written(),
            stopped,
        };
        let text = serde_json::to_vec(&account).expect("an account is plain data");
        fs::write(&self.order.account, text).expect("the parent's directory can be written to");
        std::process::exit(code)
    }
}

/// Where the notices of a case are, given where its effects are.
pub(super) fn notices_of(effects: &Path) -> PathBuf {
    effects.with_extension("notices")
}

/// Where it is noted what models were asked for in a case, given where its effects are.
pub(super) fn asks_of(effects: &Path) -> PathBuf {
    effects.with_extension("asks")
}

fn fault(mishap: Option<Mishap>, write: u64) -> Fault {
    match mishap {
        Some(Mishap::Kill(Kill::BeforeWrite(at))) if at == write => Fault::KillBefore,
        Some(Mishap::Kill(Kill::AfterWrite(at))) if at == write => Fault::KillAfter,
        Some(Mishap::Trouble(Trouble::DiskFull(from))) if write >= from => {
            Fault::Fail(failed("the disk is full"))
        }
        Some(Mishap::Trouble(Trouble::Busy(at))) if at == write => {
            Fault::Fail(failed("the database is busy"))
        }
        Some(Mishap::Trouble(Trouble::LostAnswer(at))) if at == write => {
            Fault::DoneButFail(failed("the connection was lost"))
        }
        Some(Mishap::Trouble(Trouble::Slow(at))) if at == write => Fault::Wait(a_while()),
        _ => Fault::Pass,
    }
}

fn failed(why: &'static str) -> StoreError {
    StoreError::Backend(Box::new(Injected(why)))
}

/// Long for a disk, short for a test. No clock of a runtime is needed.
fn a_while() -> BoxFuture<'static, ()> {
    let (tell, told) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(tell);
    });
    told.map(|_| ()).boxed()
}

/// A failure that was planned.
#[derive(Debug)]
struct Injected(&'static str);

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Injected {}
