//! The state machine of a run: which step is next, and what the input, a reply, results and the end
//! add to the conversation.
//!
//! Both modes take these steps and no others. In managed mode Toolgate asks the model and runs the
//! tools; in host-driven mode a host does, and delivers the results.

use std::sync::Arc;

use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Cost, FinishReason, Labels, Message, MessagePart, MessageRecord, ModelError, PartContent,
    ProviderCall, RecordKey, Reply, Role, RunEnd, SessionEvent, Stack, Status, StoreRecord,
    ToolAnswer, ToolRequest, TurnId, TurnInfo, error_chain, note_keys,
};

use crate::{
    BudgetReservation, CallResult, OnCap, PendingCall, RunError, RunOptions, RunReport,
    SessionError, StrategyAction, TurnEnd, TurnReport, TurnRequest, TurnRun,
    agent::handoff_limits::store_handoffs,
    journal::{BatchExtras, PendingEvent, WriteAck, WriteTiming},
    session::{
        SessionShared, SteeringMessage,
        conversation::{Conversation, ConversationState},
        output,
        run::time_limit::RunClock,
        tools::RunTools,
    },
    turn::DrivingGuard,
};

/// A run under way. While it lives, nothing else adds to the conversation.
pub(crate) struct SessionRun {
    pub(crate) shared: Arc<SessionShared>,
    /// Renews the lease, also while the model thinks.
    _driving: DrivingGuard,
    pub(crate) conversation: OwnedMutexGuard<Conversation>,
    pub(crate) options: RunOptions,
    pub(crate) cancel: CancellationToken,
    pub(crate) steering: mpsc::UnboundedReceiver<SteeringMessage>,
    /// The tools and layers of the run, with what strategies add.
    pub(crate) tools: RunTools,
    /// The labels of the session and the run.
    pub(crate) labels: Labels,
    /// The identity of the next turn.
    pub(super) ahead: Option<Arc<TurnInfo>>,
    /// The turn that the model was asked for.
    pub(crate) asked: Option<Arc<TurnInfo>>,
    /// Number of turns in a row in which a loop was detected.
    guarded: u32,
    /// Number of answers that were rejected because of their format.
    sent_back: u32,
    finish: Option<FinishReason>,
    answer: Option<String>,
    /// The budget reserved for the request that is under way.
    pub(crate) hold: Option<BudgetReservation>,
    /// The number of the last event before the run began or was resumed.
    began_after: u64,
    /// The turn that was worked on last.
    pub(crate) last: Option<Arc<TurnInfo>>,
    /// The end of the last turn, if it was stopped.
    stopped: Option<TurnEnd>,
    /// The results that the model reads next. They are written together with the next event,
    /// because they can be rebuilt from the outcomes, which are durable.
    pub(super) unwritten: Vec<(RecordKey, StoreRecord)>,
    /// The model that the run began with, if the session has another one now.
    pub(crate) began_with: Option<String>,
    /// The deadlines of the run.
    pub(super) time: RunClock,
}

/// The next step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunStep {
    /// Ask the model.
    Ask,
    /// Ask it for the last time, without tools.
    Close,
    /// Settle the calls of a turn.
    Settle(TurnId),
    /// Nothing: the run ends like this.
    End(RunEnd),
    /// Nothing: the last turn was stopped.
    Stop,
    /// Nothing: the limit of iterations is reached, and that is an error.
    Fail,
}

impl SessionRun {
    pub(crate) fn new(
        shared: Arc<SessionShared>,
        conversation: OwnedMutexGuard<Conversation>,
        options: RunOptions,
        tools: RunTools,
        labels: Labels,
        cancel: CancellationToken,
        steering: mpsc::UnboundedReceiver<SteeringMessage>,
    ) -> Self {
        let mut conversation = conversation;
        conversation.torn = true;
        conversation.request.output = shared.output_format(&options);
        let began_after = shared.journal().sequence();
        let time = RunClock::start(&shared, &options);
        Self {
            _driving: shared.dispatcher.0.begin_driving(),
            shared,
            conversation,
            options,
            cancel,
            steering,
            tools,
            labels,
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
            began_with: None,
            time,
        }
    }

    /// Replaces the options, for the run that comes after the one whose calls were settled.
    pub(crate) fn use_options(&mut self, options: RunOptions) -> Result<(), SessionError> {
        self.tools = RunTools::new(&self.shared, &options).map_err(SessionError::Options)?;
        self.labels = self.shared.run_labels(&self.shared.who.labels, &options)?;
        self.conversation.request.output = self.shared.output_format(&options);
        self.time = RunClock::start(&self.shared, &options);
        self.options = options;
        Ok(())
    }

