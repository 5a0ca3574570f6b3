//! What happened before, from the store: at the start, and after the bus ran ahead of the screen.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use toolgate::{Event, EventBody, SessionId, StoreError, StoreHandle, ToolEvent};

/// Follows the events of a session and of the agents it delegates to, each once and without gaps.
#[derive(Debug)]
pub(super) struct History {
    store: StoreHandle,
    /// The tools that are agents. An agent's session has the id of the call that began it.
    agents: HashSet<String>,
    /// The last event of each session that was passed on.
    seen: HashMap<SessionId, u64>,
    /// Sessions in the order in which they were found.
    known: Vec<SessionId>,
}

impl History {
    const PAGE: usize = 1_000;

    pub(super) fn new(store: StoreHandle, session: SessionId, agents: impl IntoIterator<Item = String>) -> Self {
        Self { store, agents: agents.into_iter().collect(), seen: HashMap::new(), known: vec![session] }
    }

    /// An event that just came: it and nothing else if it is the next one of its session, nothing if it is known.
    /// Otherwise everything that is missing has to be read.
    pub(super) async fn take(&mut self, event: Arc<Event>) -> Result<Vec<Arc<Event>>, StoreError> {
        let session = event.turn_info().session;
        let seen = self.seen.get(&session).copied().unwrap_or_default();
        if event.sequence() <= seen {
            return Ok(Vec::new());
        }
        if event.sequence() > seen + 1 {
            self.know(session);
            return self.missing().await;
        }
        self.note(&event);
        Ok(vec![event])
    }

    /// Everything that was not passed on yet: of the session, then of its agents.
    pub(super) async fn missing(&mut self) -> Result<Vec<Arc<Event>>, StoreError> {
        let (mut events, mut place) = (Vec::new(), 0);
        // An agent may have agents of its own: the list grows while it is worked through.
        while let Some(session) = self.known.get(place).copied() {
            loop {
                let after = self.seen.get(&session).copied().unwrap_or_default();
                let page = self.store.events(session, after, Self::PAGE).await?;
                page.iter().for_each(|event| self.note(event));
                let was_last = page.len() < Self::PAGE;
                events.extend(page);
                if was_last {
                    break;
                }
            }
            place += 1;
        }
        Ok(events)
    }

    fn note(&mut self, event: &Event) {
        let session = event.turn_info().session;
        self.seen.insert(session, event.sequence());
        self.know(session);
        if let EventBody::Tool(invocation, ToolEvent::ToolRequested { .. }) = event.body()
            && self.agents.contains(invocation.tool.as_str())
        {
            self.know(SessionId::new(invocation.id.uuid()));
        }
    }

    fn know(&mut self, session: SessionId) {
        if !self.known.contains(&session) {
            self.known.push(session);
        }
    }
}
