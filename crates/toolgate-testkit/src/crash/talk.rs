//! What was said in a session: its messages, how often a model was asked, how its runs ended.

use std::{collections::BTreeSet, sync::Arc};

use toolgate_core::{
    Content, Cost, Event, LoopEvent, Message, Role, RunEnd, Said, SessionId, StoreError,
    StoreHandle, TurnId,
};

use super::{EffectLog, Seen, child::asks_of};

/// The conversation of a session as the store shows it. Empty where turns are driven without one.
#[derive(Debug, Clone, Default)]
pub struct Talk {
    /// The messages in order.
    pub messages: Vec<Arc<Said>>,
    /// The numbers of the replies that a model was asked for, counted from 0, in the order in which it was asked.
    pub asked: Vec<usize>,
    /// In how many turns the log says that a model was asked.
    pub sent: BTreeSet<TurnId>,
    /// How runs ended, in order.
    pub ends: Vec<RunEnd>,
}

impl Talk {
    /// Reads what was said, and what is wrong with it by itself.
    pub(super) async fn read(
        store: &StoreHandle,
        session: SessionId,
        events: &[Arc<Event>],
        effects: &EffectLog,
    ) -> Result<(Self, Vec<String>), StoreError> {
        let (mut talk, mut broken) = (Self::default(), Vec::new());
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
            match event.as_loop() {
                Some(LoopEvent::InferenceStarted { .. }) => {
                    drop(talk.sent.insert(event.turn_info().turn))
                }
                Some(LoopEvent::RunEnded { end, .. }) => talk.ends.push(*end),
                _ => {}
            }
        }
        let task = talk.messages.first().map(|said| said.message.text());
        let asks = EffectLog::at(asks_of(effects.path())).read();
        let asks = asks.map_err(|error| StoreError::Backend(Box::new(error)))?;
        let asks = asks.iter().filter(|ask| task.as_ref() == Some(&ask.key));
        talk.asked = asks.filter_map(|ask| ask.what.parse().ok()).collect();
        Ok((talk, broken))
    }

    /// The replies of models.
    pub fn replies(&self) -> impl Iterator<Item = &Said> {
        self.messages
            .iter()
            .map(|said| &**said)
            .filter(|said| said.message.role == Role::Assistant)
    }

    /// What the replies cost, in billionths of a dollar, as far as that is known.
    pub fn cost(&self) -> u64 {
        let cost = |said: &Said| match said.cost {
            Cost::NanoUsd(nano) => nano,
            Cost::Unknown => 0,
        };
        self.replies().map(cost).sum()
    }

    /// What the replies used, in tokens.
    pub fn tokens(&self) -> u64 {
        self.replies()
            .filter_map(|said| said.usage)
            .map(|usage| usage.total())
            .sum()
    }

    /// Everything that was said before and is not there any more, or was asked for again although it was there.
    pub(super) fn kept(before: &Self, after: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !after.messages.starts_with(&before.messages) {
            wrong.push("the messages do not begin with what they were before".to_owned());
        }
        let (durable, mut asked) = (before.replies().count(), BTreeSet::new());
        for number in after.asked.get(before.asked.len()..).unwrap_or_default() {
            if *number < durable {
                wrong.push(format!(
                    "reply {number} was asked for again although it was there"
                ));
            }
            if !asked.insert(number) {
                wrong.push(format!("reply {number} was asked for twice by one process"));
            }
        }
        wrong
    }

    /// Everything in which what was said is not what was said without mishaps.
    pub(super) fn compare(calm: &Self, after: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        if calm.messages.len() != after.messages.len() {
            wrong.push(format!(
                "there are {} messages instead of {}",
                after.messages.len(),
                calm.messages.len()
            ));
        }
        for (number, (was, is)) in calm.messages.iter().zip(&after.messages).enumerate() {
            let (was, is) = (outline(&was.message), outline(&is.message));
            if was != is {
                wrong.push(format!("message {number} is {is:?} instead of {was:?}"));
            }
        }
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

impl Seen {
    /// What is wrong with the conversation, whatever was said in it: each result belongs to a call, and says what came
    /// of it.
    pub(super) fn broken_talk(&self) -> Vec<String> {
        let (mut wrong, mut open) = (Vec::new(), None);
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
                    Some(asked) => wrong.extend(self.broken_results(number, asked, said)),
                    None => wrong.push(format!(
                        "message {number} has results that nobody asked for"
                    )),
                },
            }
        }
        wrong
    }

    fn broken_results(&self, number: usize, asked: &Said, said: &Said) -> Vec<String> {
        let mut wrong = Vec::new();
        let labels: Vec<_> = asked
            .message
            .calls()
            .map(|call| call.provider_call_id.clone())
            .collect();
        let results = results(&said.message);
        if labels
            != results
                .iter()
                .map(|(label, _)| label.clone())
                .collect::<Vec<_>>()
        {
            wrong.push(format!(
                "message {number} has the results of other calls than were asked for"
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
                "message {number} does not say what came of the calls"
            ));
        }
        wrong
    }
}

