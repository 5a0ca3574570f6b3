//! What loaded skills change in the rounds of a run.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use toolgate_core::{
    CallId, Content, Json, LoopEvent, ModelRequest, Record, RecordKey, Role, SessionId, Status,
    StoreError, StoreHandle, View,
};

use crate::{
    Onward, Round, Skills, Strategy, StrategyError, Turned,
    skill_tools::{LoadReference, LoadSkill, Loaded, loaded_prefix},
};

impl Strategy for Skills {
    fn prepare<'a>(&'a self, round: &'a mut Round<'_>) -> BoxFuture<'a, Result<(), StrategyError>> {
        Box::pin(async move {
            // A session that does not allow loading has no skills, whatever was loaded before it was narrowed.
            if self.by_name.is_empty() || round.request.view.get(LoadSkill::NAME).is_none() {
                round.request.view = self.shown(&round.request.view, &[]);
                return Ok(());
            }
            let loaded = self.loaded(round.store, round.session).await?;
            round.request.view = self.shown(&round.request.view, &loaded);
            round.request.instructions = Some(self.instructions(round.request, &loaded));
            if let Some(resolve) = &self.layers {
                for Loaded { skill, .. } in &loaded {
                    let found = self.get(skill).ok_or_else(|| gone(skill))?;
                    round.layers.extend(resolve(found));
                }
            }
            Ok(())
        })
    }

    fn settled<'a>(
        &'a self,
        turned: &'a mut Turned<'_>,
    ) -> BoxFuture<'a, Result<Onward, StrategyError>> {
        Box::pin(async move {
            let results = &turned.report.results;
            let loads = results.iter().filter(|result| {
                result.tool.as_str() == LoadSkill::NAME && result.status() == Some(Status::Ok)
            });
            let loads: BTreeSet<CallId> = loads.map(|result| result.id).collect();
            if loads.is_empty() {
                return Ok(Onward::Continue);
            }
            let loaded = self.loaded(turned.store, turned.session).await?;
            let first: Vec<_> = loaded
                .into_iter()
                .filter(|loaded| loads.contains(&loaded.call))
                .collect();
            let nothing_else = first.len() == results.len();
            let refunded = nothing_else && self.refund(turned).await.map_err(failed)?;
            turned.events.extend(
                first
                    .into_iter()
                    .map(|Loaded { skill, .. }| LoopEvent::SkillLoaded { skill, refunded }),
            );
            Ok(if refunded {
                Onward::Refund
            } else {
                Onward::Continue
            })
        })
    }
}

impl Skills {
    /// What was loaded in a session, ordered by name.
    async fn loaded(
        &self,
        store: &StoreHandle,
        session: SessionId,
    ) -> Result<Vec<Loaded>, StrategyError> {
        // More than there are now may have been loaded, if the folders have changed since.
        let kept = store
            .list(&loaded_prefix(session), None, 10 * Self::MOST)
            .await
            .map_err(failed)?;
        Ok(kept
            .iter()
            .filter_map(|(_, record)| Loaded::read(record))
            .collect())
    }

    /// The tools of a round: never more than the session shows.
    fn shown(&self, view: &View, loaded: &[Loaded]) -> View {
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
            let ours = name == LoadSkill::NAME || name == LoadReference::NAME;
            ours || named.contains(name) || !(limited || self.held_back.contains(name))
        })
    }

    fn instructions(&self, request: &ModelRequest, loaded: &[Loaded]) -> Arc<str> {
        let mut text = match &request.instructions {
            Some(before) => format!("{before}\n\n{}", self.announcement),
            None => self.announcement.to_string(),
        };
        for forgotten in self.forgotten(request, loaded) {
            text.push_str("\n\n");
            text.push_str(&forgotten);
        }
        text.into()
    }

    /// What loaded skills say, where the message that said it is left out of the conversation by now.
    fn forgotten(&self, request: &ModelRequest, loaded: &[Loaded]) -> Vec<String> {
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
                    Content::Result(answer) if answer.tool == LoadSkill::NAME => {
                        Some(answer.text.as_str())
                    }
                    _ => None,
                });
        let answers: Vec<&str> = answers.collect();
        let skills = loaded.iter().filter_map(|loaded| self.get(&loaded.skill));
        let unsaid = skills.filter(|skill| {
            let heading = skill.heading();
            !answers
                .iter()
                .any(|text| text.lines().next() == Some(&heading))
        });
        unsaid
            .map(|skill| format!("{}\n\n{}", skill.heading(), skill.file().instructions))
            .collect()
    }

    /// Whether the round is not counted. A turn that was refunded stays so, whoever asks again.
    async fn refund(&self, turned: &Turned<'_>) -> Result<bool, StoreError> {
        let prefix = format!("skill-refund/{}/{:012}/", turned.session, turned.run);
        let key: Arc<str> = format!("{prefix}{}", turned.report.turn).into();
        let most = usize::try_from(self.max_refunds).unwrap_or(usize::MAX);
        let given = turned.store.list(&prefix, None, most.max(1)).await?;
        if given.iter().any(|(known, _)| *known == key) {
            return Ok(true);
        }
        if given.len() >= most {
            return Ok(false);
        }
        turned
            .store
            .once(RecordKey::Other(key), Record::Json(Json::null()))
            .await?;
        Ok(true)
    }
}

fn failed(error: StoreError) -> StrategyError {
    StrategyError(format!(
        "which skills are loaded could not be read or written: {error}"
    ))
}

fn gone(skill: &str) -> StrategyError {
    // Its layers may be what keeps its tools in bounds, so the session does not go on without them.
    StrategyError(format!(
        "the skill {skill} was loaded in this session and is not there any more; put it back"
    ))
}
