//! What a request comes down to, so that a recorded one can be found again and differences can be named.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Content, Digest, Json, Media, MediaSource, Message, ModelRequest, RawArguments,
    RedactionFailed, Role, ToolChoice, ToolRequest, ToolSpec, View,
};

use crate::scrub::Scrub;

/// A request in digests and first words. Ids that change from run to run are no part of it, and neither is what
/// only a provider understands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outline {
    /// The digest of everything below.
    pub(crate) digest: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<Passage>,
    /// The tools that the model was shown.
    pub(crate) tools: BTreeMap<String, Digest>,
    /// Everything else that was asked for.
    pub(crate) settings: BTreeMap<String, Value>,
    /// How many messages are those of the exchange before; a file says only what is new.
    #[serde(default)]
    pub(crate) same: usize,
    pub(crate) messages: Vec<OutlinedMessage>,
}

/// A text by its digest and first words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Passage {
    pub(crate) digest: Digest,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutlinedMessage {
    pub(crate) role: Role,
    #[serde(flatten)]
    pub(crate) passage: Passage,
}

/// Makes outlines. What did not change since the last request is not made again.
#[derive(Default)]
pub(crate) struct Outliner {
    pub(crate) scrub: Scrub,
    last: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    messages: Vec<(Arc<Message>, OutlinedMessage)>,
    tools: Option<(View, BTreeMap<String, Digest>)>,
}

impl Outliner {
    pub(crate) fn new(scrub: Scrub) -> Self {
        Self {
            scrub,
            last: Mutex::default(),
        }
    }

    pub(crate) fn outline(&self, request: &ModelRequest) -> Result<Outline, RedactionFailed> {
        let mut made = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.messages(&mut made.messages, &request.messages)?;
        let messages: Vec<_> = made
            .messages
            .iter()
            .map(|(_, message)| message.clone())
            .collect();
        let tools = self.tools(&mut made.tools, &request.view)?;
        let instructions = request
            .instructions
            .as_ref()
            .map(|text| self.passage(text))
            .transpose()?;
        let settings = self.settings(request)?;
        let digests: Vec<_> = messages
            .iter()
            .map(|message| &message.passage.digest)
            .collect();
        let whole = json!({
            "instructions": instructions.as_ref().map(|passage| passage.digest),
            "tools": tools, "settings": settings, "messages": digests,
        });
        Ok(Outline {
            digest: digest(whole)?,
            instructions,
            tools,
            settings,
            same: 0,
            messages,
        })
    }

    fn messages(
        &self,
        made: &mut Vec<(Arc<Message>, OutlinedMessage)>,
        window: &[Arc<Message>],
    ) -> Result<(), RedactionFailed> {
        let kept = made
            .iter()
            .zip(window)
            .take_while(|((known, _), message)| Arc::ptr_eq(known, message))
            .count();
        made.truncate(kept);
        let mut calls = Calls::default();
        for (at, message) in window.iter().enumerate() {
            if at < kept {
                calls.count(message);
                continue;
            }
            let plain = self.scrub.value(&calls.plain(message))?;
            let passage = Passage {
                text: first_words(&self.scrub.text(&words(message))?),
                digest: digest(plain)?,
            };
            made.push((
                message.clone(),
                OutlinedMessage {
                    role: message.role,
                    passage,
                },
            ));
        }
        Ok(())
    }

    fn tools(
        &self,
        made: &mut Option<(View, BTreeMap<String, Digest>)>,
        view: &View,
    ) -> Result<BTreeMap<String, Digest>, RedactionFailed> {
        if let Some((known, tools)) = made
            && known.same(view)
        {
            return Ok(tools.clone());
        }
        let one = |spec: &ToolSpec| {
            let told = json!({ "description": spec.description, "input": spec.input });
            Ok((
                self.scrub.text(spec.name.as_str())?,
                digest(self.scrub.value(&told)?)?,
            ))
        };
        let tools: BTreeMap<_, _> = view.specs().map(one).collect::<Result<_, _>>()?;
        *made = Some((view.clone(), tools.clone()));
        Ok(tools)
    }

    fn passage(&self, text: &str) -> Result<Passage, RedactionFailed> {
        let text = self.scrub.text(text)?;
        Ok(Passage {
            digest: Digest::of_bytes(text.as_bytes()),
            text: first_words(&text),
        })
    }

    fn settings(&self, request: &ModelRequest) -> Result<BTreeMap<String, Value>, RedactionFailed> {
        let choice = match &request.choice {
            ToolChoice::Auto => Value::Null,
            ToolChoice::None => "none".into(),
            ToolChoice::Required => "required".into(),
            ToolChoice::Named(tool) => json!({ "tool": tool }),
        };
        let output = request
            .output
            .as_ref()
            .map(|output| json!({ "name": output.name, "schema": output.schema }));
        let settings = json!({
            "choice": choice,
            "parallel_calls": request.parallel_calls,
            "output": output,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "effort": request.effort,
            "extra": (!request.extra.is_empty()).then_some(&request.extra),
        });
        let Value::Object(settings) = self.scrub.value(&settings)? else {
            return Err(RedactionFailed);
        };
        Ok(settings
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect())
    }
}

