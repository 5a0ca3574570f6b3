//! The steps of a run, one after the other: hear, prepare, ask, reply, settle, end.
//!
//! Both regimes take these steps and no others. In one Toolgate asks the model and runs the tools; in the other a host
//! does, and says what came of it.

use std::sync::Arc;

use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    AnyLayer, Content, Cost, Finish, LoopEvent, Message, ModelError, ModelName, Part, ProviderCall,
    Record, RecordKey, Reply, Role, RunEnd, Said, Stack, Status, ToolAnswer, ToolChoice,
    ToolRequest, TurnId, TurnInfo, View,
};

use crate::{
    CallResult, Hold, OnCap, Onward, Pending, Round, RunError, RunOptions, RunReport, SessionError,
    TurnEnd, TurnReport, TurnRequest, TurnRun, Turned,
    conversation::{Conversation, Place},
    journal::{Draft, Durable},
    output,
    session::{Shared, Steer},
    tools_of_run::ToolsOfRun,
};

/// A run under way. While it lives, nobody else adds to the conversation.
pub(crate) struct Run {
    pub(crate) shared: Arc<Shared>,
    pub(crate) conversation: OwnedMutexGuard<Conversation>,
    pub(crate) options: RunOptions,
    pub(crate) cancel: CancellationToken,
    pub(crate) steering: mpsc::UnboundedReceiver<Steer>,
    /// What the tools and layers of the run are, with what strategies add.
    pub(crate) tools: ToolsOfRun,
    /// The turn that comes next.
    ahead: Option<Arc<TurnInfo>>,
    /// The turn that the model was asked for.
    pub(crate) asked: Option<Arc<TurnInfo>>,
    /// In how many turns in a row a loop was refused.
    guarded: u32,
    /// How often an answer of the wrong form was sent back.
    sent_back: u32,
    finish: Option<Finish>,
    answer: Option<String>,
    /// What is set aside for the request that is under way.
    pub(crate) hold: Option<Hold>,
    /// The last event before the run, or before it was taken up.
    began_after: u64,
    /// The turn that was worked on last.
    pub(crate) last: Option<Arc<TurnInfo>>,
    /// How the run ends because its last turn was stopped, if it was.
    stopped: Option<TurnEnd>,
    /// What the model is told of the last calls. It is written together with what comes next, since it can be made again
    /// from the outcomes, which are durable.
    unwritten: Vec<(RecordKey, Record)>,
}

/// What comes next in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the model.
    Ask,
    /// Ask it for the last time, without tools.
    Close,
    /// Settle the calls of a turn.
    Settle(TurnId),
    /// Nothing; this is why.
    End(RunEnd),
    /// Nothing: the last turn was stopped.
    Stop,
    /// Nothing: the rounds are used up, and that is an error.
    Fail,
}

impl Run {
    pub(crate) fn new(
        shared: Arc<Shared>,
        conversation: OwnedMutexGuard<Conversation>,
        (options, tools): (RunOptions, ToolsOfRun),
        (cancel, steering): (CancellationToken, mpsc::UnboundedReceiver<Steer>),
    ) -> Self {
        let mut conversation = conversation;
        conversation.torn = true;
        conversation.request.output = options.output.clone().or_else(|| shared.ask.output.clone());
        let began_after = shared.journal().sequence();
        Self {
            shared,
            conversation,
            options,
            cancel,
            steering,
            tools,
            ahead: None,
            asked: None,
            guarded: 0,
            sent_back: 0,
            finish: None,
            answer: None,
            hold: None,
            began_after,
            last: None,
            stopped: None,
            unwritten: Vec::new(),
        }
    }

    /// Says what comes next. It follows from what was said so far, in whatever process.
    pub(crate) fn next(&self) -> Next {
        let (rounds, on_cap) = (
            self.rounds(),
            self.options.on_cap.unwrap_or(self.shared.limits.on_cap),
        );
        let (place, counted) = (self.conversation.place(), self.conversation.counted());
        match place {
            _ if self.stopped.is_some() => Next::Stop,
            _ if self.answer.is_some() => Next::End(RunEnd::Completed),
            Place::Empty => Next::End(RunEnd::Completed),
            Place::Open(turn) => Next::Settle(turn),
            Place::Answered if counted > rounds => Next::End(RunEnd::MaxIterations),
            Place::Answered => Next::End(RunEnd::Completed),
            Place::Ask if counted > rounds => Next::End(RunEnd::MaxIterations),
            Place::Ask if counted == rounds && on_cap == OnCap::Fail => Next::Fail,
            Place::Ask if counted == rounds => Next::Close,
            Place::Ask if self.guarded >= self.shared.limits.loop_rounds => {
                Next::End(RunEnd::LoopGuard)
            }
            Place::Ask => Next::Ask,
        }
    }

