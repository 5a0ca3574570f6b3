//! Models of the scenarios: one that records its requests, and one with replies that no script can
//! express.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, stream, stream::BoxStream};
use toolgate::{
    Model,
    model::{Delta, ModelError, ModelName, ModelRequest, Reply, Role},
};

/// A model that records its requests.
pub struct RequestRecorder {
    model: Arc<dyn Model>,
    asked: Mutex<Vec<String>>,
}

impl RequestRecorder {
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self {
            model,
            asked: Mutex::default(),
        }
    }

    /// Returns the recorded requests.
    pub fn requests(&self) -> Vec<String> {
        self.asked.lock().expect("whole").clone()
    }
}

impl Model for RequestRecorder {
    fn name(&self) -> &ModelName {
        self.model.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        self.asked
            .lock()
            .expect("whole")
            .push(summarize_request(request));
        self.model.reply(request)
    }
}

/// Summarizes a request.
fn summarize_request(request: &ModelRequest) -> String {
    let roles = request.messages.iter().map(|message| match message.role {
        Role::User => 'u',
        Role::Assistant => 'm',
        Role::Tool => 't',
    });
    let tools: Vec<&str> = request
        .view
        .specs()
        .map(|spec| spec.name.as_str())
        .collect();
    let tools = if tools.len() < 4 {
        tools.join(" ")
    } else {
        format!("{} tools", tools.len())
    };
    let mut text = format!(
        "{}; {:?}; {tools}",
        roles.collect::<String>(),
        request.choice
    );
    if let Some(instructions) = &request.instructions {
        text.push_str(&format!("; {instructions}"));
    }
    if let Some(output) = &request.output {
        text.push_str(&format!("; as {}", output.name));
    }
    text
}

/// A model with fixed replies; the number of earlier replies selects the next one.
pub struct FixedReplies(ModelName, Vec<Reply>);

impl FixedReplies {
    pub fn new(replies: Vec<Reply>) -> Self {
        Self(ModelName::new("scripted", "replies"), replies)
    }
}

impl Model for FixedReplies {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let before = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        let reply = self.1[before].clone();
        stream::iter([Ok(Delta::Done(Box::new(reply)))]).boxed()
    }
}
