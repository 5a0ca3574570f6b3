//! What a single run may have of its own: tools, layers, limits, the form of its answer.

use toolgate_core::{
    AnyLayer, Layer, Message, OutputFormat, Part, Registry, Role, ToolChoice, Weight,
};

/// What is said to a model to begin a run: words, or words with pictures and files.
#[derive(Debug, Clone)]
pub struct Input(pub(crate) Message);

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self(Message::user(text))
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self(Message::user(text))
    }
}

impl From<Vec<Part>> for Input {
    fn from(parts: Vec<Part>) -> Self {
        Self(Message::new(Role::User, parts))
    }
}

/// What holds for one run only.
///
/// Tools given here shadow the session's tools of the same name, layers given here stand inside the session's layers of
/// the same band, and the allowed tools narrow what the session shows; they never widen it.
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
    pub(crate) weight: Option<Weight>,
}

/// What happens when a run has used up its rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCap {
    /// The model is asked once more, without tools, to say what it has.
    #[default]
    Close,
    /// The run is an error.
    Fail,
}

impl RunOptions {
    /// Nothing of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// More tools. One with the name of a session's tool takes its place.
    pub fn tools(mut self, tools: Registry) -> Self {
        self.tools = Some(tools);
        self
    }

    /// One more layer, inside the session's layers of the same band.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.push(AnyLayer::new(layer));
        self
    }

    /// Only these tools, of those that there are.
    pub fn allow<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.allowed = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Which tools the model may or must call. A call that it must make, it must make in the first round; afterwards it
    /// decides by itself.
    pub fn choice(mut self, choice: ToolChoice) -> Self {
        self.choice = choice;
        self
    }

    /// What the final answer has to look like. One that does not is sent back once with what is wrong.
    pub fn output(mut self, output: OutputFormat) -> Self {
        self.output = Some(output);
        self
    }

    /// How many rounds it may have.
    pub fn max_iterations(mut self, rounds: u32) -> Self {
        self.max_iterations = Some(rounds);
        self
    }

    /// What happens when they are used up.
    pub fn on_cap(mut self, on_cap: OnCap) -> Self {
        self.on_cap = Some(on_cap);
        self
    }

    /// How heavy the work is, for whoever chooses among models.
    pub fn weight(mut self, weight: Weight) -> Self {
        self.weight = Some(weight);
        self
    }
}
