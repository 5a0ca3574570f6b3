//! The effects of loaded skills on the iterations of a run.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use toolgate_core::{
    CallId, Json, ModelRequest, PartContent, RecordKey, Role, SessionEvent, SessionId, Status,
    StoreError, StoreHandle, View,
};

use crate::{
    RequestContext, Skills, Strategy, StrategyAction, StrategyError, TurnContext,
    agent::skills::tools::{LoadReferenceTool, LoadSkillTool, LoadedSkill, loaded_prefix},
};

impl Strategy for Skills {
    fn prepare_request<'a>(
        &'a self,
        request_context: &'a mut RequestContext<'_>,
    ) -> BoxFuture<'a, Result<(), StrategyError>> {
        Box::pin(async move {
            // A session that does not allow loading has no skills, whatever was loaded before it
            // was narrowed.
            if self.by_name.is_empty()
                || request_context
                    .request
                    .view
                    .get(LoadSkillTool::NAME)
                    .is_none()
            {
                request_context.request.view =
                    self.visible_tools(&request_context.request.view, &[]);
                return Ok(());
            }
            let loaded = self
                .loaded_skills(request_context.store, request_context.session)
                .await?;
            request_context.request.view =
                self.visible_tools(&request_context.request.view, &loaded);
            request_context.request.instructions =
                Some(self.build_instructions(request_context.request, &loaded));
            if let Some(resolve) = &self.layers {
                for LoadedSkill { skill, .. } in &loaded {
                    let found = self.get(skill).ok_or_else(|| skill_missing(skill))?;
                    request_context.layers.extend(resolve(found));
                }
            }
            Ok(())
        })
    }

    fn turn_settled<'a>(
        &'a self,
        turned: &'a mut TurnContext<'_>,
    ) -> BoxFuture<'a, Result<StrategyAction, StrategyError>> {
        Box::pin(async move {
            let results = &turned.report.results;
            let loads = results.iter().filter(|result| {
                result.tool.as_str() == LoadSkillTool::NAME && result.status() == Some(Status::Ok)
            });
            let loads: BTreeSet<CallId> = loads.map(|result| result.id).collect();
            if loads.is_empty() {
                return Ok(StrategyAction::Continue);
            }
            let loaded = self.loaded_skills(turned.store, turned.session).await?;
            let first: Vec<_> = loaded
                .into_iter()
                .filter(|loaded| loads.contains(&loaded.call))
                .collect();
            let nothing_else = first.len() == results.len();
            let refunded = nothing_else && self.refund_turn(turned).await.map_err(store_failure)?;
            turned.events.extend(
                first
                    .into_iter()
                    .map(|LoadedSkill { skill, .. }| SessionEvent::SkillLoaded { skill, refunded }),
            );
            Ok(if refunded {
                StrategyAction::Refund
            } else {
                StrategyAction::Continue
            })
        })
    }
}

impl Skills {
    /// Returns what was loaded in a session, ordered by name.
    async fn loaded_skills(
        &self,
        store: &StoreHandle,
        session: SessionId,
    ) -> Result<Vec<LoadedSkill>, StrategyError> {
        // More skills than there are now may have been loaded, if the folders have changed since.
        let kept = store
            .list_json(&loaded_prefix(session), None, 10 * Self::MOST)
            .await
            .map_err(store_failure)?;
        Ok(kept
            .iter()
            .filter_map(|(_, record)| LoadedSkill::from_record(record))
            .collect())
    }

    /// Returns the tools of an iteration: never more than the session shows.
    fn visible_tools(&self, view: &View, loaded: &[LoadedSkill]) -> View {
        let named: BTreeSet<&str> = loaded
            .iter()
            .flat_map(|loaded| &loaded.tools)
            .map(String::as_str)
            .collect();
        let limited = self.narrowing && !named.is_empty();
        if self.held_back.is_empty() && !limited {
            return view.clone();
        }
        view.filter(|tool| {
            let name = tool.spec.name.as_str();
            let ours = name == LoadSkillTool::NAME || name == LoadReferenceTool::NAME;
            ours || named.contains(name) || !(limited || self.held_back.contains(name))
        })
    }

    fn build_instructions(&self, request: &ModelRequest, loaded: &[LoadedSkill]) -> Arc<str> {
        let mut text = match &request.instructions {
            Some(before) => format!("{before}\n\n{}", self.announcement),
            None => self.announcement.to_string(),
        };
        for forgotten in self.forgotten_instructions(request, loaded) {
            text.push_str("\n\n");
            text.push_str(&forgotten);
        }
        text.into()
    }

    /// Returns the instructions of loaded skills whose message is left out of the conversation by
    /// now.
    fn forgotten_instructions(
        &self,
        request: &ModelRequest,
        loaded: &[LoadedSkill],
    ) -> Vec<String> {
        if loaded.is_empty() {
            return Vec::new();
        }
        let tools = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Tool);
        let answers =
            tools
                .flat_map(|message| &message.parts)
                .filter_map(|part| match &part.content {
                    PartContent::Result(answer) if answer.tool == LoadSkillTool::NAME => {
                        Some(answer.text.as_str())
                    }
                    _ => None,
                });
        let answers: Vec<&str> = answers.collect();
        let skills = loaded.iter().filter_map(|loaded| self.get(&loaded.skill));
        let unsaid = skills.filter(|skill| {
            let heading = skill.heading_line();
            !answers
                .iter()
                .any(|text| text.lines().next() == Some(&heading))
        });
        unsaid
            .map(|skill| format!("{}\n\n{}", skill.heading_line(), skill.file().instructions))
            .collect()
    }

    /// Checks whether the iteration is not counted. A turn that was refunded stays so when it is
    /// asked again.
    async fn refund_turn(&self, turned: &TurnContext<'_>) -> Result<bool, StoreError> {
        let prefix = format!("skill-refund/{}/{:012}/", turned.session, turned.run);
        let key: Arc<str> = format!("{prefix}{}", turned.report.turn).into();
        let most = usize::try_from(self.max_refunds).unwrap_or(usize::MAX);
        let given = turned.store.list_json(&prefix, None, most.max(1)).await?;
        // Stored per turn, so that a resumed run refunds the same turns.
        if given.iter().any(|(known, _)| *known == key) {
            return Ok(true);
        }
        if given.len() >= most {
            return Ok(false);
        }
        turned
            .store
            .put_json_once(RecordKey::Other(key), Json::null())
            .await?;
        Ok(true)
    }
}

fn store_failure(error: StoreError) -> StrategyError {
    StrategyError(format!(
        "the list of loaded skills could not be read or written: {error}"
    ))
}

fn skill_missing(skill: &str) -> StrategyError {
    // Its layers may be what restricts its tools, so the session must not continue without them.
    StrategyError(format!(
        "the skill {skill} was loaded in this session and is missing now; restore it"
    ))
}
