//! Several models as one: chooses which is asked, and asks another one if it fails.

use std::{collections::VecDeque, fmt, sync::Arc};

use futures::{StreamExt, stream, stream::BoxStream};
use toolgate_core::{
    Delta, Model, ModelError, ModelErrorKind, ModelName, ModelRequest, Routed, contained,
    contained_sync,
};

use crate::{Routing, RoutingDecision, RoutingError, RoutingHook};

/// Several models that look like one. Cloning shares them.
///
/// The configuration chooses, then hooks in order. If the model fails before it has said anything, and the failure is of
/// a kind that another model may not have, the next one of the fallback list is asked. Once a piece of the reply was
/// passed on there is no way back: the caller would read two beginnings. Each choice is told as [`Delta::Routed`] before
/// anything else.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
    /// The model that is asked for.
    requested: usize,
}

struct Shared {
    routing: Routing,
    hooks: Vec<Box<dyn RoutingHook>>,
    models: Vec<Arc<dyn Model>>,
    fallback: Vec<usize>,
}

impl Router {
    /// Chooses among `models` as `routing` says, and as hooks say after it.
    pub fn new(
        routing: Routing,
        models: impl IntoIterator<Item = Arc<dyn Model>>,
        hooks: Vec<Box<dyn RoutingHook>>,
    ) -> Result<Self, RoutingError> {
        let models: Vec<_> = models.into_iter().collect();
        let twice = |(at, model): &(usize, &Arc<dyn Model>)| {
            models[..*at].iter().any(|m| m.name() == model.name())
        };
        if let Some((_, model)) = models.iter().enumerate().find(twice) {
            return Err(RoutingError::Twice(model.name().clone()));
        }
        routing.check_fallback()?;
        let mut shared = Shared {
            routing,
            hooks,
            models,
            fallback: Vec::new(),
        };
        for (place, name) in shared.routing.names() {
            shared.find(&place, name)?;
        }
        let fallback = shared
            .routing
            .fallback
            .iter()
            .map(|name| shared.find("routing.fallback", name));
        shared.fallback = fallback.collect::<Result<_, _>>()?;
        let requested = shared.find("routing.default", &shared.routing.default)?;
        Ok(Self {
            shared: Arc::new(shared),
            requested,
        })
    }

    /// The same, with another model asked for than the default.
    pub fn requesting(&self, name: &str) -> Result<Self, RoutingError> {
        Ok(Self {
            shared: self.shared.clone(),
            requested: self.shared.find("the request", name)?,
        })
    }

    /// The names of all models, for whoever has to know what may be asked: [`Spending::may_use`](crate::Spending::may_use).
    pub fn models(&self) -> impl Iterator<Item = &ModelName> {
        self.shared.models.iter().map(|model| model.name())
    }

    /// Chooses a model for a request, and says why.
    fn decide(&self, request: &ModelRequest) -> Result<(usize, String), ModelError> {
        let Shared {
            routing,
            hooks,
            models,
            ..
        } = &*self.shared;
        let requested = models[self.requested].name();
        let failed = |error: RoutingError| {
            ModelError::new(ModelErrorKind::Setup, requested.clone(), error.to_string())
        };
        let first = routing.choose(&requested.to_string(), request);
        let (mut selected, mut reason) = (
            self.shared.find("routing", &first.model).map_err(failed)?,
            first.reason,
        );
        for (number, hook) in (1..).zip(hooks) {
            let decision = RoutingDecision {
                requested,
                selected: models[selected].name(),
                reason: &reason,
                weight: request.weight,
                context: request,
            };
            let panicked = |_| {
                ModelError::new(
                    ModelErrorKind::Setup,
                    requested.clone(),
                    format!("routing hook {number} panicked"),
                )
            };
            if let Some(choice) = contained_sync(|| hook.route(&decision)).map_err(panicked)? {
                selected = self
                    .shared
                    .find(&format!("routing hook {number}"), &choice.model)
                    .map_err(failed)?;
                reason = choice.reason;
            }
        }
        Ok((selected, reason))
    }

    fn routed(&self, selected: usize, reason: String, request: &ModelRequest) -> Routed {
        let name = |at: usize| self.shared.models[at].name().to_string();
        Routed {
            requested: name(self.requested),
            selected: name(selected),
            reason,
            weight: request.weight,
        }
    }
}

