//! The conversation of a session: its messages, its model requests, the ends of its runs.

use std::{collections::BTreeSet, sync::Arc};

use toolgate_core::{
    Cost, Event, Message, MessageRecord, PartContent, Role, RunEnd, SessionEvent, SessionId,
    StoreError, StoreHandle, TurnId,
};

use super::{EffectLog, SessionSnapshot, child::model_requests_path};

/// The conversation of a session as the store shows it. Empty where turns are driven without one.
#[derive(Debug, Clone, Default)]
pub struct ConversationSnapshot {
    /// The messages in order.
    pub messages: Vec<Arc<MessageRecord>>,
    /// The numbers of the replies that models were asked for, counted from 0, in the order of the
    /// requests, each with the first message of its session. Those of other sessions are among them:
    /// a process can be lost before the first message of its session is stored.
    pub asked: Vec<(String, usize)>,
    /// The turns in which the log shows a model request.
    pub sent: BTreeSet<TurnId>,
    /// The ends of the runs, in order.
    pub ends: Vec<RunEnd>,
}

impl ConversationSnapshot {
    /// Reads the conversation, with its contradictions.
    pub(super) async fn load_conversation(
        store: &StoreHandle,
        session: SessionId,
        events: &[Arc<Event>],
        effects: &EffectLog,
    ) -> Result<(Self, Vec<String>), StoreError> {
        let mut talk = Self::default();
        let mut broken = Vec::new();
        for (number, said) in store.messages(session, u64::MAX, 10_000).await? {
            if number != talk.messages.len() as u64 {
                broken.push(format!(
                    "message {number} stands where message {} should be",
                    talk.messages.len()
                ));
            }
            talk.messages.push(said);
        }
        for event in events {
            match event.as_session() {
                Some(SessionEvent::InferenceStarted { .. }) => {
                    talk.sent.insert(event.turn_info().turn);
                }
                Some(SessionEvent::RunEnded { end, .. }) => talk.ends.push(*end),
                _ => {}
            }
        }
        let asks = EffectLog::open_at(model_requests_path(effects.path())).read_effects();
        let asks = asks.map_err(|error| StoreError::Backend(Box::new(error)))?;
        let numbered = asks.into_iter().filter_map(|ask| {
            let number = ask.what.parse().ok()?;
            Some((ask.key, number))
        });
        talk.asked = numbered.collect();
        Ok((talk, broken))
    }

    /// Returns the replies of models.
    pub fn model_replies(&self) -> impl Iterator<Item = &MessageRecord> {
        self.messages
            .iter()
            .map(|said| &**said)
            .filter(|said| said.message.role == Role::Assistant)
    }

    /// Returns the known cost of the replies, in billionths of a dollar.
    pub fn known_cost(&self) -> u64 {
        let cost = |said: &MessageRecord| match said.cost {
            Cost::NanoUsd(nano) => nano,
            Cost::Unknown => 0,
        };
        self.model_replies().map(cost).sum()
    }

    /// Returns the tokens of the replies.
    pub fn token_count(&self) -> u64 {
        self.model_replies()
            .filter_map(|said| said.usage)
            .map(|usage| usage.total_tokens())
            .sum()
    }

    /// Returns every message that is missing now, and every reply that was requested again although
    /// it was stored.
    pub(super) fn find_losses(before: &Self, after: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !after.messages.starts_with(&before.messages) {
            wrong.push("the messages do not begin with the earlier messages".to_owned());
        }
        // Only a reply that was lost with its process may be requested again.
        let durable = before.model_replies().count();
        let mut asked = BTreeSet::new();
        let task = after.messages.first().map(|said| said.message.text());
        for (of, number) in after.asked.get(before.asked.len()..).unwrap_or_default() {
            if task.as_ref() != Some(of) {
                continue;
            }
            if *number < durable {
                wrong.push(format!(
                    "reply {number} was requested again although it was stored"
                ));
            }
            if !asked.insert(number) {
                wrong.push(format!("reply {number} was requested twice by one process"));
            }
        }
        wrong
    }