    fn rounds(&self) -> u32 {
        self.options
            .max_iterations
            .unwrap_or(self.shared.limits.max_iterations)
    }

    /// The turn that comes next, with an id of its own from the first thing on that is said for it.
    fn ahead(&mut self) -> Arc<TurnInfo> {
        let (shared, conversation) = (&self.shared, &self.conversation);
        let ahead = || {
            let mut info = shared.turn_info(conversation.iteration);
            info.run = Some(conversation.run);
            Arc::new(info)
        };
        self.ahead.get_or_insert_with(ahead).clone()
    }

    /// Takes in what somebody says.
    pub(crate) fn hear(&mut self, message: Message, steering: bool) -> (u64, Durable) {
        let number = self.conversation.next;
        let run = if steering {
            self.conversation.run
        } else {
            number
        };
        let iteration = if steering {
            self.conversation.iteration
        } else {
            0
        };
        let mut info = self.ahead();
        if (info.iteration, info.run) != (iteration, Some(run)) {
            let turn = Arc::make_mut(&mut info);
            (turn.iteration, turn.run) = (iteration, Some(run));
        }
        let text = Some(message.text())
            .filter(|text| !text.is_empty())
            .map(|text| self.shared.said(&text));
        let event = LoopEvent::UserMessage {
            message: number,
            text,
            steering,
        };
        let said = Said {
            refunds: self.conversation.refunds,
            ..Said::new(info.turn, iteration, run, Arc::new(message))
        };
        let mut records = std::mem::take(&mut self.unwritten);
        records.push(self.keep(said));
        (
            number,
            self.shared
                .journal()
                .write([Draft::Loop(info, event)], records),
        )
    }

    /// Adds a message to the conversation; it still has to be written.
    fn keep(&mut self, said: Said) -> (RecordKey, Record) {
        let number = self.conversation.push(&said);
        (
            RecordKey::Message(self.shared.dispatcher.session(), number),
            Record::Message(Arc::new(said)),
        )
    }

    /// Takes in what was said while a turn ran or a model was asked.
    pub(crate) async fn take_steering(&mut self) -> Result<(), SessionError> {
        while let Ok(steer) = self.steering.try_recv() {
            self.steered(steer).await?;
        }
        Ok(())
    }

    /// Takes in one thing that was said meanwhile, and tells whoever said it that it is durable.
    pub(crate) async fn steered(&mut self, steer: Steer) -> Result<(), SessionError> {
        let (number, durable) = self.hear(steer.message, true);
        durable.await?;
        // Whoever stopped waiting does not need the answer.
        let _ = steer.heard.send(number);
        Ok(())
    }

    /// Sets up what the model is asked with, and writes down that it is asked. Nothing if the run was stopped meanwhile.
    pub(crate) async fn prepare(
        &mut self,
        closing: bool,
        model: &ModelName,
    ) -> Result<Option<Arc<TurnInfo>>, RunError> {
        let mut events = Vec::with_capacity(1);
        if let Some((skipped, kept)) = self.conversation.compact(self.shared.limits.window_bytes) {
            events.push(LoopEvent::HistoryCompacted { skipped, kept });
        }
        self.set_request(closing);
        let asked = self
            .ask_strategies(self.conversation.iteration, &mut events)
            .await?;
        let Some(layers) = asked else { return Ok(None) };
        if closing {
            self.conversation.request.view = View::without_tools();
        }
        self.tools.add_layers(layers).map_err(RunError::Stack)?;
        let info = self.named(model);
        self.reserve(info.turn, model).await?;
        let request = &self.conversation.request;
        events.push(LoopEvent::InferenceStarted {
            attempt: 1,
            messages: request.messages.len() as u64,
            tools: u32::try_from(request.view.len()).unwrap_or(u32::MAX),
        });
        let drafts = events
            .into_iter()
            .map(|event| Draft::Loop(info.clone(), event));
        let durable = self
            .shared
            .journal()
            .write(drafts, std::mem::take(&mut self.unwritten));
        if self.hold.as_ref().is_some_and(|hold| !hold.is_empty()) {
            // Whoever recovers has to know whether the request was sent. A failed journal is met at the next write.
            let _ = durable.await;
        }
        self.asked = Some(info.clone());
        Ok(Some(info))
    }

