//! Several models as one: chooses which is asked, and asks another one if it fails.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use futures::{StreamExt, stream, stream::BoxStream};
use toolgate_core::{
    Delta, Model, ModelError, ModelErrorKind, ModelName, ModelRequest, ModelRetry, RoutedModel,
    run_contained, run_contained_sync,
};

use crate::{RoutingConfig, RoutingDecision, RoutingError, RoutingHook};

/// Several models that look like one. Clones share them.
///
/// The configuration chooses, then hooks in order. If the model fails, and the failure is of a kind
/// that another model may not have, the next one of the fallback list is asked for the whole reply.
/// The failure is reported as [`Delta::Retry`], which voids the pieces before it, and each choice as
/// [`Delta::Routed`] before anything else.
#[derive(Clone)]
pub struct ModelRouter {
    shared: Arc<RouterModels>,
    /// The index of the model that is requested.
    requested: usize,
}

struct RouterModels {
    routing: RoutingConfig,
    hooks: Vec<Box<dyn RoutingHook>>,
    models: Vec<Arc<dyn Model>>,
    fallback: Vec<usize>,
}

impl ModelRouter {
    /// Creates a router that chooses among `models` as `routing` and then `hooks` say.
    pub fn new(
        routing: RoutingConfig,
        models: impl IntoIterator<Item = Arc<dyn Model>>,
        hooks: Vec<Box<dyn RoutingHook>>,
    ) -> Result<Self, RoutingError> {
        let models: Vec<_> = models.into_iter().collect();
        let twice = |(at, model): &(usize, &Arc<dyn Model>)| {
            models[..*at].iter().any(|m| m.name() == model.name())
        };
        if let Some((_, model)) = models.iter().enumerate().find(twice) {
            return Err(RoutingError::DuplicateModel(model.name().clone()));
        }
        routing.check_fallback()?;
        let mut shared = RouterModels {
            routing,
            hooks,
            models,
            fallback: Vec::new(),
        };
        // Every name is checked here, so that no request fails on a typo later.
        for (place, name) in shared.routing.named_models() {
            shared.find_model(&place, name)?;
        }
        let fallback = shared
            .routing
            .fallback
            .iter()
            .map(|name| shared.find_model("routing.fallback", name));
        shared.fallback = fallback.collect::<Result<_, _>>()?;
        let default = shared.routing.default.as_deref();
        let default = default.ok_or(RoutingError::NoDefault)?;
        let requested = shared.find_model("routing.default", default)?;
        Ok(Self {
            shared: Arc::new(shared),
            requested,
        })
    }

    /// Returns a router with another requested model than the default.
    pub fn with_requested(&self, name: &str) -> Result<Self, RoutingError> {
        Ok(Self {
            shared: self.shared.clone(),
            requested: self.shared.find_model("the request", name)?,
        })
    }

    /// Returns the names of all models that may be asked, for
    /// [`ModelBilling::may_use`](crate::ModelBilling::may_use).
    pub fn model_names(&self) -> impl Iterator<Item = &ModelName> {
        self.shared.models.iter().map(|model| model.name())
    }

    /// Chooses a model for a request, and returns the reason.
    fn choose_model(&self, request: &ModelRequest) -> Result<(usize, String), ModelError> {
        let RouterModels {
            routing,
            hooks,
            models,
            ..
        } = &*self.shared;
        let requested = models[self.requested].name();
        let failed = |error: RoutingError| {
            ModelError::new(ModelErrorKind::Setup, requested.clone(), error.to_string())
        };
        let first = routing.choose_model(&requested.to_string(), request);
        let mut selected = self
            .shared
            .find_model("routing", &first.model)
            .map_err(failed)?;
        let mut reason = first.reason;
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
            if let Some(choice) = run_contained_sync(|| hook.route(&decision)).map_err(panicked)? {
                selected = self
                    .shared
                    .find_model(&format!("routing hook {number}"), &choice.model)
                    .map_err(failed)?;
                reason = choice.reason;
            }
        }
        Ok((selected, reason))
    }

    fn describe_choice(
        &self,
        selected: usize,
        reason: String,
        request: &ModelRequest,
    ) -> RoutedModel {
        let name = |at: usize| self.shared.models[at].name().to_string();
        RoutedModel {
            requested: name(self.requested),
            selected: name(selected),
            reason,
            weight: request.weight,
        }
    }
}

