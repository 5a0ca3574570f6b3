//! The conversation of a session, in the form of a model request: kept from turn to turn, never
//! copied.

mod tail;

use std::sync::Arc;

use toolgate_core::{
    Cost, Message, MessagePart, MessageRecord, ModelRequest, PartContent, Role, RunInstructions,
    SessionId, StoreError, StoreHandle, TurnId, Usage,
};

use self::tail::{FIRST_PAGE, LARGEST_PAGE, MessageTail};

/// The end of a conversation, as much of it as a model can read.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// The request to the model; its messages are the conversation.
    pub(crate) request: ModelRequest,
    /// The number of the next message.
    pub(crate) next: u64,
    /// The number of the message that began the run.
    pub(crate) run: u64,
    /// The next iteration of the run.
    pub(crate) iteration: u32,
    /// The iterations of the run that are not counted.
    pub(crate) refunds: u32,
    /// The tokens and cost of the run so far.
    pub(crate) usage: Usage,
    pub(crate) cost: Option<Cost>,
    /// The last turn that asked for calls.
    pub(crate) last_turn: Option<TurnId>,
    /// The turn whose calls have no results yet, and the index of its message.
    open: Option<(TurnId, usize)>,
    /// True if there is a message that the model has not replied to.
    waiting: bool,
    /// True if the last message is a reply that the provider ended for an unknown reason.
    pub(crate) unfinished: bool,
    /// The approximate size of the messages in bytes.
    size: usize,
    /// The number of messages that are left out.
    left_out: u64,
    /// The first message of the run, for the note that replaces it when it is left out.
    task: Option<Arc<Message>>,
    /// The index at which the run begins in the request.
    run_at: usize,
    /// True while a run may have added messages that were not written; a dropped run leaves it set.
    pub(crate) torn: bool,
    /// True if a model can read messages that are not loaded: no request is made from it.
    pub(crate) is_partial: bool,
    /// The run whose record has the text of the instructions, if this process stored it.
    instructions_run: Option<u64>,
}

/// The state of a conversation: what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConversationState {
    /// There are no messages yet.
    Empty,
    /// The model has to be asked.
    Ask,
    /// Calls have to be settled.
    Open(TurnId),
    /// The model has answered.
    Answered,
}

impl Conversation {
    /// Opens a conversation: loads the last messages, which say what it waits for. If a model can
    /// read more than these, the conversation is partial until [`load`](Self::load) replaces it.
    pub(crate) async fn open(
        store: &StoreHandle,
        session: SessionId,
        most: usize,
    ) -> Result<Self, StoreError> {
        let mut tail = MessageTail::new(store, session);
        tail.read_page(FIRST_PAGE).await?;
        let is_partial = tail.reaches_further(most);
        Ok(Self {
            is_partial,
            ..Self::from_tail(tail)
        })
    }

    /// Loads the end of a conversation, up to about `most` bytes.
    pub(crate) async fn load(
        store: &StoreHandle,
        session: SessionId,
        most: usize,
    ) -> Result<Self, StoreError> {
        // Growing pages: a short conversation is one small read, a long one has few reads.
        let mut page_size = FIRST_PAGE;
        let mut tail = MessageTail::new(store, session);
        loop {
            tail.read_page(page_size).await?;
            if !tail.reaches_further(most) {
                return Ok(Self::from_tail(tail));
            }
            page_size = (page_size * 2).min(LARGEST_PAGE);
        }
    }

    /// Returns what the record of run `number` says about the instructions: their text in the first
    /// run since the conversation was loaded, and the number of that run in later ones.
    pub(crate) fn instructions_record(&mut self, number: u64, text: &Arc<str>) -> RunInstructions {
        let first = *self.instructions_run.get_or_insert(number);
        if first == number {
            RunInstructions::Text(text.clone())
        } else {
            RunInstructions::SameAs(first)
        }
    }

    fn from_tail(tail: MessageTail<'_>) -> Self {
        let mut conversation = Self {
            left_out: tail.before.unwrap_or(0),
            ..Self::default()
        };
        for (number, said) in tail.pages.into_iter().rev().flatten() {
            conversation.next = number;
            conversation.push(&said);
        }
        if conversation.left_out > 0 {
            // The first of them may be a result whose call was not loaded.
            conversation
                .request
                .messages
                .insert(0, Arc::new(Message::user("")));
            conversation.replace_oldest(1);
        }
        conversation
    }

    /// Adds the next message and returns its number.
    pub(crate) fn push(&mut self, said: &MessageRecord) -> u64 {
        let number = self.next;
        self.next += 1;
        self.size += said.message.size();
        // Also if the message that began the run was not loaded.
        self.run = said.run;
        let message = said.message.clone();
        let at = self.request.messages.len();
        match message.role {
            Role::User => {
                if said.run == number {
                    self.begin_run(number, &message, at);
                }
                self.waiting = true;
                self.unfinished = false;
                self.request.messages.push(message);
            }
            Role::Assistant => {
                self.add_usage(said);
                let asks = message
                    .parts
                    .iter()
                    .any(|part| matches!(part.content, PartContent::Call(_) | PartContent::Ran(_)));
                self.open = asks.then_some((said.turn, at));
                self.last_turn = if asks {
                    Some(said.turn)
                } else {
                    self.last_turn
                };
                self.waiting = said.paused && !asks;
                self.unfinished = said.unfinished;
                self.iteration = said.iteration + 1;
                self.request.messages.push(message);
            }
            Role::Tool => {
                self.refunds = said.refunds;
                // Results whose calls are left out are left out too.
                let Some((_, asked)) = self.open.take() else {
                    return number;
                };
                // Messages that arrived while the calls ran come after their results: providers
                // require results directly after the calls.
                let by_provider_alone = message.parts.is_empty();
                self.waiting = !by_provider_alone || self.request.messages.len() > asked + 1;
                self.unfinished &= by_provider_alone;
                if !by_provider_alone {
                    self.request.messages.insert(asked + 1, message);
                }
            }
        }
        number
    }

