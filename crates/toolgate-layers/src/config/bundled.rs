//! The bundled layers in their default order, with the reason for each position.

use toolgate_core::Band::{Bound, Decide, Record, Repeat, Shape};

use crate::{
    Approval, Budget, Catalog, CatalogEntry, CatchPanic, CircuitBreaker, ConfiguredHooks, DryRun,
    FileChanges, Handoff, Idempotency, LoopGuard, OutputCap, Policy, ProgressLayer, RateLimit,
    Receipts, Redact, RequireReason, Retry, Scope, Summary, Telemetry, Timeout, Toasts, Validate,
};

impl Catalog {
    /// Returns the catalog of the bundled layers.
    pub fn bundled() -> Self {
        Self::from_bundled(
            [
                record_layers(),
                shape_layers(),
                decide_layers(),
                repeat_layers(),
                bound_layers(),
            ]
            .concat(),
        )
    }
}

fn record_layers() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::for_layer::<Receipts>(Record)
            .by_default()
            .because("outermost, so that nothing runs that cannot be recorded, and every blocked call is recorded"),
        CatalogEntry::for_layer::<Telemetry>(Record)
            .because("outside everything that may answer, so that blocked and denied calls have spans"),
        CatalogEntry::for_layer::<Toasts>(Record)
            .by_default()
            .because("outside everything that may block, so that users see blocked calls"),
        CatalogEntry::for_layer::<ProgressLayer>(Record)
            .by_default()
            .because("outside retry, so that one call is one progress bar, whatever the number of attempts"),
        CatalogEntry::for_layer::<FileChanges>(Record)
            .by_default()
            .because("outside everything, so that it sees the final outcome"),
        CatalogEntry::for_layer::<Summary>(Record)
            .by_default()
            .because("innermost of the recorders, so that the others see the line it writes"),
    ]
}

fn shape_layers() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::for_layer::<ConfiguredHooks>(Shape)
            .by_default()
            .because(
                "outside the layers that shape results, so that hooks see what the model will read",
            ),
        CatalogEntry::for_layer::<OutputCap>(Shape)
            .by_default()
            .because("outside redaction, so that only redacted text is stored for `read_output`"),
        CatalogEntry::for_layer::<Redact>(Shape)
            .by_default()
            .because(
                "outside everything that stores text of a model or tool, and inside the recorders",
            ),
        CatalogEntry::for_layer::<RequireReason>(Shape).because(
            "outside the deciding layers, so that they decide on the tool's own arguments",
        ),
        CatalogEntry::for_layer::<Handoff>(Shape)
            .because("inside redaction, so that a record contains no secret"),
    ]
}

fn decide_layers() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::for_layer::<Scope>(Decide)
            .because("first to decide: it is the cheapest and needs no approver"),
        CatalogEntry::for_layer::<Policy>(Decide)
            .by_default()
            .because("before approval: a call that a rule blocks needs no approver"),
        CatalogEntry::for_layer::<Validate>(Decide)
            .by_default()
            .because("after the rules about the tool, before anything is counted"),
        CatalogEntry::for_layer::<RateLimit>(Decide)
            .because("after the checks that block calls, so that blocked calls are not counted"),
        CatalogEntry::for_layer::<Budget>(Decide)
            .because("after the rate limit, so that nothing is reserved for a call above it"),
        CatalogEntry::for_layer::<LoopGuard>(Decide)
            .by_default()
            .because("before approval: an approver should not get the same request over and over"),
        CatalogEntry::for_layer::<Approval>(Decide)
            .by_default()
            .because("last to decide, so that approvers see only calls that every rule allows"),
    ]
}

fn repeat_layers() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::for_layer::<Idempotency>(Repeat)
            .because("inside approval, so that a cached result was approved for this call too"),
        CatalogEntry::for_layer::<Retry>(Repeat)
            .by_default()
            .because(
                "inside approval, so that a retry needs no new approval, and outside the time limit, so that each attempt has its own",
            ),
        CatalogEntry::for_layer::<CircuitBreaker>(Repeat)
            .by_default()
            .because("inside retry, so that it sees every attempt"),
    ]
}

fn bound_layers() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::for_layer::<Timeout>(Bound)
            .by_default()
            .because("inside retry, so that every attempt has a fresh limit"),
        CatalogEntry::for_layer::<DryRun>(Bound)
            .because("innermost, so that everything else happens as in a real run"),
        CatalogEntry::for_layer::<CatchPanic>(Bound)
            .by_default()
            .because("right at the tool, so that a panic is recorded where it happened"),
    ]
}