    /// Returns the next step. It follows from the conversation, so a run can be continued in any
    /// process.
    pub(crate) fn next_step(&self) -> RunStep {
        let max_iterations = self.max_iterations();
        let on_cap = self.options.on_cap.unwrap_or(self.shared.limits.on_cap);
        let place = self.conversation.state();
        let counted = self.conversation.counted_iterations();
        match place {
            _ if self.stopped.is_some() => RunStep::Stop,
            _ if self.answer.is_some() => RunStep::End(RunEnd::Completed),
            ConversationState::Empty => RunStep::End(RunEnd::Completed),
            // Before every limit: providers reject a request in which a call has no result.
            ConversationState::Open(turn) => RunStep::Settle(turn),
            ConversationState::Answered if counted > max_iterations => {
                RunStep::End(RunEnd::MaxIterations)
            }
            ConversationState::Answered => RunStep::End(RunEnd::Completed),
            ConversationState::Ask if counted > max_iterations => {
                RunStep::End(RunEnd::MaxIterations)
            }
            ConversationState::Ask if counted == max_iterations && on_cap == OnCap::Fail => {
                RunStep::Fail
            }
            ConversationState::Ask if counted == max_iterations => RunStep::Close,
            ConversationState::Ask if self.guarded >= self.shared.limits.loop_rounds => {
                RunStep::End(RunEnd::LoopGuard)
            }
            ConversationState::Ask => RunStep::Ask,
        }
    }

    pub(super) fn max_iterations(&self) -> u32 {
        self.options
            .max_iterations
            .unwrap_or(self.shared.limits.max_iterations)
    }

    /// Returns the identity of the next turn. It is created once, with the first event that belongs
    /// to it.
    pub(super) fn next_turn_info(&mut self) -> Arc<TurnInfo> {
        let shared = &self.shared;
        let conversation = &self.conversation;
        let labels = &self.labels;
        let ahead = || {
            let mut info = shared.new_turn_info(conversation.iteration);
            info.run = Some(conversation.run);
            info.labels = labels.clone();
            Arc::new(info)
        };
        self.ahead.get_or_insert_with(ahead).clone()
    }

    /// Starts the hooks of the last run, if they were not started when it ended.
    pub(crate) async fn look_back(&self) -> Result<(), SessionError> {
        if self.conversation.next > 0 {
            let last = self.conversation.run;
            self.shared.start_missed_hooks(last).await?;
        }
        Ok(())
    }

    /// Adds a message of the user to the conversation. The write is held.
    pub(crate) fn add_user_message(&mut self, message: Message, steering: bool) -> (u64, WriteAck) {
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
        let mut info = self.next_turn_info();
        if (info.iteration, info.run) != (iteration, Some(run)) {
            let turn = Arc::make_mut(&mut info);
            turn.iteration = iteration;
            turn.run = Some(run);
        }
        let (text, text_bytes) = self.shared.visible_message(&message.text());
        let event = SessionEvent::UserMessage {
            message: number,
            text,
            text_bytes,
            steering,
        };
        let said = MessageRecord {
            refunds: self.conversation.refunds,
            ..MessageRecord::new(info.turn, iteration, run, Arc::new(message))
        };
        let mut records = std::mem::take(&mut self.unwritten);
        records.push(self.add_message(said));
        if !steering {
            records.push(self.run_record(number));
        }
        let along = BatchExtras::with_records(records);
        let journal = self.shared.journal();
        let event = PendingEvent::Loop(info, event);
        (number, journal.append_at(WriteTiming::Held, [event], along))
    }

    /// Returns the options of the run that message `number` begins, as a record for the same write.
    fn run_record(&mut self, number: u64) -> (RecordKey, StoreRecord) {
        let model = self.shared.model.name();
        let mut record = self.options.to_record(model, &self.labels);
        let instructions = self.shared.ask.instructions.as_ref();
        record.instructions =
            instructions.map(|text| self.conversation.instructions_record(number, text));
        (
            RecordKey::Run(self.shared.dispatcher.session(), number),
            StoreRecord::Run(Arc::new(record)),
        )
    }

    /// Adds a message to the conversation and returns its record, which still has to be written.
    fn add_message(&mut self, said: MessageRecord) -> (RecordKey, StoreRecord) {
        let number = self.conversation.push(&said);
        (
            RecordKey::Message(self.shared.dispatcher.session(), number),
            StoreRecord::Message(Arc::new(said)),
        )
    }

