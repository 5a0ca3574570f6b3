//! What was said in a session, in the form in which a model is asked: kept from turn to turn, never copied.

use std::sync::Arc;

use toolgate_core::{
    Content, Cost, Message, ModelRequest, Part, Role, Said, SessionId, StoreError, StoreHandle,
    TurnId, Usage,
};

/// The end of a conversation, as much of it as a model can read.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// What the model is asked with; its messages are the conversation.
    pub(crate) request: ModelRequest,
    /// The number of the next message.
    pub(crate) next: u64,
    /// The number of the message that began the run.
    pub(crate) run: u64,
    /// The next round of the run.
    pub(crate) iteration: u32,
    /// The rounds of the run that are not counted.
    pub(crate) refunds: u32,
    /// What the run has used and cost so far.
    pub(crate) usage: Usage,
    pub(crate) cost: Option<Cost>,
    /// The last turn that asked for calls.
    pub(crate) last_turn: Option<TurnId>,
    /// The turn whose calls have not been answered, and where its message stands.
    open: Option<(TurnId, usize)>,
    /// Whether something was said that the model has not replied to.
    waiting: bool,
    /// About how many bytes the messages have.
    size: usize,
    /// How many messages are not read any more.
    left_out: u64,
    /// What the first message of the run says, for when it is left out.
    task: Option<Arc<Message>>,
    /// Where the run begins in the request.
    run_at: usize,
    /// Whoever added to it last was dropped half-way: what is here may not have been written.
    pub(crate) torn: bool,
}

/// What a conversation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing was said yet.
    Empty,
    /// The model has to be asked.
    Ask,
    /// Calls have to be settled.
    Open(TurnId),
    /// The model has said what it had to say.
    Answered,
}

impl Conversation {
    /// Reads the end of a conversation, up to about `most` bytes.
    pub(crate) async fn load(
        store: &StoreHandle,
        session: SessionId,
        most: usize,
    ) -> Result<Self, StoreError> {
        const PAGE: usize = 64;
        let (mut pages, mut size, mut before) = (Vec::new(), 0, u64::MAX);
        while size <= most {
            let page = store.messages(session, before, PAGE).await?;
            let Some((first, _)) = page.first() else {
                break;
            };
            (before, size) = (
                *first,
                size + page
                    .iter()
                    .map(|(_, said)| said.message.size())
                    .sum::<usize>(),
            );
            pages.push(page);
        }
        let mut conversation = Self {
            left_out: if before == u64::MAX { 0 } else { before },
            ..Self::default()
        };
        for (number, said) in pages.into_iter().rev().flatten() {
            conversation.next = number;
            conversation.push(&said);
        }
        if conversation.left_out > 0 {
            // The first of them may answer something that was not read.
            conversation
                .request
                .messages
                .insert(0, Arc::new(Message::user("")));
            conversation.leave_out(1);
        }
        Ok(conversation)
    }

    /// Adds the next message and returns its number.
    pub(crate) fn push(&mut self, said: &Said) -> u64 {
        let number = self.next;
        self.next += 1;
        self.size += said.message.size();
        // Also if the message that began it was not read.
        self.run = said.run;
        let (message, at) = (said.message.clone(), self.request.messages.len());
        match message.role {
            Role::User => {
                if said.run == number {
                    self.begin(number, &message, at);
                }
                self.waiting = true;
                self.request.messages.push(message);
            }
            Role::Assistant => {
                self.count(said);
                let asks = message
                    .parts
                    .iter()
                    .any(|part| matches!(part.content, Content::Call(_) | Content::Ran(_)));
                self.open = asks.then_some((said.turn, at));
                self.last_turn = if asks {
                    Some(said.turn)
                } else {
                    self.last_turn
                };
                self.waiting = said.paused && !asks;
                self.iteration = said.iteration + 1;
                self.request.messages.push(message);
            }
            Role::Tool => {
                self.refunds = said.refunds;
                // Results whose calls are not read any more are not read either.
                let Some((_, asked)) = self.open.take() else {
                    return number;
                };
                // What was said while the calls ran comes after their results: providers want those at once.
                let by_provider_alone = message.parts.is_empty();
                self.waiting = !by_provider_alone || self.request.messages.len() > asked + 1;
                if !by_provider_alone {
                    self.request.messages.insert(asked + 1, message);
                }
            }
        }
        number
    }

