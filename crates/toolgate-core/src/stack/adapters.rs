//! Layers from functions: `from_fn`, `before`, `after` and others. All are ordinary layers.

use std::{future::Future, marker::PhantomData};

use crate::{Band, Call, Layer, LayerName, Next, Outcome};

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

sugar! {
    /// Creates a layer that runs `f` before each call.
    before, Before, Shape, (Call) -> Fut, future Fut;
    |f, call, next| {
        f(call.clone()).await;
        next.run(call).await
    }
}

sugar! {
    /// Creates a layer that runs `f` after each call that settled as `ok`.
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
    /// Creates a layer that runs `f` after each call that settled with another status. A suspended
    /// call has not settled.
    on_error, OnError, Shape, (Call, Outcome) -> Fut, future Fut;
    |f, call, next| {
        let outcome = next.run(call.clone()).await;
        if outcome.status().is_some() && !outcome.is_ok() {
            f(call, outcome.clone()).await;
        }
        outcome
    }
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