    /// Adds the messages that arrived while a turn ran or a model was asked.
    pub(crate) async fn add_steering(&mut self) -> Result<(), SessionError> {
        while let Ok(steer) = self.steering.try_recv() {
            self.accept_steering(steer).await?;
        }
        Ok(())
    }

    /// Adds one message that arrived meanwhile, and confirms to the sender that it is durable.
    pub(crate) async fn accept_steering(
        &mut self,
        steer: SteeringMessage,
    ) -> Result<(), SessionError> {
        let (number, durable) = self.add_user_message(steer.message, true);
        durable.await?;
        // A sender that stopped waiting does not need the answer.
        let _ = steer.heard.send(number);
        Ok(())
    }

    /// Adds a reply to the conversation. If it asks for calls, they are requested, and nothing has
    /// run. The write is held.
    pub(crate) async fn accept_reply(
        &mut self,
        reply: Reply,
    ) -> Result<Option<TurnRun>, SessionError> {
        let Reply {
            mut message,
            usage,
            finish,
            ..
        } = reply;
        let info = self
            .asked
            .take()
            .ok_or(SessionError::OutOfOrder("no model was asked"))?;
        self.ahead = None;
        self.finish = Some(finish);
        self.last = Some(info.clone());
        let (cost, alerts) = self.charge_reply(usage).await;
        self.shared.label_calls(&mut message);
        let (calls, ran) = requested_calls(&message);
        let (text, text_bytes) = self.shared.visible_message(&message.text());
        let after = self.conversation.last_turn;
        let finished = SessionEvent::InferenceFinished {
            message: self.conversation.next,
            text,
            text_bytes,
            calls: u32::try_from(calls.len()).unwrap_or(u32::MAX),
            finish,
            usage,
            cost,
        };
        let run = self.conversation.run;
        let refunds = self.conversation.refunds;
        let paused = finish == FinishReason::Paused;
        let unfinished = finish == FinishReason::Other;
        let said = MessageRecord {
            refunds,
            usage,
            cost,
            paused,
            unfinished,
            ..MessageRecord::new(info.turn, info.iteration, run, Arc::new(message))
        };
        let record = self.add_message(said);
        let events: Vec<_> = std::iter::once(finished).chain(alerts).collect();
        if calls.is_empty() && ran.is_empty() {
            let drafts = events
                .into_iter()
                .map(|event| PendingEvent::Loop(info.clone(), event));
            let along = BatchExtras::with_records(vec![record]);
            let journal = self.shared.journal();
            drop(journal.append_at(WriteTiming::Held, drafts, along));
            return Ok(None);
        }
        let view = self.conversation.request.view.clone();
        let mut request = TurnRequest::for_turn(info, view, calls).provider_calls(ran);
        // One write: a reply without its calls, or calls without their reply, could not be resumed.
        request.events = events;
        // With room for the records of the turn.
        request.records = Vec::with_capacity(4);
        request.records.push(record);
        request.after = after;
        // The conversation has the results of that turn, so it is settled.
        request.trusted = true;
        request.stack = Some(self.stack());
        Ok(Some(self.shared.dispatcher.open_held_turn(request).await?))
    }

    /// Returns the stack that the calls of this iteration go through.
    pub(crate) fn stack(&self) -> Stack {
        self.tools.stack()
    }

    /// Adds the results of a settled turn and asks the strategies how the run continues.
    pub(crate) async fn accept_results(
        &mut self,
        report: &TurnReport,
    ) -> Result<Result<(), RunError>, SessionError> {
        // Before the model can delegate to the target of a handoff.
        store_handoffs(&self.shared, self.conversation.run, report).await?;
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
        // At most as many refunds as iterations: a strategy that always refunds would let the run
        // continue for ever.
        let refund =
            onward == StrategyAction::Refund && self.conversation.refunds < self.max_iterations();
        if let StrategyAction::Finish(answer) = onward {
            self.answer = Some(answer);
        }
        self.add_results(report, refund, events);
        if !self.shared.strategies.is_empty() {
            // Strategies may take their time before anything else is written.
            self.write_results();
        }
        // After the results are added: the effect is recorded, even if its receipt is not.
        Ok(find_lost_receipt(report).map_or(Ok(()), Err))
    }

