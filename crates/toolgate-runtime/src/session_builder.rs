//! Puts a session together.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};
use toolgate_core::{
    AgentId, Budgets, Effort, Model, ModelName, OutputFormat, Payer, Prices, Principal,
    RegisterError, Registry, SessionId, Stack, StackError, Store, TurnId, TurnInfo, UnknownPrice,
    Weight,
};

use crate::{
    Agent, Dispatcher, DispatcherBuilder, OnCap, Session, SessionError, Spending, Strategy,
    conversation::Conversation, session::Shared,
};

/// What the model is asked with in every round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asking {
    pub(crate) instructions: Option<Arc<str>>,
    /// The same, with the request to come to an end.
    pub(crate) closing: Arc<str>,
    pub(crate) parallel_calls: Option<bool>,
    pub(crate) output: Option<OutputFormat>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) temperature: Option<f32>,
    pub(crate) effort: Option<Effort>,
    pub(crate) cache: bool,
    pub(crate) weight: Option<Weight>,
    pub(crate) extra: Map<String, Value>,
}

/// How far a run may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_iterations: u32,
    pub(crate) on_cap: OnCap,
    pub(crate) loop_rounds: u32,
    pub(crate) window_bytes: usize,
    pub(crate) waits: bool,
}

/// Puts a session together.
#[must_use = "a session is made by `build`"]
pub struct SessionBuilder {
    model: Arc<dyn Model>,
    registry: Registry,
    stack: Option<Stack>,
    configure: Vec<Box<dyn FnOnce(DispatcherBuilder) -> DispatcherBuilder + Send>>,
    allowed: Option<Vec<String>>,
    ask: Asking,
    limits: Limits,
    strategies: Vec<Arc<dyn Strategy>>,
    agents: Vec<Agent>,
    who: TurnInfo,
    budgets: Budgets,
    prices: Arc<Prices>,
    payer: Payer,
    /// The session and run that this one works for, if somebody delegated to it.
    works_for: Option<(SessionId, u64)>,
    unknown: UnknownPrice,
    may_use: Vec<ModelName>,
}