    /// Returns every difference from a conversation without mishaps.
    pub(super) fn compare_messages(calm: &Self, after: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        if calm.messages.len() != after.messages.len() {
            wrong.push(format!(
                "there are {} messages instead of {}",
                after.messages.len(),
                calm.messages.len()
            ));
        }
        for (number, (was, is)) in calm.messages.iter().zip(&after.messages).enumerate() {
            let was = message_outline(&was.message);
            let is = message_outline(&is.message);
            if was != is {
                wrong.push(format!("message {number} is {is:?} instead of {was:?}"));
            }
        }
        // A killed process may leave runs that ended otherwise, so only completed ones are counted.
        let completed = |talk: &Self| {
            talk.ends
                .iter()
                .filter(|end| **end == RunEnd::Completed)
                .count()
        };
        if (calm.ends.last(), completed(calm)) != (after.ends.last(), completed(after)) {
            wrong.push(format!(
                "the runs ended {:?} instead of {:?}",
                after.ends, calm.ends
            ));
        }
        wrong
    }
}

impl SessionSnapshot {
    /// Returns the contradictions in the conversation: each result must belong to a call and match
    /// its outcome.
    pub(super) fn conversation_violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut open = None;
        for (number, said) in self.talk.messages.iter().enumerate() {
            match said.message.role {
                Role::User => {}
                Role::Assistant if open.is_some() => {
                    wrong.push(format!(
                        "message {number} is a reply although calls were open"
                    ));
                }
                Role::Assistant => open = said.message.calls().next().map(|_| said),
                Role::Tool => match open.take() {
                    Some(asked) => wrong.extend(self.result_violations(number, asked, said)),
                    None => wrong.push(format!(
                        "message {number} has results that were not requested"
                    )),
                },
            }
        }
        wrong
    }

    fn result_violations(
        &self,
        number: usize,
        asked: &MessageRecord,
        said: &MessageRecord,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let labels: Vec<_> = asked
            .message
            .calls()
            .map(|call| call.provider_call_id.clone())
            .collect();
        let results = tool_results(&said.message);
        if labels
            != results
                .iter()
                .map(|(label, _)| label.clone())
                .collect::<Vec<_>>()
        {
            wrong.push(format!(
                "message {number} has the results of other calls than were requested"
            ));
        }
        let turn = self.turns.iter().position(|turn| turn.turn == asked.turn);
        let calls = self.calls.iter().filter(|call| Some(call.turn) == turn);
        let outcomes: Vec<_> = calls
            .map(|call| {
                call.outcome
                    .as_ref()
                    .map(|end| end.model_text().into_owned())
            })
            .collect();
        if outcomes
            != results
                .into_iter()
                .map(|(_, text)| Some(text))
                .collect::<Vec<_>>()
        {
            wrong.push(format!(
                "message {number} does not match the outcomes of the calls"
            ));
        }
        wrong
    }
}

fn tool_results(message: &Message) -> Vec<(String, String)> {
    let result = |part: &toolgate_core::MessagePart| match &part.content {
        PartContent::Result(answer) => Some((answer.call_id.clone(), answer.text.clone())),
        _ => None,
    };
    message.parts.iter().filter_map(result).collect()
}

