//! Settings of a single run: tools, layers, limits, the format of its answer.

use std::time::Duration;

use toolgate_core::{
    AnyLayer, Labels, Layer, Message, MessagePart, OnCap, OutputFormat, Registry, Role,
    TaskComplexity, ToolChoice,
};

/// The user's input that begins a run: text, or text with images and files.
#[derive(Debug, Clone)]
pub struct RunInput(pub(crate) Message);

impl From<&str> for RunInput {
    fn from(text: &str) -> Self {
        Self(Message::user(text))
    }
}

impl From<String> for RunInput {
    fn from(text: String) -> Self {
        Self(Message::user(text))
    }
}

impl From<Vec<MessagePart>> for RunInput {
    fn from(parts: Vec<MessagePart>) -> Self {
        Self(Message::new(Role::User, parts))
    }
}

/// Settings that apply to one run only.
///
/// Tools given here shadow the session's tools of the same name. Layers given here are placed
/// inside the session's layers of the same band, and cover the agents that the run delegates to. The
/// allowed tools narrow what the session shows; they never widen it.
///
/// The options are stored with the run, except the code of tools and layers, of which the names are
/// stored. [`Session::resume`](crate::Session::resume) restores them.
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until a run is started with them"]
pub struct RunOptions {
    pub(crate) tools: Option<Registry>,
    pub(crate) layers: Vec<AnyLayer>,
    pub(crate) allowed: Option<Vec<String>>,
    pub(crate) choice: ToolChoice,
    pub(crate) output: Option<OutputFormat>,
    pub(crate) max_iterations: Option<u32>,
    pub(crate) on_cap: Option<OnCap>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) turn_deadline: Option<Duration>,
    pub(crate) weight: Option<TaskComplexity>,
    pub(crate) labels: Vec<(String, String)>,
    /// The labels that a resumed run began with. They are redacted and valid.
    pub(crate) begun_labels: Labels,
    pub(crate) abandon_pending: bool,
}

impl RunOptions {
    /// Creates options that change nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds tools. A tool with the name of a session's tool replaces it.
    pub fn tools(mut self, tools: Registry) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Adds a layer, inside the session's layers of the same band; a layer that asks for approval
    /// stays the last one that decides.
    ///
    /// The run can be resumed only with a layer of the same name, so a layer made from a function
    /// should be given one ([`LayerExt::named`](toolgate_core::LayerExt::named)).
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.push(AnyLayer::new(layer));
        self
    }

    /// Limits the available tools to these.
    pub fn allow<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.allowed = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Sets which tools the model may or must call. A required call is required in the first
    /// iteration only; afterwards the model decides.
    pub fn choice(mut self, choice: ToolChoice) -> Self {
        self.choice = choice;
        self
    }

    /// Sets the format of the final answer. An answer in another format is rejected once, with the
    /// problems.
    pub fn output(mut self, output: OutputFormat) -> Self {
        self.output = Some(output);
        self
    }

    /// Sets how many iterations the run may have.
    pub fn max_iterations(mut self, iterations: u32) -> Self {
        self.max_iterations = Some(iterations);
        self
    }

    /// Sets what happens when the limit of iterations is reached.
    pub fn on_cap(mut self, on_cap: OnCap) -> Self {
        self.on_cap = Some(on_cap);
        self
    }

    /// Sets how long the run may take. When the time is over, running calls are cancelled and the
    /// run ends with [`RunEnd::Deadline`](toolgate_core::RunEnd::Deadline); calls that wait for a
    /// decision stay pending. A run that is resumed has its whole time again.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    /// Sets how long the calls of one turn may take. When the time is over, the run ends like one
    /// that reached its [deadline](Self::deadline).
    pub fn turn_deadline(mut self, limit: Duration) -> Self {
        self.turn_deadline = Some(limit);
        self
    }

    /// Adds a label to those of the session, as
    /// [`SessionBuilder::label`](crate::SessionBuilder::label) does. It replaces a label of the
    /// session with the same name.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Sets how complex the work is, for the routing among models.
    pub fn weight(mut self, weight: TaskComplexity) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Cancels the calls that the last run left undecided, so that the new message is taken at once.
    /// Calls that are approved or have their result run first all the same.
    pub fn abandon_pending(mut self) -> Self {
        self.abandon_pending = true;
        self
    }
}