    /// Adds the results of a turn to the conversation, and the final answer of a strategy if there
    /// is one.
    pub(crate) fn add_results(
        &mut self,
        report: &TurnReport,
        refund: bool,
        events: Vec<SessionEvent>,
    ) {
        let mut answers = Vec::with_capacity(report.results.len());
        answers.extend(
            report
                .results
                .iter()
                .filter_map(tool_answer)
                .map(|answer| MessagePart::from(PartContent::Result(answer))),
        );
        let iteration = self.conversation.iteration.saturating_sub(1);
        let refunds = self.conversation.refunds + u32::from(refund);
        let message = Arc::new(Message::new(Role::Tool, answers));
        let said = MessageRecord {
            refunds,
            ..MessageRecord::new(report.turn, iteration, self.conversation.run, message)
        };
        let record = self.add_message(said);
        self.unwritten.push(record);
        if let Some(answer) = &self.answer {
            let answer = answer.clone();
            let record = self.add_strategy_answer(report.turn, iteration, &answer);
            self.unwritten.push(record);
        }
        if !events.is_empty() {
            self.write_strategy_events(events);
        }
    }

    /// Adds the answer of a strategy to the conversation, as if the model had written it: a resumed
    /// run finds it answered, and the next run can read it.
    fn add_strategy_answer(
        &mut self,
        turn: TurnId,
        iteration: u32,
        answer: &str,
    ) -> (RecordKey, StoreRecord) {
        let message = Arc::new(Message::assistant(answer));
        let said = MessageRecord::new(turn, iteration, self.conversation.run, message);
        self.add_message(MessageRecord {
            refunds: self.conversation.refunds,
            cost: Cost::NanoUsd(0),
            ..said
        })
    }

    /// Writes the results that the model reads next, where it is not known when the next event is
    /// written.
    pub(crate) fn write_results(&mut self) {
        if !self.unwritten.is_empty() {
            // Not awaited: they can be rebuilt from the outcomes.
            drop(
                self.shared
                    .journal()
                    .append([], std::mem::take(&mut self.unwritten)),
            );
        }
    }

    /// Ends a run whose last turn was stopped.
    pub(crate) async fn end_stopped(&mut self) -> Result<RunReport, SessionError> {
        match self.stopped {
            Some(TurnEnd::Aborted) => self.end_run(RunEnd::Failed, Some(RunError::Aborted)).await,
            _ if self.time.stopped => self.end_run(RunEnd::Deadline, None).await,
            _ => self.end_run(RunEnd::Cancelled, None).await,
        }
    }

    /// Ends a run that has reached its limit of iterations where that is an error.
    pub(crate) async fn end_at_cap(&mut self) -> Result<RunReport, SessionError> {
        let report = self.end_run(RunEnd::MaxIterations, None).await?;
        Err(SessionError::MaxIterations(Box::new(report)))
    }

    /// Checks that the final answer is complete and has the requested format. If the format is
    /// wrong, the model is told once; the second time the run fails.
    pub(crate) async fn check_output(
        &mut self,
        end: RunEnd,
    ) -> Result<Option<RunReport>, SessionError> {
        let answer_known = self.answer.is_some() || !self.conversation.unfinished;
        if end == RunEnd::Completed && !answer_known {
            let error = Some(RunError::UnknownFinish);
            return self.end_run(RunEnd::Failed, error).await.map(Some);
        }
        let format = self.conversation.request.output.clone();
        let answered =
            matches!(end, RunEnd::Completed | RunEnd::MaxIterations) && self.conversation.next > 0;
        let Some(format) = format.filter(|_| answered) else {
            return self.end_run(end, None).await.map(Some);
        };
        match output::parse_output(&self.final_text(), &format.schema) {
            Ok(output) => {
                let mut report = self.end_run(end, None).await?;
                report.output = Some(output);
                Ok(Some(report))
            }
            Err(problems)
                if self.sent_back == 0 && end == RunEnd::Completed && self.answer.is_none() =>
            {
                self.sent_back += 1;
                // The channel was closed for the end of the run, which does not happen now.
                self.steering = self.shared.open_control(self.cancel.clone());
                self.add_user_message(output::rejection_message(&problems), true)
                    .1
                    .await?;
                Ok(None)
            }
            Err(problems) => self
                .end_run(RunEnd::Failed, Some(RunError::Output(problems)))
                .await
                .map(Some),
        }
    }

    fn final_text(&self) -> String {
        self.answer
            .clone()
            .unwrap_or_else(|| self.conversation.last_text())
    }