/// Returns a message without the results of calls, which are compared separately.
fn message_outline(message: &Message) -> (Role, String, Vec<String>) {
    let calls = message
        .calls()
        .map(|call| format!("{} {:?}", call.tool, call.arguments));
    (
        message.role,
        message.text(),
        calls
            .chain(tool_results(message).into_iter().map(|(label, _)| label))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use toolgate_core::{MessagePart, ToolAnswer, ToolRequest};
    use uuid::Uuid;

    use super::*;

    fn message_record(message: Message) -> Arc<MessageRecord> {
        Arc::new(MessageRecord::new(
            TurnId::new(Uuid::nil()),
            0,
            0,
            Arc::new(message),
        ))
    }

    fn calling_message() -> Message {
        Message::new(
            Role::Assistant,
            vec![PartContent::Call(ToolRequest::from_text("c", "pay", "{}")).into()],
        )
    }

    fn result_message(call: &str) -> Message {
        let call_id = call.to_owned();
        let tool = "pay".to_owned();
        let text = "paid".to_owned();
        let answer = ToolAnswer {
            call_id,
            tool,
            text,
            is_error: false,
            media: Vec::new(),
        };
        Message::new(
            Role::Tool,
            vec![MessagePart::from(PartContent::Result(answer))],
        )
    }

    fn requests(task: &str, numbers: &[usize]) -> Vec<(String, usize)> {
        let numbers = numbers.iter();
        numbers.map(|number| (task.to_owned(), *number)).collect()
    }

    fn conversation(
        messages: impl IntoIterator<Item = Message>,
        asked: &[usize],
    ) -> ConversationSnapshot {
        let messages = messages.into_iter().map(message_record).collect();
        ConversationSnapshot {
            messages,
            asked: requests("hi", asked),
            ends: vec![RunEnd::Completed],
            ..ConversationSnapshot::default()
        }
    }

    #[test]
    fn a_stored_reply_is_not_requested_again() {
        let before = conversation([Message::user("hi"), Message::assistant("hello")], &[0]);
        assert!(ConversationSnapshot::find_losses(&before, &before).is_empty());
        let again = ConversationSnapshot {
            asked: requests("hi", &[0, 0]),
            ..before.clone()
        };
        assert_eq!(
            ConversationSnapshot::find_losses(&before, &again).len(),
            1,
            "it was stored"
        );
        let twice = ConversationSnapshot {
            asked: requests("hi", &[0, 1, 1]),
            ..before.clone()
        };
        assert_eq!(
            ConversationSnapshot::find_losses(&before, &twice).len(),
            1,
            "one process asked twice"
        );
        // A request of a process that was lost before it stored anything, and one of an agent.
        let unstored = ConversationSnapshot {
            asked: requests("hi", &[0]),
            ..ConversationSnapshot::default()
        };
        let mut asked = requests("hi", &[0]);
        asked.extend(requests("help", &[0]));
        asked.extend(requests("hi", &[0]));
        let later = ConversationSnapshot { asked, ..before };
        assert!(ConversationSnapshot::find_losses(&unstored, &later).is_empty());
    }

    #[test]
    fn no_message_is_lost_or_changed_and_every_run_ends_as_it_should() {
        let calm = conversation([Message::user("hi"), Message::assistant("hello")], &[0]);
        let lost = conversation([Message::user("hi")], &[0]);
        let changed = conversation([Message::user("hi"), Message::assistant("bye")], &[0]);
        assert!(
            !ConversationSnapshot::find_losses(&calm, &lost).is_empty()
                && !ConversationSnapshot::find_losses(&calm, &changed).is_empty()
        );
        assert!(
            !ConversationSnapshot::compare_messages(&calm, &lost).is_empty()
                && !ConversationSnapshot::compare_messages(&calm, &changed).is_empty()
        );
        let open = ConversationSnapshot {
            ends: vec![],
            ..calm.clone()
        };
        let twice = ConversationSnapshot {
            ends: vec![RunEnd::Completed; 2],
            ..calm.clone()
        };
        assert!(
            !ConversationSnapshot::compare_messages(&calm, &open).is_empty()
                && !ConversationSnapshot::compare_messages(&calm, &twice).is_empty()
        );
        assert!(ConversationSnapshot::compare_messages(&calm, &calm).is_empty());
    }

    #[test]
    fn results_belong_to_calls_and_calls_have_results_before_the_next_reply() {
        let broken = |messages: Vec<Message>| {
            SessionSnapshot {
                talk: conversation(messages, &[]),
                ..SessionSnapshot::default()
            }
            .conversation_violations()
            .len()
        };
        let user = || Message::user("hi");
        assert_eq!(
            broken(vec![user(), result_message("c")]),
            1,
            "not requested"
        );
        assert_eq!(
            broken(vec![user(), calling_message(), Message::assistant("done")]),
            1,
            "without results"
        );
        assert_eq!(
            broken(vec![user(), calling_message(), result_message("x")]),
            2,
            "of another call, and of none that is known"
        );
        assert_eq!(
            broken(vec![user(), calling_message(), user()]),
            0,
            "a steering message may come in between"
        );
    }
}