    /// The turn that comes next, asked of a model.
    fn named(&mut self, model: &ModelName) -> Arc<TurnInfo> {
        let mut info = self.ahead();
        // The only other one is put back below.
        self.ahead = None;
        let turn = Arc::make_mut(&mut info);
        (turn.provider, turn.model) = (Some(model.provider.clone()), Some(model.model.clone()));
        (turn.iteration, turn.run) = (self.conversation.iteration, Some(self.conversation.run));
        self.ahead = Some(info.clone());
        info
    }

    /// Everything but the messages is set anew for each round.
    fn set_request(&mut self, closing: bool) {
        let (options, shared, first) = (
            &self.options,
            &self.shared,
            self.conversation.iteration == 0,
        );
        let view = self.tools.view().clone();
        let request = &mut self.conversation.request;
        let asked = &shared.ask;
        request.instructions = if closing {
            Some(asked.closing.clone())
        } else {
            asked.instructions.clone()
        };
        request.view = view;
        request.choice = match &options.choice {
            _ if closing => ToolChoice::None,
            ToolChoice::Required | ToolChoice::Named(_) if !first => ToolChoice::Auto,
            choice => choice.clone(),
        };
        request.parallel_calls = asked.parallel_calls;
        request.output = options.output.clone().or_else(|| asked.output.clone());
        (request.max_tokens, request.temperature, request.effort) =
            (asked.max_tokens, asked.temperature, asked.effort);
        (request.cache, request.weight) = (asked.cache, options.weight.or(asked.weight));
        if request.extra != asked.extra {
            request.extra = asked.extra.clone();
        }
        if request.choice == ToolChoice::None {
            request.view = View::without_tools();
        }
    }

    /// The layers that strategies want for a round. Nothing if the run was stopped before all of them had their say.
    async fn ask_strategies(
        &mut self,
        iteration: u32,
        events: &mut Vec<LoopEvent>,
    ) -> Result<Option<Vec<AnyLayer>>, RunError> {
        let mut layers = Vec::new();
        if self.shared.strategies.is_empty() {
            return Ok(Some(layers));
        }
        let (run, spending) = (self.conversation.run, self.spending());
        for strategy in &self.shared.strategies {
            let mut round = Round {
                iteration,
                session: self.shared.dispatcher.session(),
                run,
                store: self.shared.dispatcher.store(),
                now: self.shared.now(),
                spending: &spending,
                request: &mut self.conversation.request,
                events,
                layers: &mut layers,
            };
            match unless_stopped(&self.cancel, strategy.prepare(&mut round)).await {
                Some(prepared) => prepared.map_err(RunError::Strategy)?,
                None => return Ok(None),
            }
        }
        Ok(Some(layers))
    }

