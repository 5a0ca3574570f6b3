//! The formats in which providers expect tools, for hosts that send their own requests.

use serde_json::Value;
use toolgate_core::{Schema, View};

use crate::providers::{
    anthropic, gemini, openai_chat, openai_responses, openai_shared, tool_names::NameRule,
};

/// A provider's format for the tools of a request. The bundled models send tools in the same form.
///
/// ```
/// use toolgate_core::{Registry, Schema, ToolSpec, View};
/// use toolgate_models::ToolDialect;
///
/// let registry = Registry::new();
/// registry.register_host(ToolSpec::new("files.read", "Reads a file.", Schema::any_object()))?;
/// let view = toolgate_testkit::plain_view(&registry);
/// let tools = ToolDialect::OpenAiChat.list_tools(&view);
/// let name = tools[0]["function"]["name"].as_str().expect("a name");
/// assert!(!name.contains('.'), "OpenAI rejects dots");
/// assert_eq!(ToolDialect::OpenAiChat.tool_name(&view, name), "files.read");
/// # Ok::<(), toolgate_core::RegisterError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolDialect {
    /// OpenAI chat completions, and servers compatible with it.
    OpenAiChat,
    /// OpenAI responses.
    OpenAiResponses,
    /// Anthropic messages.
    Anthropic,
    /// Google Gemini.
    Gemini,
}

impl ToolDialect {
    /// Returns the value of the field `tools` of a request: names that the provider accepts, and
    /// schemas in the form that it requires.
    pub fn list_tools(self, view: &View) -> Vec<Value> {
        match self {
            Self::OpenAiChat => openai_chat::request::list_tools(view),
            Self::OpenAiResponses => openai_responses::request::list_tools(view),
            Self::Anthropic => anthropic::request::list_tools(view),
            Self::Gemini => gemini::request::list_tools(view),
        }
    }

    /// Returns the schema of a tool's arguments in the form that the provider requires, for a host
    /// whose SDK takes schemas one by one. It is the one that [`ToolDialect::list_tools`] sends.
    ///
    /// ```
    /// use toolgate_core::Schema;
    /// use toolgate_models::ToolDialect;
    ///
    /// let schema = Schema::new(serde_json::json!({ "properties": { "path": { "type": "string" } } }))?;
    /// let clean = ToolDialect::Anthropic.input_schema(&schema);
    /// assert_eq!(clean["type"], "object", "Anthropic requires it");
    /// # Ok::<(), toolgate_core::SchemaError>(())
    /// ```
    pub fn input_schema(self, input: &Schema) -> Value {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => openai_shared::parameters_schema(input),
            Self::Anthropic => anthropic::request::input_schema(input),
            Self::Gemini => input.as_json().as_value().clone(),
        }
    }

    /// Returns the tool that the model calls by this name; the name itself if no tool has it.
    pub fn tool_name(self, view: &View, wire_name: &str) -> String {
        let by_rule = |rule: NameRule| rule.from_wire(view, wire_name);
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => by_rule(openai_shared::NAMES),
            Self::Anthropic => by_rule(anthropic::request::NAMES),
            Self::Gemini => gemini::request::from_wire_name(view, wire_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::{Registry, ToolSpec};

    const DIALECTS: [ToolDialect; 4] = [
        ToolDialect::OpenAiChat,
        ToolDialect::OpenAiResponses,
        ToolDialect::Anthropic,
        ToolDialect::Gemini,
    ];

    fn view_with_odd_tool() -> View {
        let registry = Registry::new();
        // A schema without `type` and `properties`, and a name that providers reject.
        let schema = Schema::new(json!({ "description": "anything" })).expect("a schema");
        let spec = ToolSpec::new("files.read", "Reads.", schema);
        registry.register_host(spec).expect("free");
        toolgate_testkit::plain_view(&registry)
    }

    #[test]
    fn tools_have_the_form_that_each_provider_requires() {
        let view = view_with_odd_tool();
        let sent = DIALECTS.map(|dialect| dialect.list_tools(&view).remove(0));
        let schemas = [
            &sent[0]["function"]["parameters"],
            &sent[1]["parameters"],
            &sent[2]["input_schema"],
        ];
        assert!(schemas.iter().all(|schema| schema["type"] == "object"));
        assert_eq!(schemas[0]["properties"], json!({}));
        let gemini = &sent[3]["functionDeclarations"][0]["parametersJsonSchema"];
        assert!(gemini.is_object());
        let input = &view.get("files.read").expect("shown").spec.input;
        let cleaned = DIALECTS.map(|dialect| dialect.input_schema(input));
        let [chat, responses, anthropic] = schemas;
        for (sent, cleaned) in [chat, responses, anthropic, gemini].iter().zip(&cleaned) {
            assert_eq!(*sent, cleaned, "a host gets the schema that is sent");
        }
    }

    #[test]
    fn the_name_on_the_wire_leads_back_to_the_tool() {
        let view = view_with_odd_tool();
        for dialect in DIALECTS {
            let sent = Value::Array(dialect.list_tools(&view)).to_string();
            let wire = sent.split("\"name\":\"").nth(1).expect("a name");
            let wire = wire.split('"').next().expect("its end");
            assert_eq!(dialect.tool_name(&view, wire), "files.read", "{dialect:?}");
        }
    }
}
