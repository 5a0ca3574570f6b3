//! Moments of a scenario at which the user acts: interrupts the run, or sends a message.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use futures::{StreamExt, stream, stream::BoxStream};
use tokio::sync::{mpsc, oneshot};
use toolgate::{
    Model,
    model::{Delta, ModelError, ModelName, ModelRequest},
};

/// A moment of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActMoment {
    /// The model request with this number in the scenario, counted from 0.
    Asked(u32),
    /// This tool runs.
    Runs(String),
    /// An approval request is pending.
    Waits,
}

/// An act of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserAct {
    /// Interrupts the run.
    Interrupt,
    /// Sends a message.
    Say(String),
}

/// An act that has to be performed before the scenario continues.
pub struct ActCue {
    pub act: UserAct,
    pub at: ActMoment,
    pub go_on: oneshot::Sender<()>,
}

/// The planned acts, by moment. Clones share them.
#[derive(Clone)]
pub struct ActStage {
    acts: Arc<Mutex<VecDeque<(ActMoment, UserAct)>>>,
    asked: Arc<AtomicU32>,
    cues: mpsc::UnboundedSender<ActCue>,
}

impl ActStage {
    pub fn new(
        acts: impl IntoIterator<Item = (ActMoment, UserAct)>,
    ) -> (Self, mpsc::UnboundedReceiver<ActCue>) {
        let (cues, heard) = mpsc::unbounded_channel();
        let acts = Arc::new(Mutex::new(acts.into_iter().collect()));
        (
            Self {
                acts,
                asked: Arc::default(),
                cues,
            },
            heard,
        )
    }

    /// Returns the moment of the next model request.
    pub fn request_moment(&self) -> ActMoment {
        ActMoment::Asked(self.asked.fetch_add(1, Ordering::SeqCst))
    }

    /// Takes the act that is planned for a moment.
    pub fn take_act(&self, moment: &ActMoment) -> Option<UserAct> {
        let mut acts = self.acts.lock().expect("whole");
        let next = acts.front().is_some_and(|(at, _)| at == moment);
        next.then(|| acts.pop_front()).flatten().map(|(_, act)| act)
    }

    /// Requests the act that is planned for a moment, and waits for it.
    pub async fn reach_moment(&self, moment: ActMoment) {
        if let Some(act) = self.take_act(&moment) {
            let (go_on, gone_on) = oneshot::channel();
            self.cues
                .send(ActCue {
                    act,
                    at: moment,
                    go_on,
                })
                .expect("the test receives cues");
            let _ = gone_on.await;
        }
    }

    /// Returns true if every act was performed.
    pub fn is_over(&self) -> bool {
        self.acts.lock().expect("whole").is_empty()
    }
}

/// A model that notifies the stage of each request.
pub struct StagedModel {
    pub model: Arc<dyn Model>,
    pub stage: ActStage,
}

impl Model for StagedModel {
    fn name(&self) -> &ModelName {
        self.model.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let moment = self.stage.request_moment();
        stream::once(self.stage.reach_moment(moment))
            .flat_map(|()| self.model.reply(request))
            .boxed()
    }
}