    /// Takes in a reply. If it asks for calls, they are requested and durable when this returns, and nothing has run.
    pub(crate) async fn replied(&mut self, reply: Reply) -> Result<Option<TurnRun>, SessionError> {
        let Reply {
            mut message,
            usage,
            finish,
            ..
        } = reply;
        let info = self
            .asked
            .take()
            .ok_or(SessionError::OutOfTurn("no model was asked"))?;
        (self.ahead, self.finish, self.last) = (None, Some(finish), Some(info.clone()));
        let (cost, alerts) = self.pay(usage).await;
        self.shared.label_calls(&mut message);
        let (calls, ran) = asked_for(&message);
        let text = Some(message.text())
            .filter(|text| !text.is_empty())
            .map(|text| self.shared.said(&text));
        let after = self.conversation.last_turn;
        let finished = LoopEvent::InferenceFinished {
            message: self.conversation.next,
            text,
            calls: u32::try_from(calls.len()).unwrap_or(u32::MAX),
            finish,
            usage,
            cost,
        };
        let (run, refunds) = (self.conversation.run, self.conversation.refunds);
        let paused = finish == Finish::Paused;
        let said = Said {
            refunds,
            usage,
            cost,
            paused,
            ..Said::new(info.turn, info.iteration, run, Arc::new(message))
        };
        let record = self.keep(said);
        let events: Vec<_> = std::iter::once(finished).chain(alerts).collect();
        if calls.is_empty() && ran.is_empty() {
            let drafts = events
                .into_iter()
                .map(|event| Draft::Loop(info.clone(), event));
            self.shared.journal().write(drafts, [record]).await?;
            return Ok(None);
        }
        let view = self.conversation.request.view.clone();
        let mut request = TurnRequest::within(info, view, calls).ran(ran);
        (request.events, request.records) = (events, vec![record]);
        (request.after, request.trusted) = (after, true);
        request.stack = Some(self.stack());
        Ok(Some(self.shared.dispatcher.open(request).await?))
    }

    /// The stack that the calls of this round go through.
    pub(crate) fn stack(&self) -> Stack {
        self.tools.stack()
    }

    /// What the model is shown in this round; for taking up a turn again.
    pub(crate) async fn view_again(&mut self) -> Result<View, RunError> {
        // The reply that asked for the calls is counted already.
        let closing = self.conversation.counted() > self.rounds();
        self.set_request(closing);
        let asked = self
            .ask_strategies(
                self.conversation.iteration.saturating_sub(1),
                &mut Vec::new(),
            )
            .await?;
        let Some(layers) = asked else {
            // Nothing is run any more; but what the tools are decides what may have come of calls that had started.
            return Ok(self.tools.all().clone());
        };
        self.tools.add_layers(layers).map_err(RunError::Stack)?;
        if closing {
            self.conversation.request.view = View::without_tools();
        }
        Ok(self.conversation.request.view.clone())
    }

    /// Takes in what came of the calls of a turn that is settled, and says how the run goes on.
    pub(crate) async fn settled(
        &mut self,
        report: &TurnReport,
    ) -> Result<Result<(), RunError>, SessionError> {
        let iteration = self.conversation.iteration.saturating_sub(1);
        let refused = report
            .results
            .iter()
            .any(|result| result.status() == Some(Status::LoopGuard));
        self.guarded = if refused { self.guarded + 1 } else { 0 };
        let mut events = Vec::new();
        let onward = match self
            .strategies_settled(report, iteration, &mut events)
            .await
        {
            Ok(onward) => onward,
            Err(error) => return Ok(Err(error)),
        };
        self.stopped =
            Some(report.end).filter(|end| matches!(end, TurnEnd::Interrupted | TurnEnd::Aborted));
        // As many as there are rounds: a strategy that always gives them back would let the run go on for ever.
        let refund = onward == Onward::Refund && self.conversation.refunds < self.rounds();
        if let Onward::Finish(answer) = onward {
            self.answer = Some(answer);
        }
        self.answer_calls(report, refund, events);
        if !self.shared.strategies.is_empty() {
            // They may take their time before anything else is written.
            self.write_answers();
        }
        Ok(Ok(()))
    }

    /// Tells the model what came of the calls of a turn, and lets a strategy that has an answer have the last word.
    pub(crate) fn answer_calls(
        &mut self,
        report: &TurnReport,
        refund: bool,
        events: Vec<LoopEvent>,
    ) {
        let mut answers = Vec::with_capacity(report.results.len());
        answers.extend(
            report
                .results
                .iter()
                .filter_map(answer)
                .map(|answer| Part::from(Content::Result(answer))),
        );
        let iteration = self.conversation.iteration.saturating_sub(1);
        let refunds = self.conversation.refunds + u32::from(refund);
        let message = Arc::new(Message::new(Role::Tool, answers));
        let said = Said {
            refunds,
            ..Said::new(report.turn, iteration, self.conversation.run, message)
        };
        let record = self.keep(said);
        self.unwritten.push(record);
        if let Some(answer) = &self.answer {
            let answer = answer.clone();
            let record = self.keep_answer(report.turn, iteration, &answer);
            self.unwritten.push(record);
        }
        if !events.is_empty() {
            self.tell(events);
        }
    }