impl Shared {
    /// The model that a name or alias means.
    fn find(&self, place: &str, name: &str) -> Result<usize, RoutingError> {
        let full = self.routing.aliases.get(name).map_or(name, String::as_str);
        let found = self
            .models
            .iter()
            .position(|model| model.name().to_string() == full);
        found.ok_or_else(|| {
            let models = self.models.iter().map(|model| model.name().to_string());
            let known = self
                .routing
                .aliases
                .keys()
                .cloned()
                .chain(models)
                .collect::<Vec<_>>()
                .join(", ");
            RoutingError::UnknownModel {
                place: place.to_owned(),
                name: name.to_owned(),
                known,
            }
        })
    }
}

impl Model for Router {
    fn name(&self) -> &ModelName {
        self.shared.models[self.requested].name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let asking = match self.decide(request) {
            Ok((selected, reason)) => Asking::new(self, request, selected, reason),
            Err(error) => return Box::pin(stream::once(std::future::ready(Err(error)))),
        };
        Box::pin(stream::unfold(asking, |mut asking| async move {
            Some((asking.next().await?, asking))
        }))
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("requested", self.name())
            .field("routing", &self.shared.routing)
            .finish_non_exhaustive()
    }
}

/// A request on its way: the model that is asked, and those that may still be.
struct Asking<'a> {
    router: &'a Router,
    request: &'a ModelRequest,
    left: VecDeque<usize>,
    reply: BoxStream<'a, Result<Delta, ModelError>>,
    /// A choice that has not been told yet.
    untold: Option<Routed>,
    /// Whether a piece of a reply was passed on.
    said: bool,
    over: bool,
}

impl<'a> Asking<'a> {
    fn new(router: &'a Router, request: &'a ModelRequest, selected: usize, reason: String) -> Self {
        let left = router
            .shared
            .fallback
            .iter()
            .copied()
            .filter(|model| *model != selected)
            .collect();
        let untold = Some(router.routed(selected, reason, request));
        let reply = ask(router, selected, request);
        Self {
            router,
            request,
            left,
            reply,
            untold,
            said: false,
            over: false,
        }
    }

    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        if self.over {
            return None;
        }
        if let Some(routed) = self.untold.take() {
            return Some(Ok(Delta::Routed(routed)));
        }
        match self.reply.next().await {
            Some(Ok(delta)) => {
                self.said |= !matches!(delta, Delta::Routed(_));
                self.over = matches!(delta, Delta::Done(_));
                Some(Ok(delta))
            }
            Some(Err(error)) => Some(self.fall_back(error).map(Delta::Routed)),
            None => {
                self.over = true;
                None
            }
        }
    }

    /// Asks the next model, if there is one and it may help.
    fn fall_back(&mut self, error: ModelError) -> Result<Routed, ModelError> {
        let helps = !self.said && self.router.shared.routing.fallback_on.contains(&error.kind);
        match self.left.pop_front().filter(|_| helps) {
            Some(next) => {
                self.reply = ask(self.router, next, self.request);
                Ok(self
                    .router
                    .routed(next, format!("instead of {error}"), self.request))
            }
            None => {
                self.over = true;
                Err(error)
            }
        }
    }
}

/// Asks a model. One that panics has failed like one whose provider did.
fn ask<'a>(
    router: &'a Router,
    model: usize,
    request: &'a ModelRequest,
) -> BoxStream<'a, Result<Delta, ModelError>> {
    let model = &router.shared.models[model];
    let panicked = |_| {
        Err(ModelError::new(
            ModelErrorKind::Malformed,
            model.name().clone(),
            "the model's adapter panicked",
        ))
    };
    let reply = match contained_sync(|| model.reply(request)) {
        Ok(reply) => reply,
        Err(report) => return Box::pin(stream::once(std::future::ready(panicked(report)))),
    };
    Box::pin(stream::unfold(Some(reply), move |reply| async move {
        let mut reply = reply?;
        match contained(reply.next()).await {
            Ok(piece) => piece.map(|piece| (piece, Some(reply))),
            Err(report) => Some((panicked(report), None)),
        }
    }))
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
