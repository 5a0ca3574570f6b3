//! The tools with which a model loads skills and reads their files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Annotations, Arguments, CallId, Context, ErrorCategory, Json, Record, RecordKey, Schema,
    SessionId, Status, StoreError, Tool, ToolError, ToolOutput, ToolSpec, typed,
};

use crate::{ReferenceError, Skill, Skills};

/// Gives the model the instructions of a skill, once in a session.
pub(crate) struct LoadSkill(pub(crate) Skills);

/// Gives the model a file of a skill.
pub(crate) struct LoadReference(pub(crate) Skills);

/// What is kept of a skill that was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Loaded {
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

impl LoadSkill {
    pub(crate) const NAME: &'static str = "load_skill";
}

impl LoadReference {
    pub(crate) const NAME: &'static str = "load_reference";
}

impl Tool for LoadSkill {
    fn spec(&self) -> ToolSpec {
        let words = "Loads the instructions of a skill. Call it once per skill, before the work that the skill is for.";
        ToolSpec::new(Self::NAME, words, Schema::of::<LoadSkillInput>())
            .with_annotations(Annotations::read_only())
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let LoadSkillInput { name } = typed(&arguments)?;
        let skill = self.0.known(&name)?.clone();
        let told_before = told_before(&skill, &cx).await?;
        if told_before {
            return Ok(format!(
                "The skill {name} is loaded already; its instructions were given above."
            )
            .into());
        }
        let told = tokio::task::spawn_blocking(move || skill.told()).await?;
        Ok(ToolOutput::from(json!({ "skill": name, "bytes": told.len() })).with_text(told))
    }
}

/// Notes that this call loads the skill, unless another one has. The first call stands, however often it comes back.
async fn told_before(skill: &Skill, cx: &Context) -> Result<bool, StoreError> {
    let (store, file) = (cx.env().store(), skill.file());
    let mine = Loaded {
        skill: file.name.clone(),
        call: cx.id,
        tools: file.allowed_tools.clone(),
    };
    let kept = store
        .once(loaded_key(cx.turn().session, &file.name), mine.record())
        .await?;
    match kept.as_ref().and_then(Loaded::read) {
        Some(first) if first.call != cx.id => {
            // If the first call failed on its way back, the model has not read anything yet.
            let outcome = store.record(&RecordKey::Outcome(first.call)).await?;
            Ok(!matches!(outcome, Some(Record::Outcome(settled)) if settled.status != Status::Ok))
        }
        Some(_) | None => Ok(false),
    }
}

impl Tool for LoadReference {
    fn spec(&self) -> ToolSpec {
        let words = "Reads a file of a skill that the skill's instructions mention.";
        ToolSpec::new(Self::NAME, words, Schema::of::<LoadReferenceInput>())
            .with_annotations(Annotations::read_only())
    }

    async fn invoke(&self, arguments: Arguments, _cx: Context) -> Result<ToolOutput, ToolError> {
        let LoadReferenceInput { skill, path } = typed(&arguments)?;
        let skill = self.0.known(&skill)?.clone();
        let read = tokio::task::spawn_blocking(move || skill.reference(&path)).await?;
        read.map(ToolOutput::from).map_err(unreadable)
    }
}

/// The model is told what it can do about it; what the system said is for the operator.
fn unreadable(error: ReferenceError) -> ToolError {
    let words = format!("{error} cannot be read: {}.", error.source);
    let told = ToolError::new(words).with_category(ErrorCategory::NotFound);
    match error.source.source() {
        Some(cause) => told.with_operator(cause.to_string()),
        None => told,
    }
}

impl Skills {
    fn known(&self, name: &str) -> Result<&Skill, ToolError> {
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

impl Loaded {
    fn record(&self) -> Record {
        Record::Json(Json::new(json!(self)).expect("flat JSON"))
    }

    pub(crate) fn read(record: &Record) -> Option<Self> {
        match record {
            Record::Json(json) => Self::deserialize(json.as_value()).ok(),
            _ => None,
        }
    }
}

/// Where it is kept that a skill was loaded.
fn loaded_key(session: SessionId, skill: &str) -> RecordKey {
    RecordKey::Other(format!("{}{skill}", loaded_prefix(session)).into())
}

pub(crate) fn loaded_prefix(session: SessionId) -> String {
    format!("skill/{session}/")
}
