//! Layers from functions: `from_fn`, `before`, `after` and others. All are ordinary layers.

use std::{fmt, future::Future, marker::PhantomData, sync::Arc};

use crate::{Band, Call, Layer, LayerName, Next, Outcome, Status, stack::descend::StartHook};

/// Creates a layer from an async function.
///
/// ```
/// use toolgate_core::{Call, Next, Outcome, from_fn};
///
/// async fn twice(call: Call, next: Next) -> Outcome {
///     let first = next.clone().run(call.clone()).await;
///     if first.is_ok() { first } else { next.run(call).await }
/// }
///
/// let layer = from_fn(twice);
/// ```
pub fn from_fn<F, Fut>(f: F) -> FromFn<F, (Call, Next)>
where
    F: Fn(Call, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send,
{
    FromFn {
        f,
        name: "from_fn",
        band: Band::Shape,
        shape: PhantomData,
    }
}

/// Creates a layer like [`from_fn`], under the name other systems use.
pub fn around<F, Fut>(f: F) -> FromFn<F, (Call, Next)>
where
    F: Fn(Call, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send,
{
    FromFn {
        name: "around",
        ..from_fn(f)
    }
}

/// A layer made from a function; `S` is the kind of function.
#[derive(Debug, Clone)]
pub struct FromFn<F, S> {
    f: F,
    name: &'static str,
    band: Band,
    // Without `S`, the implementations of `Layer` for the kinds of functions would overlap.
    shape: PhantomData<fn(S)>,
}

impl<F, Fut> Layer for FromFn<F, (Call, Next)>
where
    F: Fn(Call, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send,
{
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        (self.f)(call, next).await
    }
    fn name(&self) -> LayerName {
        self.name.into()
    }
    fn band(&self) -> Band {
        self.band
    }
}

macro_rules! sugar {
    (
        $(#[$doc:meta])*
        $name:ident, $marker:ident, $band:ident, ($($argument:ty),*) $(-> $output:ty)? $(, future $fut:ident)?;
        |$f:ident, $call:ident, $next:ident| $body:expr
    ) => {
        #[doc(hidden)]
        #[derive(Debug, Clone)]
        pub struct $marker;

        $(#[$doc])*
        pub fn $name<F $(, $fut)?>(f: F) -> FromFn<F, $marker>
        where
            F: Fn($($argument),*) $(-> $output)? + Send + Sync + 'static,
            $($fut: Future<Output = ()> + Send,)?
        {
            FromFn { f, name: stringify!($name), band: Band::$band, shape: PhantomData }
        }

        impl<F $(, $fut)?> Layer for FromFn<F, $marker>
        where
            F: Fn($($argument),*) $(-> $output)? + Send + Sync + 'static,
            $($fut: Future<Output = ()> + Send,)?
        {
            async fn handle(&self, $call: Call, $next: Next) -> Outcome {
                let $f = &self.f;
                $body
            }
            fn name(&self) -> LayerName {
                self.name.into()
            }
            fn band(&self) -> Band {
                self.band
            }
        }
    };
}

/// Creates a layer that runs `f` immediately before a call is executed, with the call as it runs.
///
/// It runs once per call, in front of the first attempt: not for a call that is rejected, cached or a
/// dry run, not for a further attempt, and not again when the call resumes.
pub fn before<F, Fut>(f: F) -> BeforeExecution
where
    F: Fn(Call) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    BeforeExecution {
        hook: Arc::new(move |call| Box::pin(f(call))),
    }
}

/// The layer that [`before`] creates.
#[derive(Clone)]
pub struct BeforeExecution {
    hook: StartHook,
}

impl Layer for BeforeExecution {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        next.on_start(self.hook.clone());
        next.run(call).await
    }
    fn name(&self) -> LayerName {
        "before".into()
    }
}

impl fmt::Debug for BeforeExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeforeExecution").finish_non_exhaustive()
    }
}

sugar! {
    /// Creates a layer that runs `f` after each call that settled as `ok`. The outcome has its start
    /// and its end so far.
    after, After, Shape, (Call, Outcome) -> Fut, future Fut;
    |f, call, next| {
        let outcome = next.run(call.clone()).await;
        if outcome.is_ok() {
            f(call, outcome.clone()).await;
        }
        outcome
    }
}

sugar! {
    /// Creates a layer that runs `f` after each call that was executed and failed, once per call.
    ///
    /// It does not run for a call that was rejected, cached or a dry run, nor for an attempt that a
    /// retry follows. A suspended call has not settled.
    on_error, OnError, Shape, (Call, Outcome) -> Fut, future Fut;
    |f, call, next| {
        let trail = next.trail();
        let outcome = next.run(call.clone()).await;
        if trail.attempts() > 0 && is_failed_execution(&outcome) {
            f(call, outcome.clone()).await;
        }
        outcome
    }
}

/// Checks whether an outcome says that a call failed, and not that it was kept from running.
fn is_failed_execution(outcome: &Outcome) -> bool {
    outcome.settled().is_some_and(|settled| {
        let failed = settled.status != Status::Ok && settled.status != Status::DryRun;
        failed && !settled.status.is_refusal() && !settled.cached
    })
}

sugar! {
    /// Creates a recording layer that shows `f` each call with its outcome.
    observe, Observe, Record, (&Call, &Outcome);
    |f, call, next| {
        let outcome = next.run(call.clone()).await;
        f(&call, &outcome);
        outcome
    }
}

sugar! {
    /// Creates a layer that rewrites each call.
    map_call, MapCall, Shape, (Call) -> Call;
    |f, call, next| next.run(f(call)).await
}

sugar! {
    /// Creates a layer that rewrites each outcome.
    map_outcome, MapOutcome, Shape, (&Call, Outcome) -> Outcome;
    |f, call, next| {
        let outcome = next.run(call.clone()).await;
        f(&call, outcome)
    }
}