    fn begin(&mut self, number: u64, message: &Arc<Message>, at: usize) {
        (self.run, self.run_at, self.task) = (number, at, Some(message.clone()));
        (self.iteration, self.refunds, self.usage, self.cost) = (0, 0, Usage::default(), None);
    }

    fn count(&mut self, said: &Said) {
        self.usage = self.usage.plus(said.usage.unwrap_or_default());
        self.cost = Some(self.cost.map_or(said.cost, |cost| cost.plus(said.cost)));
    }

    /// What it waits for.
    pub(crate) fn place(&self) -> Place {
        match (self.open, self.waiting) {
            (Some((turn, _)), _) => Place::Open(turn),
            (None, true) => Place::Ask,
            (None, false) if self.next == 0 => Place::Empty,
            (None, false) => Place::Answered,
        }
    }

    /// The round, as far as rounds are counted.
    pub(crate) fn counted(&self) -> u32 {
        self.iteration.saturating_sub(self.refunds)
    }

    /// The messages of the run, as far as they are still read.
    pub(crate) fn of_run(&self) -> &[Arc<Message>] {
        self.request.messages.get(self.run_at..).unwrap_or_default()
    }

    /// What the model said last.
    pub(crate) fn last_words(&self) -> String {
        let said = self
            .of_run()
            .iter()
            .rev()
            .find(|message| message.role == Role::Assistant);
        said.map(|message| message.text()).unwrap_or_default()
    }

    /// What the model is told about the calls that it asked for last.
    pub(crate) fn answers(&self) -> Option<Arc<Message>> {
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

    /// Leaves out the oldest messages if all have more than `most` bytes, and says how many are left out and kept.
    ///
    /// So much is left out that there is room for a while: what stays the same from turn to turn need not be read anew by
    /// the provider.
    pub(crate) fn compact(&mut self, most: usize) -> Option<(u64, u64)> {
        if self.size <= most || self.open.is_some() {
            return None;
        }
        let (mut cut, mut size) = (usize::from(self.left_out > 0), self.size);
        for (at, message) in self.request.messages.iter().enumerate().skip(cut) {
            let fits = size <= most / 2 && message.role != Role::Tool;
            // The last message is what the model is asked about.
            if fits || at + 1 == self.request.messages.len() {
                break;
            }
            size -= message.size();
            cut = at + 1;
        }
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
        self.leave_out(cut);
        Some((self.left_out, self.request.messages.len() as u64 - 1))
    }

    /// Puts a note in place of the first `cut` messages, and of results whose calls are not there.
    fn leave_out(&mut self, cut: usize) {
        let messages = &mut self.request.messages;
        let answers = messages
            .iter()
            .skip(cut)
            .take_while(|message| message.role == Role::Tool)
            .count();
        messages.splice(
            ..cut + answers,
            [Arc::new(note(self.left_out, self.task.as_deref()))],
        );
        let gone = cut + answers - 1;
        self.run_at = self.run_at.saturating_sub(gone).max(1);
        self.open = self.open.map(|(turn, at)| (turn, at.saturating_sub(gone)));
        self.size = messages.iter().map(|message| message.size()).sum();
    }
}

/// Tells the model that something is missing, and what it was about.
fn note(left_out: u64, task: Option<&Message>) -> Message {
    const TASK_BYTES: usize = 4096;
    let mut text = format!("[{left_out} earlier messages are left out to save room.");
    if let Some(task) = task.map(Message::text).filter(|task| !task.is_empty()) {
        text.push_str(" The task was: ");
        text.push_str(&task[..task.floor_char_boundary(TASK_BYTES)]);
    }
    text.push(']');
    Message::new(Role::User, vec![Part::text(text)])
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