    fn begin_run(&mut self, number: u64, message: &Arc<Message>, at: usize) {
        self.run = number;
        self.run_at = at;
        self.task = Some(message.clone());
        self.iteration = 0;
        self.refunds = 0;
        self.usage = Usage::default();
        self.cost = None;
    }

    fn add_usage(&mut self, said: &MessageRecord) {
        self.usage = self.usage.plus(said.usage.unwrap_or_default());
        self.cost = Some(self.cost.map_or(said.cost, |cost| cost.plus(said.cost)));
    }

    /// Returns what the conversation waits for.
    pub(crate) fn state(&self) -> ConversationState {
        match (self.open, self.waiting) {
            (Some((turn, _)), _) => ConversationState::Open(turn),
            (None, true) => ConversationState::Ask,
            (None, false) if self.next == 0 => ConversationState::Empty,
            (None, false) => ConversationState::Answered,
        }
    }

    /// Returns the number of counted iterations.
    pub(crate) fn counted_iterations(&self) -> u32 {
        self.iteration.saturating_sub(self.refunds)
    }

    /// Returns the messages of the run, as far as they are still in the request.
    pub(crate) fn run_messages(&self) -> &[Arc<Message>] {
        self.request.messages.get(self.run_at..).unwrap_or_default()
    }

    /// Returns the last text of the model.
    pub(crate) fn last_text(&self) -> String {
        let said = self
            .run_messages()
            .iter()
            .rev()
            .find(|message| message.role == Role::Assistant);
        said.map(|message| message.text()).unwrap_or_default()
    }

    /// Returns the results of the calls that the model asked for last.
    pub(crate) fn last_results(&self) -> Option<Arc<Message>> {
        let asked = self
            .request
            .messages
            .iter()
            .rposition(|message| message.role == Role::Assistant)?;
        self.request
            .messages
            .get(asked + 1)
            .filter(|message| message.role == Role::Tool)
            .cloned()
    }

    /// Leaves out the oldest messages if all together have more than `most` bytes. Returns how many
    /// are left out and kept.
    pub(crate) fn compact(&mut self, most: usize) -> Option<(u64, u64)> {
        if self.size <= most || self.open.is_some() {
            return None;
        }
        let mut cut = usize::from(self.left_out > 0);
        let mut size = self.size;
        for (at, message) in self.request.messages.iter().enumerate().skip(cut) {
            // Down to half of the limit: the start of the request then stays the same for a while,
            // and the provider can use its cache.
            let fits = size <= most / 2 && message.role != Role::Tool;
            // The last message is the one the model has to answer.
            if fits || at + 1 == self.request.messages.len() {
                break;
            }
            size -= message.size();
            cut = at + 1;
        }
        // Results must not be separated from their calls.
        while self
            .request
            .messages
            .get(cut)
            .is_some_and(|message| message.role == Role::Tool)
        {
            cut -= 1;
        }
        if cut <= usize::from(self.left_out > 0) {
            return None;
        }
        self.left_out += (cut - usize::from(self.left_out > 0)) as u64;
        self.replace_oldest(cut);
        Some((self.left_out, self.request.messages.len() as u64 - 1))
    }

    /// Puts a note in place of the first `cut` messages, and of results whose calls are left out.
    fn replace_oldest(&mut self, cut: usize) {
        let messages = &mut self.request.messages;
        let answers = messages
            .iter()
            .skip(cut)
            .take_while(|message| message.role == Role::Tool)
            .count();
        messages.splice(
            ..cut + answers,
            [Arc::new(omission_note(self.left_out, self.task.as_deref()))],
        );
        let gone = cut + answers - 1;
        self.run_at = self.run_at.saturating_sub(gone).max(1);
        self.open = self.open.map(|(turn, at)| (turn, at.saturating_sub(gone)));
        self.size = messages.iter().map(|message| message.size()).sum();
    }
}

/// Builds the note to the model that messages are missing, with the task of the run.
fn omission_note(left_out: u64, task: Option<&Message>) -> Message {
    const TASK_BYTES: usize = 4096;
    let mut text = format!("[{left_out} earlier messages are left out to save room.");
    if let Some(task) = task.map(Message::text).filter(|task| !task.is_empty()) {
        text.push_str(" The task was: ");
        text.push_str(&task[..task.floor_char_boundary(TASK_BYTES)]);
    }
    text.push(']');
    Message::new(Role::User, vec![MessagePart::from_text(text)])
}

#[cfg(test)]
mod tests;