/// Numbers calls in the order in which they were asked for, in place of their ids.
#[derive(Default)]
struct Calls {
    asked: usize,
    numbers: HashMap<String, usize>,
}

impl Calls {
    fn count(&mut self, message: &Message) {
        for request in message.calls() {
            self.number(request);
        }
    }

    fn number(&mut self, request: &ToolRequest) -> usize {
        self.asked += 1;
        self.numbers
            .insert(request.provider_call_id.clone(), self.asked);
        self.asked
    }

    /// A message without ids and without anything of a provider's own.
    fn plain(&mut self, message: &Message) -> Value {
        let parts: Vec<Value> = message
            .parts
            .iter()
            .map(|part| self.plain_part(&part.content))
            .collect();
        json!({ "role": message.role, "parts": parts })
    }

    fn plain_part(&mut self, content: &Content) -> Value {
        match content {
            Content::Text(text) => json!({ "text": text }),
            Content::Reasoning(text) => json!({ "reasoning": text }),
            Content::Call(request) => {
                json!({ "call": self.number(request), "tool": request.tool, "arguments": plain_arguments(request) })
            }
            Content::Result(answer) => json!({
                "result": self.numbers.get(&answer.call_id),
                "tool": answer.tool,
                "text": answer.text,
                "is_error": answer.is_error,
                "media": answer.media.iter().map(plain_media).collect::<Vec<_>>(),
            }),
            Content::Media(media) => plain_media(media),
            Content::Ran(call) => {
                json!({ "ran": call.tool, "arguments": call.arguments, "result": call.result, "failed": call.failed })
            }
            Content::Opaque => json!("opaque"),
        }
    }
}

/// Arguments as JSON where they are: how they were spaced does not matter.
fn plain_arguments(request: &ToolRequest) -> Value {
    match &request.arguments {
        RawArguments::Json(json) => json.as_value().clone(),
        RawArguments::Text(text) => {
            serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into())
        }
    }
}

fn plain_media(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Data(data) => json!({ "data": Digest::of_bytes(data.as_bytes()) }),
        MediaSource::Url(url) => json!({ "url": url }),
    };
    json!({ "media": media.media_type, "name": media.name, "source": source })
}

/// What a message says, for people.
fn words(message: &Message) -> String {
    let words = message.parts.iter().map(|part| match &part.content {
        Content::Text(text) | Content::Reasoning(text) => text.clone(),
        Content::Call(request) => format!("{}({})", request.tool, plain_arguments(request)),
        Content::Result(answer) => format!("{}: {}", answer.tool, answer.text),
        Content::Media(media) => format!("[{}]", media.media_type),
        Content::Ran(call) => format!("[{}]", call.tool),
        Content::Opaque => String::new(),
    });
    words
        .filter(|words| !words.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn first_words(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn digest(value: Value) -> Result<Digest, RedactionFailed> {
    // What is nested too deeply cannot be looked through either.
    Json::new(value)
        .map(|json| json.digest())
        .map_err(|_| RedactionFailed)
}

impl Outline {
    /// How many messages both begin with.
    pub(crate) fn common(&self, other: &Self) -> usize {
        self.messages
            .iter()
            .zip(&other.messages)
            .take_while(|(a, b)| a == b)
            .count()
    }

    /// The first thing in which a request differs from this recorded one. The words of the request are named only if
    /// they may be shown.
    pub(crate) fn difference(&self, asked: &Self, show: bool) -> String {
        let at = self.common(asked);
        let number = at + 1;
        match (self.messages.get(at), asked.messages.get(at)) {
            (Some(then), Some(now)) if show => format!(
                "message {number} differs: recorded was {} {:?}, asked is {} {:?}",
                role(then),
                then.passage.text,
                role(now),
                now.passage.text
            ),
            (Some(then), Some(now)) => {
                format!(
                    "message {number} differs: recorded was {} {:?}, asked is another of {}",
                    role(then),
                    then.passage.text,
                    role(now)
                )
            }
            (Some(then), None) => {
                format!(
                    "message {number} is missing: recorded was {} {:?}",
                    role(then),
                    then.passage.text
                )
            }
            (None, Some(now)) => format!(
                "message {number}, of {}, is not in the recording",
                role(now)
            ),
            (None, None) => self.other_difference(asked),
        }
    }

    fn other_difference(&self, asked: &Self) -> String {
        if self.instructions != asked.instructions {
            return "the instructions differ".to_owned();
        }
        if let Some(tool) = first_difference(&self.tools, &asked.tools) {
            return format!("the tool {tool} differs or is shown in only one of them");
        }
        match first_difference(&self.settings, &asked.settings) {
            Some(setting) => format!("the setting {setting} differs"),
            None => "the redaction differs".to_owned(),
        }
    }
}

fn first_difference<'a, T: PartialEq>(
    a: &'a BTreeMap<String, T>,
    b: &'a BTreeMap<String, T>,
) -> Option<&'a str> {
    a.keys()
        .chain(b.keys())
        .find(|key| a.get(*key) != b.get(*key))
        .map(String::as_str)
}

fn role(message: &OutlinedMessage) -> &'static str {
    match message.role {
        Role::User => "the user",
        Role::Assistant => "the model",
        Role::Tool => "the tools",
    }
}
