//! A scenario: the replies of the model, the set-up of the session, and its steps.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use toolgate::{
    Model,
    model::{ScriptLine, ScriptedModel},
    session::{RunOptions, SessionBuilder},
};

use crate::modes::{
    stage::{ActMoment, UserAct},
    world::ModeWorld,
};

pub type ScenarioSetup = Arc<dyn Fn(&ModeWorld, SessionBuilder) -> SessionBuilder + Send + Sync>;
pub type MakeOptions = Arc<dyn Fn(&ModeWorld) -> RunOptions + Send + Sync>;
pub type MakeModel = Arc<dyn Fn() -> Arc<dyn Model> + Send + Sync>;

/// The decision on a pending call.
#[derive(Clone, Debug)]
pub enum ScenarioDecision {
    Approve,
    Deny(Option<&'static str>),
    Edit(Value),
}

/// One step of a scenario.
#[derive(Clone)]
pub enum ScenarioStep {
    /// Sends a message and runs the model.
    Run(&'static str, MakeOptions),
    /// Resumes the session.
    Resume(MakeOptions),
    /// Decides on the pending call at this position.
    Decide(usize, ScenarioDecision),
    /// Advances the clock.
    Pass(Duration),
    /// Interrupts the suspended turn.
    Stop,
    /// The process dies, and another one resumes the session.
    Lose,
}

/// A scenario for both modes.
#[derive(Clone)]
pub struct ModeScenario {
    pub model: MakeModel,
    pub config: String,
    pub setup: ScenarioSetup,
    pub steps: Vec<ScenarioStep>,
    pub acts: Vec<(ActMoment, UserAct)>,
    pub sqlite: bool,
    /// True if the clock advances by itself while something runs.
    pub ticking: bool,
}

impl ModeScenario {
    /// Creates a scenario in which the model replies with these lines.
    pub fn with_lines<L: Into<ScriptLine>>(lines: impl IntoIterator<Item = L>) -> Self {
        let lines: Vec<ScriptLine> = lines.into_iter().map(L::into).collect();
        Self::with_model(move || Arc::new(ScriptedModel::new(lines.clone())))
    }

    /// Creates a scenario with its own model.
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
        with: impl Fn(&ModeWorld, SessionBuilder) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        self.setup = Arc::new(with);
        self
    }

    /// Stores everything in a file.
    pub fn on_sqlite(mut self) -> Self {
        self.sqlite = true;
        self
    }

    /// Advances the clock while something runs.
    pub fn ticking(mut self) -> Self {
        self.ticking = true;
        self
    }

    /// Adds an act at a moment.
    pub fn at_moment(mut self, moment: ActMoment, act: UserAct) -> Self {
        self.acts.push((moment, act));
        self
    }

    pub fn run(self, input: &'static str) -> Self {
        self.run_with(input, |_| RunOptions::new())
    }

    pub fn run_with(
        self,
        input: &'static str,
        options: impl Fn(&ModeWorld) -> RunOptions + Send + Sync + 'static,
    ) -> Self {
        self.then(ScenarioStep::Run(input, Arc::new(options)))
    }

    pub fn resume(self) -> Self {
        self.resume_with(|_| RunOptions::new())
    }

    pub fn resume_with(
        self,
        options: impl Fn(&ModeWorld) -> RunOptions + Send + Sync + 'static,
    ) -> Self {
        self.then(ScenarioStep::Resume(Arc::new(options)))
    }

    pub fn decide(self, at: usize, ruling: ScenarioDecision) -> Self {
        self.then(ScenarioStep::Decide(at, ruling))
    }

    pub fn then(mut self, step: ScenarioStep) -> Self {
        self.steps.push(step);
        self
    }
}
