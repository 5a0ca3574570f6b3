//! A scenario: what the model says, how the session is set up, and what happens step by step.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use toolgate::{
    Model, RunOptions, SessionBuilder,
    models::{Line, Scripted},
};

use crate::{
    stage::{Act, Moment},
    world::World,
};

pub type Setup = Arc<dyn Fn(&World, SessionBuilder) -> SessionBuilder + Send + Sync>;
pub type Options = Arc<dyn Fn(&World) -> RunOptions + Send + Sync>;
pub type MakeModel = Arc<dyn Fn() -> Arc<dyn Model> + Send + Sync>;

/// What is decided on a call that waits.
#[derive(Clone, Debug)]
pub enum Ruling {
    Approve,
    Deny(Option<&'static str>),
    Edit(Value),
}

/// One step of a scenario.
#[derive(Clone)]
pub enum Step {
    /// Says something and lets the model work.
    Run(&'static str, Options),
    /// Goes on where the session stopped.
    Resume(Options),
    /// Decides on the so-manieth call that waits.
    Decide(usize, Ruling),
    /// Lets time pass.
    Pass(Duration),
    /// Stops the turn that waits.
    Stop,
    /// The process is lost, and another one takes the session up.
    Lose,
}

/// What happens, for both regimes.
#[derive(Clone)]
pub struct Scenario {
    pub model: MakeModel,
    pub config: String,
    pub setup: Setup,
    pub steps: Vec<Step>,
    pub acts: Vec<(Moment, Act)>,
    pub sqlite: bool,
    /// Whether time passes by itself while something runs.
    pub ticking: bool,
}

impl Scenario {
    /// A scenario in which the model says these lines.
    pub fn of<L: Into<Line>>(lines: impl IntoIterator<Item = L>) -> Self {
        let lines: Vec<Line> = lines.into_iter().map(L::into).collect();
        Self::with_model(move || Arc::new(Scripted::new(lines.clone())))
    }

    /// A scenario with a model of its own.
    pub fn with_model(model: impl Fn() -> Arc<dyn Model> + Send + Sync + 'static) -> Self {
        Self {
            model: Arc::new(model),
            config: String::new(),
            setup: Arc::new(|_, builder| builder),
            steps: Vec::new(),
            acts: Vec::new(),
            sqlite: false,
            ticking: false,
        }
    }

    /// Adds to the configuration of the stack.
    pub fn config(mut self, text: &str) -> Self {
        self.config.push_str(text);
        self
    }

    /// Sets up the session.
    pub fn setup(
        mut self,
        with: impl Fn(&World, SessionBuilder) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        self.setup = Arc::new(with);
        self
    }

    /// Keeps everything in a file.
    pub fn on_sqlite(mut self) -> Self {
        self.sqlite = true;
        self
    }

    /// Lets time pass while something runs.
    pub fn ticking(mut self) -> Self {
        self.ticking = true;
        self
    }

    /// Somebody does something at a moment.
    pub fn at(mut self, moment: Moment, act: Act) -> Self {
        self.acts.push((moment, act));
        self
    }

    pub fn run(self, input: &'static str) -> Self {
        self.run_with(input, |_| RunOptions::new())
    }

    pub fn run_with(
        self,
        input: &'static str,
        options: impl Fn(&World) -> RunOptions + Send + Sync + 'static,
    ) -> Self {
        self.then(Step::Run(input, Arc::new(options)))
    }

    pub fn resume(self) -> Self {
        self.resume_with(|_| RunOptions::new())
    }

    pub fn resume_with(
        self,
        options: impl Fn(&World) -> RunOptions + Send + Sync + 'static,
    ) -> Self {
        self.then(Step::Resume(Arc::new(options)))
    }

    pub fn decide(self, at: usize, ruling: Ruling) -> Self {
        self.then(Step::Decide(at, ruling))
    }

    pub fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}