    /// Records that the model did not reply. When the session is resumed, it is asked again.
    pub(crate) async fn end_without_reply(
        &mut self,
        error: ModelError,
    ) -> Result<RunReport, SessionError> {
        let event = SessionEvent::InferenceFailed {
            code: error.kind,
            error: self.shared.visible_text(&error.to_string()),
            retry_in_ms: None,
        };
        let info = self
            .asked
            .clone()
            .ok_or(SessionError::OutOfOrder("no model was asked"))?;
        let alerts = self.settle_failed(error.kind).await;
        let drafts = std::iter::once(event)
            .chain(alerts)
            .map(|event| PendingEvent::Loop(info.clone(), event));
        drop(self.shared.journal().append(drafts, []));
        let error = RunError::Model(error);
        self.end_run(error.run_end(), Some(error)).await
    }

    /// Returns the pending calls of this session. The pending calls of agents are listed by them.
    pub(crate) fn pending_calls(&self, report: &TurnReport) -> Vec<PendingCall> {
        let session = self.shared.dispatcher.session();
        let mut pending = PendingCall::list_in_turn(report, session);
        pending.retain(|call| self.shared.find_agent(&call.tool).is_none());
        pending
    }

    /// Records how the run ended, and reports.
    pub(crate) async fn end_run(
        &mut self,
        end: RunEnd,
        error: Option<RunError>,
    ) -> Result<RunReport, SessionError> {
        let usage = self.conversation.usage;
        let iterations = self.conversation.iteration;
        let cost = self.conversation.cost.unwrap_or(Cost::NanoUsd(0));
        let said = error
            .as_ref()
            .map(|error| self.shared.visible_text(&error_chain(error)));
        let event = SessionEvent::RunEnded {
            end,
            error: said,
            iterations,
            usage,
            cost,
        };
        // A run in which nothing happened has recorded its end before, for example as suspended.
        // The exception is a process that was lost before it could.
        if self.shared.journal().sequence() > self.began_after
            || self.shared.is_last_run_open().await?
        {
            let info = self
                .asked
                .take()
                .or_else(|| self.last.clone())
                .unwrap_or_else(|| self.next_turn_info());
            let answers = std::mem::take(&mut self.unwritten);
            self.shared
                .journal()
                .append([PendingEvent::Loop(info, event)], answers)
                .await?;
        }
        self.write_results();
        self.conversation.torn = false;
        let report = RunReport {
            session: self.shared.dispatcher.session(),
            run: self.conversation.run,
            end,
            text: self.final_text(),
            output: None,
            messages: self.conversation.run_messages().to_vec(),
            iterations,
            usage,
            cost,
            finish: self.finish,
            pending: Vec::new(),
            settled: Vec::new(),
            error,
            began_with: self.began_with.clone(),
        };
        self.shared.start_run_end_hooks(&report);
        Ok(report)
    }
}

/// Returns the error for a call whose receipt could not be written, if there is one.
fn find_lost_receipt(report: &TurnReport) -> Option<RunError> {
    let is_lost = |result: &&CallResult| {
        let notes = result.outcome.as_ref();
        let notes = notes.and_then(|settled| settled.notes.fields());
        notes.is_some_and(|notes| matches!(notes.get(note_keys::RECEIPT_MISSING), Ok(Some(true))))
    };
    let lost = report.results.iter().find(is_lost)?;
    Some(RunError::ReceiptLost {
        tool: lost.tool.clone(),
        call: lost.id,
    })
}

/// Returns the calls that a reply asks for, and those that the provider has executed.
fn requested_calls(message: &Message) -> (Vec<ToolRequest>, Vec<ProviderCall>) {
    let mut calls = Vec::with_capacity(message.parts.len());
    let mut ran = Vec::new();
    for MessagePart { content, .. } in &message.parts {
        match content {
            PartContent::Call(request) => calls.push(request.clone()),
            PartContent::Ran(call) => ran.push(call.clone()),
            PartContent::Text(_)
            | PartContent::Reasoning(_)
            | PartContent::Result(_)
            | PartContent::Media(_)
            | PartContent::Opaque => {}
        }
    }
    (calls, ran)
}

/// Builds the answer to a call. A provider-executed call has none: the model has seen its result.
fn tool_answer(result: &CallResult) -> Option<ToolAnswer> {
    let settled = result.outcome.as_ref()?;
    if settled.executor == Some(toolgate_core::ExecutorTag::ProviderNative) {
        return None;
    }
    Some(ToolAnswer {
        call_id: result.call_id.to_string(),
        tool: result.tool.to_string(),
        text: settled.model_text().into_owned(),
        is_error: !matches!(settled.status, Status::Ok | Status::DryRun),
        media: toolgate_core::Media::in_result(&settled.value),
    })
}
