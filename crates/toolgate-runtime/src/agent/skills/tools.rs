//! The tools with which a model loads skills and reads their files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Annotations, Arguments, CallId, Context, ErrorCategory, Json, RecordKey, Schema, SessionId,
    Status, StoreError, Tool, ToolError, ToolOutput, ToolSpec, parse_arguments,
};

use crate::{ReferenceError, Skill, Skills};

/// Gives the model the instructions of a skill, once in a session.
pub(crate) struct LoadSkillTool(pub(crate) Skills);

/// Gives the model a file of a skill.
pub(crate) struct LoadReferenceTool(pub(crate) Skills);

/// The record of a loaded skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoadedSkill {
    pub(crate) skill: String,
    /// The call that loaded it.
    pub(crate) call: CallId,
    /// The tools that it named then.
    #[serde(default)]
    pub(crate) tools: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct LoadSkillInput {
    /// The name of the skill.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct LoadReferenceInput {
    /// The name of the skill.
    skill: String,
    /// The file, as the skill names it, such as `references/forms.md`.
    path: String,
}

impl LoadSkillTool {
    pub(crate) const NAME: &'static str = "load_skill";
}

impl LoadReferenceTool {
    pub(crate) const NAME: &'static str = "load_reference";
}

impl Tool for LoadSkillTool {
    fn spec(&self) -> ToolSpec {
        let words = "Loads the instructions of a skill. Call it once per skill, before the work that the skill is for.";
        ToolSpec::new(Self::NAME, words, Schema::for_type::<LoadSkillInput>())
            .with_annotations(Annotations::read_only())
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let LoadSkillInput { name } = parse_arguments(&arguments)?;
        let skill = self.0.find_skill(&name)?.clone();
        let told_before = was_loaded(&skill, &cx).await?;
        if told_before {
            return Ok(format!(
                "The skill {name} is loaded already; its instructions were given above."
            )
            .into());
        }
        // Reading files would block other calls on this thread.
        let told = tokio::task::spawn_blocking(move || skill.loading_text()).await?;
        Ok(ToolOutput::from(json!({ "skill": name, "bytes": told.len() })).with_text(told))
    }
}

/// Records that this call loads the skill, and returns true if an earlier call has loaded it. The
/// first call stands, also when it is replayed.
async fn was_loaded(skill: &Skill, cx: &Context) -> Result<bool, StoreError> {
    let store = cx.env().store();
    let file = skill.file();
    let mine = LoadedSkill {
        skill: file.name.clone(),
        call: cx.id,
        tools: file.allowed_tools.clone(),
    };
    let kept = store
        .put_json_once(loaded_key(cx.turn().session, &file.name), mine.to_record())
        .await?;
    match kept.as_ref().and_then(LoadedSkill::from_record) {
        Some(first) if first.call != cx.id => {
            // If the first call failed on its way back, the model has not read anything yet.
            let outcome = store.load_outcome(first.call).await?;
            Ok(outcome.is_none_or(|settled| settled.status == Status::Ok))
        }
        Some(_) | None => Ok(false),
    }
}

impl Tool for LoadReferenceTool {
    fn spec(&self) -> ToolSpec {
        let words = "Reads a file of a skill that the skill's instructions mention.";
        ToolSpec::new(Self::NAME, words, Schema::for_type::<LoadReferenceInput>())
            .with_annotations(Annotations::read_only())
    }

    async fn invoke(&self, arguments: Arguments, _cx: Context) -> Result<ToolOutput, ToolError> {
        let LoadReferenceInput { skill, path } = parse_arguments(&arguments)?;
        let skill = self.0.find_skill(&skill)?.clone();
        let read = tokio::task::spawn_blocking(move || skill.read_reference(&path)).await?;
        read.map(ToolOutput::from).map_err(unreadable_reference)
    }
}

/// Builds the error for the model, with what it can do about it. The system's error is for the
/// operator.
fn unreadable_reference(error: ReferenceError) -> ToolError {
    let words = format!("{error} cannot be read: {}.", error.source);
    let told = ToolError::new(words).with_category(ErrorCategory::NotFound);
    match error.source.source() {
        Some(cause) => told.with_operator_detail(cause.to_string()),
        None => told,
    }
}

impl Skills {
    fn find_skill(&self, name: &str) -> Result<&Skill, ToolError> {
        let names = || {
            self.by_name
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let unknown = || {
            ToolError::new(format!(
                "There is no skill named {name:?}. There are: {}.",
                names()
            ))
        };
        self.get(name)
            .ok_or_else(|| unknown().with_category(ErrorCategory::NotFound))
    }
}

impl LoadedSkill {
    fn to_record(&self) -> Json {
        Json::new(json!(self)).expect("flat JSON")
    }

    pub(crate) fn from_record(record: &Json) -> Option<Self> {
        Self::deserialize(record.as_value()).ok()
    }
}

/// Returns the key of the record of a loaded skill.
fn loaded_key(session: SessionId, skill: &str) -> RecordKey {
    RecordKey::Other(format!("{}{skill}", loaded_prefix(session)).into())
}

pub(crate) fn loaded_prefix(session: SessionId) -> String {
    format!("skill/{session}/")
}