fn results(message: &Message) -> Vec<(String, String)> {
    let result = |part: &toolgate_core::Part| match &part.content {
        Content::Result(answer) => Some((answer.call_id.clone(), answer.text.clone())),
        _ => None,
    };
    message.parts.iter().filter_map(result).collect()
}

/// A message without what came of calls, which is compared for itself.
fn outline(message: &Message) -> (Role, String, Vec<String>) {
    let calls = message
        .calls()
        .map(|call| format!("{} {:?}", call.tool, call.arguments));
    (
        message.role,
        message.text(),
        calls
            .chain(results(message).into_iter().map(|(label, _)| label))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use toolgate_core::{Part, ToolAnswer, ToolRequest};
    use uuid::Uuid;

    use super::*;

    fn said(message: Message) -> Arc<Said> {
        Arc::new(Said::new(TurnId::new(Uuid::nil()), 0, 0, Arc::new(message)))
    }

    fn asking() -> Message {
        Message::new(
            Role::Assistant,
            vec![Content::Call(ToolRequest::text("c", "pay", "{}")).into()],
        )
    }

    fn answering(call: &str) -> Message {
        let (call_id, tool, text) = (call.to_owned(), "pay".to_owned(), "paid".to_owned());
        let answer = ToolAnswer {
            call_id,
            tool,
            text,
            is_error: false,
            media: Vec::new(),
        };
        Message::new(Role::Tool, vec![Part::from(Content::Result(answer))])
    }

    fn talk(messages: impl IntoIterator<Item = Message>, asked: &[usize]) -> Talk {
        let messages = messages.into_iter().map(said).collect();
        Talk {
            messages,
            asked: asked.to_vec(),
            ends: vec![RunEnd::Completed],
            ..Talk::default()
        }
    }

    #[test]
    fn a_reply_that_is_there_is_not_asked_for_again() {
        let before = talk([Message::user("hi"), Message::assistant("hello")], &[0]);
        assert!(Talk::kept(&before, &before).is_empty());
        let again = Talk {
            asked: vec![0, 0],
            ..before.clone()
        };
        assert_eq!(Talk::kept(&before, &again).len(), 1, "it was there");
        let twice = Talk {
            asked: vec![0, 1, 1],
            ..before.clone()
        };
        assert_eq!(
            Talk::kept(&before, &twice).len(),
            1,
            "one process asked twice"
        );
    }

    #[test]
    fn no_message_is_lost_or_changed_and_every_run_ends_as_it_should() {
        let calm = talk([Message::user("hi"), Message::assistant("hello")], &[0]);
        let lost = talk([Message::user("hi")], &[0]);
        let changed = talk([Message::user("hi"), Message::assistant("bye")], &[0]);
        assert!(!Talk::kept(&calm, &lost).is_empty() && !Talk::kept(&calm, &changed).is_empty());
        assert!(
            !Talk::compare(&calm, &lost).is_empty() && !Talk::compare(&calm, &changed).is_empty()
        );
        let open = Talk {
            ends: vec![],
            ..calm.clone()
        };
        let twice = Talk {
            ends: vec![RunEnd::Completed; 2],
            ..calm.clone()
        };
        assert!(
            !Talk::compare(&calm, &open).is_empty() && !Talk::compare(&calm, &twice).is_empty()
        );
        assert!(Talk::compare(&calm, &calm).is_empty());
    }

    #[test]
    fn results_belong_to_calls_and_calls_have_results_before_the_next_reply() {
        let broken = |messages: Vec<Message>| {
            Seen {
                talk: talk(messages, &[]),
                ..Seen::default()
            }
            .broken_talk()
            .len()
        };
        let user = || Message::user("hi");
        assert_eq!(broken(vec![user(), answering("c")]), 1, "nobody asked");
        assert_eq!(
            broken(vec![user(), asking(), Message::assistant("done")]),
            1,
            "without results"
        );
        assert_eq!(
            broken(vec![user(), asking(), answering("x")]),
            2,
            "of another call, and of none that is known"
        );
        assert_eq!(
            broken(vec![user(), asking(), user()]),
            0,
            "what is said meanwhile comes in between"
        );
    }
}