impl RouterModels {
    /// Returns the index of the model that a name or alias means.
    fn find_model(&self, place: &str, name: &str) -> Result<usize, RoutingError> {
        let full = self.routing.resolve_alias(name);
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

impl Model for ModelRouter {
    fn name(&self) -> &ModelName {
        self.shared.models[self.requested].name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let asking = match self.choose_model(request) {
            Ok((selected, reason)) => RoutedRequest::new(self, request, selected, reason),
            Err(error) => return Box::pin(stream::once(std::future::ready(Err(error)))),
        };
        Box::pin(stream::unfold(asking, |mut asking| async move {
            Some((asking.next_delta().await?, asking))
        }))
    }
}

impl fmt::Debug for ModelRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRouter")
            .field("requested", self.name())
            .field("routing", &self.shared.routing)
            .finish_non_exhaustive()
    }
}

/// A request under way: the model that is asked, and those that may still be.
struct RoutedRequest<'a> {
    router: &'a ModelRouter,
    request: &'a ModelRequest,
    left: VecDeque<usize>,
    reply: BoxStream<'a, Result<Delta, ModelError>>,
    /// A choice that has not been reported yet.
    untold: Option<RoutedModel>,
    over: bool,
}

impl<'a> RoutedRequest<'a> {
    fn new(
        router: &'a ModelRouter,
        request: &'a ModelRequest,
        selected: usize,
        reason: String,
    ) -> Self {
        let left = router
            .shared
            .fallback
            .iter()
            .copied()
            .filter(|model| *model != selected)
            .collect();
        let untold = Some(router.describe_choice(selected, reason, request));
        let reply = ask_model(router, selected, request);
        Self {
            router,
            request,
            left,
            reply,
            untold,
            over: false,
        }
    }

    async fn next_delta(&mut self) -> Option<Result<Delta, ModelError>> {
        if self.over {
            return None;
        }
        if let Some(routed) = self.untold.take() {
            return Some(Ok(Delta::Routed(routed)));
        }
        match self.reply.next().await {
            Some(Ok(delta)) => {
                self.over = matches!(delta, Delta::Done(_));
                Some(Ok(delta))
            }
            Some(Err(error)) => Some(self.fall_back(error)),
            None => {
                self.over = true;
                None
            }
        }
    }

    /// Asks the next model, if there is one and it may help. The choice is reported next.
    fn fall_back(&mut self, error: ModelError) -> Result<Delta, ModelError> {
        let helps = self.router.shared.routing.fallback_on.contains(&error.kind);
        let Some(next) = self.left.pop_front().filter(|_| helps) else {
            self.over = true;
            return Err(error);
        };
        self.reply = ask_model(self.router, next, self.request);
        let reason = format!("instead of {error}");
        self.untold = Some(self.router.describe_choice(next, reason, self.request));
        Ok(Delta::Retry(ModelRetry {
            error,
            delay: Duration::ZERO,
        }))
    }
}

/// Asks a model. A panic of its adapter is a failure like one of its provider.
fn ask_model<'a>(
    router: &'a ModelRouter,
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
    let reply = match run_contained_sync(|| model.reply(request)) {
        Ok(reply) => reply,
        Err(report) => return Box::pin(stream::once(std::future::ready(panicked(report)))),
    };
    Box::pin(stream::unfold(Some(reply), move |reply| async move {
        let mut reply = reply?;
        match run_contained(reply.next()).await {
            Ok(piece) => piece.map(|piece| (piece, Some(reply))),
            Err(report) => Some((panicked(report), None)),
        }
    }))
}

#[cfg(test)]
mod tests;
