//! Moments of a scenario at which somebody does something: stops the run, or says something.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use futures::{StreamExt, stream, stream::BoxStream};
use tokio::sync::{mpsc, oneshot};
use toolgate::{Delta, Model, ModelError, ModelName, ModelRequest};

/// When something is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// The model is asked for the so-manieth time in the scenario, counted from 0.
    Asked(u32),
    /// This tool runs.
    Runs(String),
    /// Somebody is asked and has not answered.
    Waits,
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// The run is stopped.
    Interrupt,
    /// Somebody says something.
    Say(String),
}

/// Something that has to be done before the scenario goes on.
pub struct Cue {
    pub act: Act,
    pub at: Moment,
    pub go_on: oneshot::Sender<()>,
}

/// What is to be done when. Cloning shares it.
#[derive(Clone)]
pub struct Stage {
    acts: Arc<Mutex<VecDeque<(Moment, Act)>>>,
    asked: Arc<AtomicU32>,
    cues: mpsc::UnboundedSender<Cue>,
}

impl Stage {
    pub fn new(
        acts: impl IntoIterator<Item = (Moment, Act)>,
    ) -> (Self, mpsc::UnboundedReceiver<Cue>) {
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

    /// The moment at which the model is asked now.
    pub fn asked(&self) -> Moment {
        Moment::Asked(self.asked.fetch_add(1, Ordering::SeqCst))
    }

    /// What is to be done now, if anything.
    pub fn take(&self, moment: &Moment) -> Option<Act> {
        let mut acts = self.acts.lock().expect("whole");
        let next = acts.front().is_some_and(|(at, _)| at == moment);
        next.then(|| acts.pop_front()).flatten().map(|(_, act)| act)
    }

    /// Lets happen what is to happen now, and waits for it.
    pub async fn reached(&self, moment: Moment) {
        if let Some(act) = self.take(&moment) {
            let (go_on, gone_on) = oneshot::channel();
            self.cues
                .send(Cue {
                    act,
                    at: moment,
                    go_on,
                })
                .expect("somebody directs");
            let _ = gone_on.await;
        }
    }

    /// Whether everything was done.
    pub fn is_over(&self) -> bool {
        self.acts.lock().expect("whole").is_empty()
    }
}

/// A model that tells the stage when it is asked.
pub struct Staged {
    pub model: Arc<dyn Model>,
    pub stage: Stage,
}

impl Model for Staged {
    fn name(&self) -> &ModelName {
        self.model.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let moment = self.stage.asked();
        stream::once(self.stage.reached(moment))
            .flat_map(|()| self.model.reply(request))
            .boxed()
    }
}
