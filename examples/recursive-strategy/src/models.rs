//! Two "models" that need no key: simple rules that see only their requests.

use futures::{StreamExt, stream, stream::BoxStream};
use serde_json::{Value, json};
use toolgate::{
    Message,
    model::{
        Delta, MessagePart, ModelError, ModelName, ModelRequest, PartContent, Reply, Role,
        ToolAnswer, Usage,
    },
    prelude::*,
    stack::ToolRequest,
};

/// The model of the session: searches, delegates the matches to readers, and adds up their answers.
pub(crate) struct Coordinator(ModelName);

/// The model that reads a piece and answers with the number before `EUR`.
pub(crate) struct PieceReader(ModelName);

impl Coordinator {
    pub(crate) fn new() -> Self {
        Self(ModelName::new("rules", "coordinator"))
    }

    fn next_message(request: &ModelRequest) -> Message {
        match last_answer(request) {
            None => call_message([
                ("peek", json!({})),
                (
                    "search",
                    json!({ "query": "customs refunded", "document": "shipments.log", "limit": 50 }),
                ),
            ]),
            Some(answer) if answer.tool == "search" => {
                let lines = numbers_after(&answer.text, ", line ");
                let question = "How many euros did customs refund? Answer with the number alone.";
                let ask =
                    |line| json!({ "question": question, "first_line": line, "last_line": line });
                let queries: Vec<Value> = lines.iter().map(ask).collect();
                let note = format!("customs refunds are in lines {lines:?}");
                call_message([
                    ("note", json!({ "text": note })),
                    ("delegate_batch", json!({ "queries": queries })),
                ])
            }
            Some(answer) => {
                let amounts = numbers_after(&answer.text, "] ");
                let total = amounts.iter().sum::<u64>();
                let cases = amounts.len();
                call_message([(
                    "set_answer",
                    json!({ "answer": format!("Customs refunded {total} EUR in {cases} cases.") }),
                )])
            }
        }
    }
}

impl PieceReader {
    pub(crate) fn new() -> Self {
        Self(ModelName::new("rules", "reader"))
    }

    fn answer_request(request: &ModelRequest) -> Message {
        let text = request
            .messages
            .last()
            .map(|message| message.text())
            .unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let before_eur = words
            .windows(2)
            .find(|pair| pair[1] == "EUR")
            .map(|pair| pair[0]);
        Message::assistant(before_eur.unwrap_or("The piece contains no amount."))
    }
}

impl Model for Coordinator {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        whole_reply(request, Self::next_message(request))
    }
}

impl Model for PieceReader {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        whole_reply(request, Self::answer_request(request))
    }
}

/// Builds a reply in one piece, with an estimate of its usage.
fn whole_reply(
    request: &ModelRequest,
    message: Message,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let instructions = request.instructions.as_ref().map_or(0, |text| text.len());
    let read = request
        .messages
        .iter()
        .map(|message| message.size())
        .sum::<usize>()
        + instructions;
    let mut reply = Reply::new(message);
    reply.usage = Some(Usage {
        input: read as u64 / 4,
        output: 20,
        ..Usage::default()
    });
    stream::once(async { Ok(Delta::Done(Box::new(reply))) }).boxed()
}

fn call_message<const N: usize>(calls: [(&str, Value); N]) -> Message {
    let call = |(tool, arguments): (&str, Value)| {
        ToolRequest::from_json(&format!("call_{tool}"), tool, arguments)
    };
    Message::new(
        Role::Assistant,
        calls
            .into_iter()
            .map(|one| MessagePart::from(PartContent::Call(call(one))))
            .collect(),
    )
}

/// Returns the result of the last call.
fn last_answer(request: &ModelRequest) -> Option<&ToolAnswer> {
    let parts = request
        .messages
        .last()
        .map(|message| message.parts.iter())
        .into_iter()
        .flatten();
    parts.rev().find_map(|part| match &part.content {
        PartContent::Result(answer) => Some(answer),
        _ => None,
    })
}

fn numbers_after(text: &str, words: &str) -> Vec<u64> {
    let number = |rest: &str| {
        rest.split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|digits| digits.parse().ok())
    };
    text.split(words).skip(1).filter_map(number).collect()
}