/// Why a session cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionBuildError {
    /// The layers do not fit together.
    #[error("the stack cannot be built")]
    Stack(#[from] StackError),
    /// An agent cannot be offered as a tool.
    #[error("an agent cannot be registered as a tool")]
    Agent(#[from] RegisterError),
    /// The session cannot be opened.
    #[error("the session cannot be opened")]
    Open(#[from] SessionError),
}

impl SessionBuilder {
    /// How many rounds a run may have unless told otherwise.
    pub const MAX_ITERATIONS: u32 = 20;

    /// About how many bytes of conversation a model reads unless told otherwise; some 120,000 tokens.
    pub const WINDOW_BYTES: usize = 400_000;

    pub(crate) fn new(model: Arc<dyn Model>, registry: Registry) -> Self {
        let nil = uuid::Uuid::nil();
        let limits = Limits {
            max_iterations: Self::MAX_ITERATIONS,
            on_cap: OnCap::Close,
            loop_rounds: 2,
            window_bytes: Self::WINDOW_BYTES,
            waits: false,
        };
        Self {
            model,
            registry,
            stack: None,
            configure: Vec::new(),
            allowed: None,
            ask: Asking {
                cache: true,
                ..Asking::default()
            },
            limits,
            strategies: Vec::new(),
            agents: Vec::new(),
            who: TurnInfo::new(SessionId::new(nil), TurnId::new(nil)),
            budgets: Budgets::default(),
            prices: Arc::default(),
            payer: Payer::default(),
            works_for: None,
            unknown: UnknownPrice::default(),
            may_use: Vec::new(),
        }
    }

    /// The stack that calls go through, over the registry; without layers unless given.
    pub fn stack(mut self, stack: Stack) -> Self {
        self.stack = Some(stack);
        self
    }

    /// Which session; a new one unless given.
    pub fn session(self, session: SessionId) -> Self {
        self.dispatcher(move |dispatcher| dispatcher.session(session))
    }

    /// Where it is kept; in memory unless given.
    pub fn store(self, store: impl Store) -> Self {
        self.dispatcher(|dispatcher| dispatcher.store(store))
    }

    /// Sets up what runs the turns: store, clock, approver, redactor, keys, how many calls run at once.
    pub fn dispatcher(
        mut self,
        with: impl FnOnce(DispatcherBuilder) -> DispatcherBuilder + Send + 'static,
    ) -> Self {
        self.configure.push(Box::new(with));
        self
    }

    /// What the model is told before everything else.
    pub fn instructions(mut self, text: impl Into<Arc<str>>) -> Self {
        self.ask.instructions = Some(text.into());
        self
    }

    /// Only these tools of the registry.
    pub fn allow<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.allowed = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// How many rounds a run may have: 20 unless said.
    pub fn max_iterations(mut self, rounds: u32) -> Self {
        self.limits.max_iterations = rounds;
        self
    }

    /// What happens when they are used up.
    pub fn on_cap(mut self, on_cap: OnCap) -> Self {
        self.limits.on_cap = on_cap;
        self
    }

    /// How many calls of one reply are made: 1,000 unless said. Those behind them are refused, and the model is told.
    pub fn max_calls(self, calls: usize) -> Self {
        self.dispatcher(move |dispatcher| dispatcher.max_calls(calls))
    }

    /// After how many rounds in a row in which a call was refused as a loop the run ends: 2 unless said.
    pub fn loop_rounds(mut self, rounds: u32) -> Self {
        self.limits.loop_rounds = rounds.max(1);
        self
    }

    /// About how many bytes of conversation the model reads. What is older is left out, in whole turns.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.limits.window_bytes = bytes;
        self
    }

    /// Lets a run wait for decisions and results from outside as long as it takes, where it would otherwise return as
    /// suspended.
    pub fn wait_for_answers(mut self) -> Self {
        self.limits.waits = true;
        self
    }

    /// Whether the model may ask for several calls at once.
    pub fn parallel_calls(mut self, parallel: bool) -> Self {
        self.ask.parallel_calls = Some(parallel);
        self
    }

    /// What every final answer has to look like.
    pub fn output(mut self, output: OutputFormat) -> Self {
        self.ask.output = Some(output);
        self
    }

    /// How much the model may write in one reply.
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.ask.max_tokens = Some(tokens);
        self
    }

    /// How freely the model chooses its words.
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.ask.temperature = Some(temperature);
        self
    }

    /// How much the model should think.
    pub fn effort(mut self, effort: Effort) -> Self {
        self.ask.effort = Some(effort);
        self
    }

    /// How heavy the work is, for whoever chooses among models.
    pub fn weight(mut self, weight: Weight) -> Self {
        self.ask.weight = Some(weight);
        self
    }

    /// Whether providers that want to be told what to keep for the next turn are told. They are unless said otherwise.
    pub fn cache(mut self, cache: bool) -> Self {
        self.ask.cache = cache;
        self
    }

    /// Fields for the provider that have no name here.
    pub fn extra(mut self, extra: Map<String, Value>) -> Self {
        self.ask.extra = extra;
        self
    }

    /// Adds a strategy behind those added before.
    pub fn strategy(mut self, strategy: impl Strategy) -> Self {
        self.strategies.push(Arc::new(strategy));
        self
    }

    /// Adds an agent that the model can delegate work to, as a tool of that name.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Says which agent works in the session.
    pub fn named(mut self, id: impl Into<AgentId>, name: &str) -> Self {
        (self.who.agent_id, self.who.agent_name) = (Some(id.into()), Some(name.into()));
        self
    }

    /// Says on whose behalf.
    pub fn principal(mut self, principal: impl Into<Principal>) -> Self {
        self.who.principal = Some(principal.into());
        self
    }

    /// Keeps what asking models costs within these budgets.
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// What models cost. Without prices every cost is unknown, and budgets in money refuse.
    pub fn prices(mut self, prices: impl Into<Arc<Prices>>) -> Self {
        self.prices = prices.into();
        self
    }

    /// Who pays: organisation, person, project. Session and run are filled in.
    pub fn payer(mut self, payer: Payer) -> Self {
        self.payer = payer;
        self
    }

    /// What happens to requests whose price is not known where there is a budget in money.
    pub fn on_unknown_price(mut self, unknown: UnknownPrice) -> Self {
        self.unknown = unknown;
        self
    }

    /// Names models that may be asked in place of the session's, for setting aside what the dearest costs.
    pub fn may_use(mut self, models: impl IntoIterator<Item = ModelName>) -> Self {
        self.may_use = models.into_iter().collect();
        self
    }

    /// Works on behalf of whoever delegates, pays like them, and waits if they do.
    ///
    /// `run` is the run in which they delegate. What follows from one message of a person is paid for by that run, whoever
    /// does it; otherwise each delegation would bring a budget of its own.
    pub(crate) fn inherit(mut self, above: &Shared, run: u64) -> Self {
        self.who.principal = above.who.principal.clone();
        (self.budgets, self.prices, self.payer) = above.spending.terms();
        let payer = above.spending.payer();
        self.works_for = payer
            .session
            .map(|session| (session, payer.run.unwrap_or(run)));
        self.limits.waits = above.limits.waits;
        self
    }

    /// Takes up the session where the store has it, or begins a new one.
    pub async fn build(mut self) -> Result<Session, SessionBuildError> {
        for agent in &self.agents {
            agent.register(&self.registry)?;
        }
        let stack = match self.stack {
            Some(stack) => stack,
            None => Stack::over(self.registry.clone()).build()?,
        };
        let builder = self
            .configure
            .into_iter()
            .fold(Dispatcher::builder(stack), |builder, with| with(builder));
        let dispatcher = builder.build().await.map_err(SessionError::from)?;
        self.who.session = dispatcher.session();
        self.ask.closing = closing(self.ask.instructions.as_deref());
        let (session, run) = match self.works_for {
            Some((session, run)) => (session, Some(run)),
            None => (dispatcher.session(), None),
        };
        let spending = Spending::new(dispatcher.store().clone(), dispatcher.0.clock.clone())
            .with_budgets(self.budgets)
            .with_prices(self.prices)
            .on_unknown_price(self.unknown)
            .may_use(self.may_use)
            .paid_by(Payer {
                session: Some(session),
                run,
                ..self.payer
            })
            .within(dispatcher.session());
        let window = self.limits.window_bytes;
        let conversation =
            Conversation::load(dispatcher.store(), dispatcher.session(), window).await;
        let conversation = conversation.map_err(SessionError::from)?;
        Ok(Session(Arc::new(Shared {
            dispatcher,
            model: self.model,
            registry: self.registry,
            allowed: self.allowed,
            ask: self.ask,
            limits: self.limits,
            strategies: self.strategies,
            agents: self.agents,
            spending,
            who: self.who,
            conversation: Arc::new(tokio::sync::Mutex::new(conversation)),
            control: Mutex::new(None),
        })))
    }
}

impl std::fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionBuilder")
            .field("model", self.model.name())
            .finish_non_exhaustive()
    }
}

/// What the model is told when its rounds are used up.
fn closing(instructions: Option<&str>) -> Arc<str> {
    const END: &str = "Your rounds of tool calls are used up. No tool can be called any more. Answer now with what you \
                       have, and say what is missing.";
    match instructions {
        Some(instructions) => format!("{instructions}\n\n{END}").into(),
        None => END.into(),
    }
}
