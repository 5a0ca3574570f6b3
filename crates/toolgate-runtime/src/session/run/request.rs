//! Builds one model request: instructions, view, limits and the reserved budget.

use std::sync::Arc;

use toolgate_core::{ModelName, SessionEvent, ToolChoice, TurnInfo, View};

use crate::{
    RunError,
    journal::{BatchExtras, PendingEvent, WriteTiming},
    session::run::steps::SessionRun,
};

impl SessionRun {
    /// Prepares the request and records that the model is asked. Returns nothing if the run was
    /// stopped meanwhile.
    pub(super) async fn prepare_request(
        &mut self,
        closing: bool,
        model: &ModelName,
    ) -> Result<Option<Arc<TurnInfo>>, RunError> {
        let mut events = Vec::with_capacity(1);
        if let Some((skipped, kept)) = self.conversation.compact(self.shared.limits.window_bytes) {
            events.push(SessionEvent::HistoryCompacted { skipped, kept });
        }
        self.reset_request(closing);
        let asked = self
            .prepare_strategies(self.conversation.iteration, &mut events)
            .await?;
        let Some(layers) = asked else { return Ok(None) };
        if closing {
            self.conversation.request.view = View::without_tools();
        }
        // Layers of the last iteration do not stay: strategies return them anew each time.
        self.tools.set_layers(layers).map_err(RunError::Stack)?;
        let info = self.turn_info_for(model);
        self.reserve_budget(info.turn, model).await?;
        let request = &self.conversation.request;
        events.push(SessionEvent::InferenceStarted {
            attempt: 1,
            messages: request.messages.len() as u64,
            tools: u32::try_from(request.view.len()).unwrap_or(u32::MAX),
        });
        let drafts = events
            .into_iter()
            .map(|event| PendingEvent::Loop(info.clone(), event));
        let along = BatchExtras::with_records(std::mem::take(&mut self.unwritten));
        // Held: a model that does not answer at once lets it be written.
        let durable = self
            .shared
            .journal()
            .append_at(WriteTiming::Held, drafts, along);
        if self.hold.as_ref().is_some_and(|hold| !hold.is_empty()) {
            // Recovery has to know whether the request was sent. A failed journal is reported by
            // the next write.
            let _ = durable.await;
        }
        self.asked = Some(info.clone());
        Ok(Some(info))
    }

    /// Returns the identity of the next turn, with the model that is asked.
    fn turn_info_for(&mut self, model: &ModelName) -> Arc<TurnInfo> {
        let mut info = self.next_turn_info();
        // Released so that `make_mut` need not clone; it is restored below.
        self.ahead = None;
        let turn = Arc::make_mut(&mut info);
        turn.provider = Some(model.provider.clone());
        turn.model = Some(model.model.clone());
        turn.iteration = self.conversation.iteration;
        turn.run = Some(self.conversation.run);
        self.ahead = Some(info.clone());
        info
    }

    /// Sets everything but the messages anew for an iteration.
    fn reset_request(&mut self, closing: bool) {
        let options = &self.options;
        let shared = &self.shared;
        let first = self.conversation.iteration == 0;
        let view = self.tools.view().clone();
        let request = &mut self.conversation.request;
        let asked = &shared.ask;
        request.instructions = if closing {
            Some(asked.closing.clone())
        } else {
            asked.instructions.clone()
        };
        request.view = view;
        let choice = match &options.choice {
            ToolChoice::Auto => &asked.choice,
            own => own,
        };
        request.choice = match choice {
            _ if closing => ToolChoice::None,
            ToolChoice::Required | ToolChoice::Named(_) if !first => ToolChoice::Auto,
            choice => choice.clone(),
        };
        request.parallel_calls = asked.parallel_calls;
        request.output = shared.output_format(options);
        request.max_tokens = asked.max_tokens;
        request.temperature = asked.temperature;
        request.effort = asked.effort;
        request.cache = asked.cache;
        request.weight = options.weight.or(asked.weight);
        if request.extra != asked.extra {
            request.extra = asked.extra.clone();
        }
        if request.choice == ToolChoice::None {
            request.view = View::without_tools();
        }
    }

    /// Rebuilds the view of this iteration, for resuming its turn.
    pub(super) async fn rebuild_view(&mut self) -> Result<View, RunError> {
        // The reply that asked for the calls is counted already.
        let closing = self.conversation.counted_iterations() > self.max_iterations();
        self.reset_request(closing);
        let asked = self
            .prepare_strategies(
                self.conversation.iteration.saturating_sub(1),
                &mut Vec::new(),
            )
            .await?;
        let Some(layers) = asked else {
            // Nothing is run any more, but the annotations of the tools decide whether a call that
            // had started may have taken effect.
            return Ok(self.tools.all_tools().clone());
        };
        self.tools.set_layers(layers).map_err(RunError::Stack)?;
        if closing {
            self.conversation.request.view = View::without_tools();
        }
        Ok(self.conversation.request.view.clone())
    }
}