    /// Says what strategies have noted down.
    fn tell(&mut self, events: Vec<LoopEvent>) {
        let info = self.ahead();
        let events = events
            .into_iter()
            .map(|event| self.shared.dispatcher.0.said_by_strategy(event));
        let drafts: Vec<_> = events
            .map(|event| Draft::Loop(info.clone(), event))
            .collect();
        drop(
            self.shared
                .journal()
                .write(drafts, std::mem::take(&mut self.unwritten)),
        );
    }

    /// Writes what the model is told of the last calls, where it is not known when something else comes to be written.
    pub(crate) fn write_answers(&mut self) {
        if !self.unwritten.is_empty() {
            // Not waited for: it can be made again.
            drop(
                self.shared
                    .journal()
                    .write([], std::mem::take(&mut self.unwritten)),
            );
        }
    }

    /// Adds the answer of a strategy to the conversation, as if the model had said it: whoever resumes the run finds it
    /// answered, and the next run knows what was said.
    fn keep_answer(&mut self, turn: TurnId, iteration: u32, answer: &str) -> (RecordKey, Record) {
        let message = Arc::new(Message::assistant(answer));
        let said = Said::new(turn, iteration, self.conversation.run, message);
        self.keep(Said {
            refunds: self.conversation.refunds,
            cost: Cost::NanoUsd(0),
            ..said
        })
    }

    async fn strategies_settled(
        &mut self,
        report: &TurnReport,
        iteration: u32,
        events: &mut Vec<LoopEvent>,
    ) -> Result<Onward, RunError> {
        let mut onward = Onward::Continue;
        for strategy in &self.shared.strategies {
            let mut turned = Turned {
                iteration,
                session: self.shared.dispatcher.session(),
                run: self.conversation.run,
                store: self.shared.dispatcher.store(),
                now: self.shared.now(),
                report,
                usage: self.conversation.usage,
                events,
            };
            // What came of the calls is kept, whatever a strategy that was stopped would have made of it.
            let Some(said) = unless_stopped(&self.cancel, strategy.settled(&mut turned)).await
            else {
                break;
            };
            match said.map_err(RunError::Strategy)? {
                Onward::Continue => {}
                finish @ Onward::Finish(_) => return Ok(finish),
                Onward::Refund => onward = Onward::Refund,
            }
        }
        Ok(onward)
    }

    /// Ends a run whose last turn was stopped.
    pub(crate) async fn stop(&mut self) -> Result<RunReport, SessionError> {
        match self.stopped {
            Some(TurnEnd::Aborted) => self.end(RunEnd::Failed, Some(RunError::Aborted)).await,
            _ => self.end(RunEnd::Cancelled, None).await,
        }
    }

    /// Ends a run that has used up its rounds where that is an error.
    pub(crate) async fn fail_at_cap(&mut self) -> Result<RunReport, SessionError> {
        let report = self.end(RunEnd::MaxIterations, None).await?;
        Err(SessionError::MaxIterations(Box::new(report)))
    }

    /// Checks the form of the final answer. If it is wrong, the model is told once; then the run has failed.
    pub(crate) async fn check_output(
        &mut self,
        end: RunEnd,
    ) -> Result<Option<RunReport>, SessionError> {
        let format = self.conversation.request.output.clone();
        let answered =
            matches!(end, RunEnd::Completed | RunEnd::MaxIterations) && self.conversation.next > 0;
        let Some(format) = format.filter(|_| answered) else {
            return self.end(end, None).await.map(Some);
        };
        match output::read(&self.words(), &format.schema) {
            Ok(output) => {
                let mut report = self.end(end, None).await?;
                report.output = Some(output);
                Ok(Some(report))
            }
            Err(problems)
                if self.sent_back == 0 && end == RunEnd::Completed && self.answer.is_none() =>
            {
                self.sent_back += 1;
                // It was closed for the end, which this is not.
                self.steering = self.shared.listen(self.cancel.clone());
                self.hear(output::sent_back(&problems), true).1.await?;
                Ok(None)
            }
            Err(problems) => self
                .end(RunEnd::Failed, Some(RunError::Output(problems)))
                .await
                .map(Some),
        }
    }

