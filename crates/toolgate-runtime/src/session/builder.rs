//! Builds a session.

use std::{
    marker::PhantomData,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use serde_json::{Map, Value};
use toolgate_core::{
    AgentId, BillingService, BudgetRule, Budgets, Effort, InvalidLabel, Model, ModelName,
    OutputFormat, Payer, Prices, Principal, RegisterError, Registry, SessionId, Stack, StackError,
    StoreHandle, TaskComplexity, ToolChoice, TurnId, TurnInfo, UnknownPrice,
};

use crate::{
    Agent, Dispatcher, DispatcherBuilder, Documents, ModelBilling, OnCap, OnFailure,
    RecursiveStrategy, RunEndHook, Session, SessionError, Strategy,
    agent::DelegatingRun,
    session::{SessionShared, conversation::Conversation, run_end::RunEndHooks},
};

/// Settings of every model request of the session.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestSettings {
    pub(crate) instructions: Option<Arc<str>>,
    /// The instructions for the last request, which ask the model to finish.
    pub(crate) closing: Arc<str>,
    pub(crate) parallel_calls: Option<bool>,
    pub(crate) output: Option<OutputFormat>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) temperature: Option<f32>,
    pub(crate) effort: Option<Effort>,
    pub(crate) cache: bool,
    pub(crate) weight: Option<TaskComplexity>,
    /// The choice of runs that have none of their own.
    pub(crate) choice: ToolChoice,
    pub(crate) extra: Map<String, Value>,
}

/// Limits of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLimits {
    pub(crate) max_iterations: u32,
    pub(crate) on_cap: OnCap,
    pub(crate) loop_rounds: u32,
    pub(crate) window_bytes: usize,
    pub(crate) waits: bool,
    pub(crate) deadline: Option<Duration>,
    pub(crate) turn_deadline: Option<Duration>,
}

/// Default limit on the iterations of a run.
pub(crate) const DEFAULT_MAX_ITERATIONS: u32 = 20;

/// Default size of the conversation that a model reads, in bytes; some 120,000 tokens.
const DEFAULT_WINDOW_BYTES: usize = 400_000;

/// The type state of a builder whose stack, store, keys and redactor the caller wires by hand.
#[derive(Debug, Clone, Copy)]
pub struct Ungated;

/// The type state of a builder that a gate has wired: what belongs to the gate cannot be replaced.
#[derive(Debug, Clone, Copy)]
pub struct Gated;

/// Builder of a [`Session`].
///
/// One that a gate hands out is a `SessionBuilder<Gated>`: it has no method that replaces the
/// stack, the store, the keys, the redactor or the budgets. [`Session::ungated`] creates a
/// `SessionBuilder<Ungated>`, for programs that wire these parts by themselves.
#[must_use = "a session is created by `build`"]
pub struct SessionBuilder<Wiring = Ungated> {
    model: Arc<dyn Model>,
    registry: Registry,
    stack: Option<Stack>,
    configure: Vec<Box<dyn FnOnce(DispatcherBuilder) -> DispatcherBuilder + Send>>,
    allowed: Option<Vec<String>>,
    ask: RequestSettings,
    limits: RunLimits,
    strategies: Vec<Arc<dyn Strategy>>,
    run_end: Vec<Arc<dyn RunEndHook>>,
    agents: Vec<Agent>,
    who: TurnInfo,
    labels: Vec<(String, String)>,
    budgets: Budgets,
    prices: Arc<Prices>,
    payer: Payer,
    /// The session and run that this one works for, if it works for a delegating agent.
    works_for: Option<(SessionId, u64)>,
    unknown: UnknownPrice,
    may_use: Vec<ModelName>,
    wiring: PhantomData<Wiring>,
}