    fn words(&self) -> String {
        self.answer
            .clone()
            .unwrap_or_else(|| self.conversation.last_words())
    }

    /// Writes down that the model did not reply. The session can be resumed, and then it is asked again.
    pub(crate) async fn not_replied(
        &mut self,
        error: ModelError,
    ) -> Result<RunReport, SessionError> {
        let event = LoopEvent::InferenceFailed {
            code: error.kind,
            error: self.shared.said(&error.to_string()),
            retry_in_ms: None,
        };
        let info = self
            .asked
            .clone()
            .ok_or(SessionError::OutOfTurn("no model was asked"))?;
        let alerts = self.not_paid(error.kind).await;
        let drafts = std::iter::once(event)
            .chain(alerts)
            .map(|event| Draft::Loop(info.clone(), event));
        drop(self.shared.journal().write(drafts, []));
        let error = RunError::Model(error);
        self.end(error.end(), Some(error)).await
    }

    /// What the calls of this session wait for. What agents wait for is listed by them.
    pub(crate) fn pending(&self, report: &TurnReport) -> Vec<Pending> {
        let waits = report
            .results
            .iter()
            .filter(|result| result.waits_for.is_some());
        let ours = waits.filter(|result| self.shared.agent(&result.tool).is_none());
        let session = self.shared.dispatcher.session();
        ours.map(|result| Pending::of(result, session, report.turn))
            .collect()
    }

    /// Writes down how the run ended and reports.
    pub(crate) async fn end(
        &mut self,
        end: RunEnd,
        error: Option<RunError>,
    ) -> Result<RunReport, SessionError> {
        let (usage, iterations) = (self.conversation.usage, self.conversation.iteration);
        let cost = self.conversation.cost.unwrap_or(Cost::NanoUsd(0));
        let said = error.as_ref().map(|error| self.shared.said(&chain(error)));
        let event = LoopEvent::RunEnded {
            end,
            error: said,
            iterations,
            usage,
            cost,
        };
        // Where nothing has happened, nothing has ended: a session that still waits has said so. Unless the process that
        // was to say it was lost.
        if self.shared.journal().sequence() > self.began_after
            || self.shared.has_not_ended().await?
        {
            let info = self
                .asked
                .take()
                .or_else(|| self.last.clone())
                .unwrap_or_else(|| self.ahead());
            let answers = std::mem::take(&mut self.unwritten);
            self.shared
                .journal()
                .write([Draft::Loop(info, event)], answers)
                .await?;
        }
        self.write_answers();
        self.conversation.torn = false;
        Ok(RunReport {
            session: self.shared.dispatcher.session(),
            run: self.conversation.run,
            end,
            text: self.words(),
            output: None,
            messages: self.conversation.of_run().to_vec(),
            iterations,
            usage,
            cost,
            finish: self.finish,
            pending: Vec::new(),
            error,
        })
    }
}

/// What comes of some work, or nothing if the run is stopped before.
async fn unless_stopped<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = stop.cancelled() => None,
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// What a reply asks for, and what the provider has done by itself.
fn asked_for(message: &Message) -> (Vec<ToolRequest>, Vec<ProviderCall>) {
    let (mut calls, mut ran) = (Vec::with_capacity(message.parts.len()), Vec::new());
    for Part { content, .. } in &message.parts {
        match content {
            Content::Call(request) => calls.push(request.clone()),
            Content::Ran(call) => ran.push(call.clone()),
            Content::Text(_)
            | Content::Reasoning(_)
            | Content::Result(_)
            | Content::Media(_)
            | Content::Opaque => {}
        }
    }
    (calls, ran)
}

/// What the model is told of a call. Of what the provider has run, it knows.
fn answer(result: &CallResult) -> Option<ToolAnswer> {
    let settled = result.outcome.as_ref()?;
    if settled.executor == Some(toolgate_core::ExecutorTag::ProviderNative) {
        return None;
    }
    Some(ToolAnswer {
        call_id: result.call_id.to_string(),
        tool: result.tool.to_string(),
        text: settled.model_text().into_owned(),
        is_error: !matches!(settled.status, Status::Ok | Status::DryRun),
        media: toolgate_core::Media::of(&settled.value),
    })
}