/// Reason why a session cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionBuildError {
    /// The layers do not fit together.
    #[error("the stack cannot be built: {0}")]
    Stack(#[from] StackError),
    /// An agent cannot be offered as a tool.
    #[error("an agent cannot be registered as a tool: {0}")]
    Agent(#[from] RegisterError),
    /// A label cannot be used.
    #[error("a label of the session is not valid")]
    Label(#[from] InvalidLabel),
    /// The session cannot be opened.
    #[error("the session cannot be opened: {0}")]
    Open(#[from] SessionError),
}

impl SessionBuilder<Ungated> {
    pub(crate) fn new(model: Arc<dyn Model>, registry: Registry) -> Self {
        let nil = uuid::Uuid::nil();
        let limits = RunLimits {
            max_iterations: DEFAULT_MAX_ITERATIONS,
            on_cap: OnCap::Close,
            loop_rounds: 2,
            window_bytes: DEFAULT_WINDOW_BYTES,
            waits: false,
            deadline: None,
            turn_deadline: None,
        };
        Self {
            model,
            registry,
            stack: None,
            configure: Vec::new(),
            allowed: None,
            ask: RequestSettings {
                cache: true,
                ..RequestSettings::default()
            },
            limits,
            strategies: Vec::new(),
            run_end: Vec::new(),
            agents: Vec::new(),
            who: TurnInfo::new(SessionId::new(nil), TurnId::new(nil)),
            labels: Vec::new(),
            budgets: Budgets::default(),
            prices: Arc::default(),
            payer: Payer::default(),
            works_for: None,
            unknown: UnknownPrice::default(),
            may_use: Vec::new(),
            wiring: PhantomData,
        }
    }

    /// Sets the stack that calls go through, over the registry. By default it has no layers.
    pub fn stack(mut self, stack: Stack) -> Self {
        self.stack = Some(stack);
        self
    }

    /// Sets the store. By default, the session is kept in memory.
    pub fn store(self, store: impl Into<StoreHandle>) -> Self {
        let store = store.into();
        self.dispatcher(|dispatcher| dispatcher.store(store))
    }

    /// Configures the dispatcher that runs the turns: store, clock, approver, redactor, keys,
    /// number of concurrent calls.
    pub fn dispatcher(
        self,
        with: impl FnOnce(DispatcherBuilder) -> DispatcherBuilder + Send + 'static,
    ) -> Self {
        self.configure_dispatcher(with)
    }

    /// Keeps the cost of model requests within these budgets.
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// Sets the prices of models. Without prices every cost is unknown, and budgets in money block
    /// requests.
    pub fn prices(mut self, prices: impl Into<Arc<Prices>>) -> Self {
        self.prices = prices.into();
        self
    }

    /// Sets what happens to requests with an unknown price where there is a budget in money.
    pub fn on_unknown_price(mut self, unknown: UnknownPrice) -> Self {
        self.unknown = unknown;
        self
    }

    /// Fixes the wiring: the builder that is returned cannot replace stack, store, keys, redactor
    /// and budgets any more. A gate does this before it hands the builder out.
    pub fn seal(self) -> SessionBuilder<Gated> {
        SessionBuilder {
            model: self.model,
            registry: self.registry,
            stack: self.stack,
            configure: self.configure,
            allowed: self.allowed,
            ask: self.ask,
            limits: self.limits,
            strategies: self.strategies,
            run_end: self.run_end,
            agents: self.agents,
            who: self.who,
            budgets: self.budgets,
            prices: self.prices,
            payer: self.payer,
            works_for: self.works_for,
            unknown: self.unknown,
            may_use: self.may_use,
            labels: self.labels,
            wiring: PhantomData,
        }
    }
}

impl SessionBuilder<Gated> {
    /// Adds a budget of this session's runs to those of the gate.
    pub fn budget(mut self, rule: BudgetRule) -> Self {
        self.budgets = Budgets::new(self.budgets.rules().iter().cloned().chain([rule]));
        self
    }
}

impl<Wiring> SessionBuilder<Wiring> {
    /// Sets the session. By default, a new one is created.
    pub fn session(self, session: SessionId) -> Self {
        self.configure_dispatcher(move |dispatcher| dispatcher.session(session))
    }

    /// Takes the lease even if another process holds it; see
    /// [`DispatcherBuilder::take_over`](crate::DispatcherBuilder::take_over).
    pub fn take_over(self) -> Self {
        self.configure_dispatcher(DispatcherBuilder::take_over)
    }

    /// Sets how many calls of a turn run at the same time; 1 runs them one after the other.
    pub fn max_concurrent(self, calls: usize) -> Self {
        self.configure_dispatcher(move |dispatcher| dispatcher.max_concurrent(calls))
    }

    /// Sets what happens to the other calls of a turn when one call fails.
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.configure_dispatcher(move |dispatcher| dispatcher.on_failure(on_failure))
    }

    fn configure_dispatcher(
        mut self,
        with: impl FnOnce(DispatcherBuilder) -> DispatcherBuilder + Send + 'static,
    ) -> Self {
        self.configure.push(Box::new(with));
        self
    }

    /// Wires the session of an agent, after the agent's own settings: these parts are those of the
    /// session that delegates.
    pub(crate) fn wire_agent(
        mut self,
        stack: Stack,
        with: impl FnOnce(DispatcherBuilder) -> DispatcherBuilder + Send + 'static,
    ) -> Self {
        self.stack = Some(stack);
        self.configure_dispatcher(with)
    }

    /// Sets the instructions that the model reads before everything else.
    pub fn instructions(mut self, text: impl Into<Arc<str>>) -> Self {
        self.ask.instructions = Some(text.into());
        self
    }

    /// Limits the tools of the registry to these.
    pub fn allow<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.allowed = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Sets how many iterations a run may have; by default 20.
    pub fn max_iterations(mut self, iterations: u32) -> Self {
        self.limits.max_iterations = iterations;
        self
    }

    /// Sets what happens when the limit of iterations is reached.
    pub fn on_cap(mut self, on_cap: OnCap) -> Self {
        self.limits.on_cap = on_cap;
        self
    }

    /// Sets how long a run may take, unless its options say otherwise; see
    /// [`RunOptions::deadline`](crate::RunOptions::deadline).
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.limits.deadline = Some(limit);
        self
    }

    /// Sets how long the calls of a turn may take, unless the options of the run say otherwise; see
    /// [`RunOptions::turn_deadline`](crate::RunOptions::turn_deadline).
    pub fn turn_deadline(mut self, limit: Duration) -> Self {
        self.limits.turn_deadline = Some(limit);
        self
    }

    /// Sets which tools the model may or must call, unless the options of the run say otherwise;
    /// see [`RunOptions::choice`](crate::RunOptions::choice).
    pub fn choice(mut self, choice: ToolChoice) -> Self {
        self.ask.choice = choice;
        self
    }

    /// Sets how many calls of one reply are made; by default 1,000. The calls after them are
    /// rejected, and the model is told.
    pub fn max_calls(self, calls: usize) -> Self {
        self.configure_dispatcher(move |dispatcher| dispatcher.max_calls(calls))
    }

    /// Sets after how many iterations in a row with a detected loop the run ends; by default 2.
    pub fn loop_iterations(mut self, iterations: u32) -> Self {
        self.limits.loop_rounds = iterations.max(1);
        self
    }

    /// Sets about how many bytes of conversation the model reads. Older messages are left out, in
    /// whole turns.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.limits.window_bytes = bytes;
        self
    }

    /// Makes a run wait for decisions and external results as long as it takes, where it would
    /// otherwise return as suspended.
    pub fn wait_for_answers(mut self) -> Self {
        self.limits.waits = true;
        self
    }

    /// Sets whether the model may ask for several calls at once.
    pub fn parallel_calls(mut self, parallel: bool) -> Self {
        self.ask.parallel_calls = Some(parallel);
        self
    }

    /// Sets the format of every final answer.
    pub fn output(mut self, output: OutputFormat) -> Self {
        self.ask.output = Some(output);
        self
    }

    /// Limits the tokens the model may write in one reply.
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.ask.max_tokens = Some(tokens);
        self
    }

    /// Sets the sampling temperature.
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.ask.temperature = Some(temperature);
        self
    }

    /// Sets how much the model should reason.
    pub fn effort(mut self, effort: Effort) -> Self {
        self.ask.effort = Some(effort);
        self
    }

    /// Sets how complex the work is, for the routing among models.
    pub fn weight(mut self, weight: TaskComplexity) -> Self {
        self.ask.weight = Some(weight);
        self
    }

    /// Sets whether providers are told which part of the request to cache for the next turn; by
    /// default they are.
    pub fn cache(mut self, cache: bool) -> Self {
        self.ask.cache = cache;
        self
    }

    /// Adds provider-specific fields to every request.
    pub fn extra(mut self, extra: Map<String, Value>) -> Self {
        self.ask.extra = extra;
        self
    }

    /// Adds a strategy after those added before.
    pub fn strategy(mut self, strategy: impl Strategy) -> Self {
        self.strategies.push(Arc::new(strategy));
        self
    }

    /// Adds a hook that sees the end of every run, at most once each.
    pub fn on_run_end(mut self, hook: impl RunEndHook) -> Self {
        self.run_end.push(Arc::new(hook));
        self
    }

    /// Lets the model answer questions about documents that it cannot read as a whole, with a
    /// [`RecursiveStrategy`] of the usual limits. The session's model also reads the pieces.
    ///
    /// # Errors
    ///
    /// Fails if the registry has a tool with the name of one of the strategy's.
    pub fn recursive(self, documents: Documents) -> Result<Self, RegisterError> {
        let strategy = RecursiveStrategy::builder(documents, self.model.clone()).build();
        strategy.install(&self.registry)?;
        Ok(self.strategy(strategy))
    }

    /// Adds an agent that the model can delegate work to, as a tool of that name.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Sets the agent that works in the session.
    pub fn named(mut self, id: impl Into<AgentId>, name: &str) -> Self {
        self.who.agent_id = Some(id.into());
        self.who.agent_name = Some(name.into());
        self
    }

    /// Sets the principal on whose behalf the session works.
    pub fn principal(mut self, principal: impl Into<Principal>) -> Self {
        self.who.principal = Some(principal.into());
        self
    }

    /// Adds a label, such as a tenant or a request id. Calls, events and receipts have it, and policy
    /// rules can match it. At most 16 labels; the name has lower-case letters, digits, `_`, `-` and
    /// `.`.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Sets the payer: organisation, person, project. Session and run are filled in, and a principal
    /// pays in place of the person.
    pub fn payer(mut self, payer: Payer) -> Self {
        self.payer = payer;
        self
    }

    /// Names models that may be asked in place of the session's, so that the price of the most
    /// expensive one is reserved.
    pub fn may_use(mut self, models: impl IntoIterator<Item = ModelName>) -> Self {
        self.may_use = models.into_iter().collect();
        self
    }

    /// Takes principal, labels, budgets and waiting from the run that delegates.
    ///
    /// Everything that follows from one message of a person is
    /// charged to that run, whichever agent does it; otherwise each delegation would bring a budget
    /// of its own.
    pub(crate) fn inherit_from(mut self, by: DelegatingRun<'_>) -> Self {
        let above = by.session;
        self.who.principal = above.who.principal.clone();
        self.who.labels = by.labels.clone();
        (self.budgets, self.prices, self.payer) = above.spending.inherited_terms();
        let payer = above.spending.payer();
        self.works_for = payer
            .session
            .map(|session| (session, payer.run.unwrap_or(by.run)));
        self.limits.waits = above.limits.waits;
        self
    }

    /// Registers the agents as tools of this session only: other sessions share the registry.
    fn register_agents(&self) -> Result<Registry, RegisterError> {
        let tools = Registry::default();
        for agent in &self.agents {
            // The name would hide a tool that policies and people know.
            if self.registry.get(agent.name.as_str()).is_some() {
                return Err(RegisterError::Taken(agent.name.clone()));
            }
            agent.register_tool(&tools)?;
        }
        Ok(tools)
    }

    /// Loads the session from the store, or creates a new one.
    ///
    /// # Errors
    ///
    /// Fails if the layers do not fit together, if an agent cannot be registered, if a label is not
    /// valid, if another process holds the lease, or if the store failed.
    pub async fn build(mut self) -> Result<Session, SessionBuildError> {
        let agent_tools = self.register_agents()?;
        let mut stack = match self.stack {
            Some(stack) => stack,
            None => Stack::over(self.registry.clone()).build()?,
        };
        if !self.agents.is_empty() {
            stack = stack.extend_with_tools(agent_tools.clone()).build()?;
        }
        let builder = self
            .configure
            .into_iter()
            .fold(Dispatcher::builder(stack), |builder, with| with(builder));
        let dispatcher = builder.build().await.map_err(SessionError::from)?;
        self.who.session = dispatcher.session();
        self.who.labels = dispatcher.0.add_labels(&self.who.labels, &self.labels)?;
        self.ask.closing = closing_instructions(self.ask.instructions.as_deref());
        let mut payer = self.payer.for_turn(&self.who);
        if let Some((session, run)) = self.works_for {
            payer.session = Some(session);
            payer.run = Some(run);
        }
        let service = BillingService::new(dispatcher.store().clone(), self.budgets).paid_by(payer);
        let spending = ModelBilling::new(service, dispatcher.0.clock.clone())
            .with_prices(self.prices)
            .on_unknown_price(self.unknown)
            .may_use(self.may_use)
            .for_session(dispatcher.session());
        let window = self.limits.window_bytes;
        let conversation = if dispatcher.0.journal.sequence() == 0 {
            // Messages are written with events, so a new session has none to read.
            Conversation::default()
        } else {
            let opened = Conversation::open(dispatcher.store(), dispatcher.session(), window).await;
            opened.map_err(SessionError::from)?
        };
        Ok(Session(Arc::new(SessionShared {
            dispatcher,
            model: self.model,
            registry: self.registry,
            agent_tools,
            allowed: self.allowed,
            ask: self.ask,
            limits: self.limits,
            strategies: self.strategies,
            agents: self.agents,
            spending,
            who: self.who,
            conversation: Arc::new(tokio::sync::Mutex::new(conversation)),
            control: Mutex::new(None),
            keep_pending: AtomicBool::new(false),
            run_end: RunEndHooks::new(self.run_end),
        })))
    }
}

impl<Wiring> std::fmt::Debug for SessionBuilder<Wiring> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionBuilder")
            .field("model", self.model.name())
            .finish_non_exhaustive()
    }
}

/// Returns the instructions for the last request, when the limit of iterations is reached.
fn closing_instructions(instructions: Option<&str>) -> Arc<str> {
    const END: &str = "The limit of tool calls is reached. No tool can be called any more. Answer now with what you \
                       have, and say what is missing.";
    match instructions {
        Some(instructions) => format!("{instructions}\n\n{END}").into(),
        None => END.into(),
    }
}
