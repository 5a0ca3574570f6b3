//! The bundled layers in their default order, and why each stands where it does.

use toolgate_core::Band::{Bound, Decide, Record, Repeat, Shape};

use crate::{
    Approval, Budget, Catalog, CatalogEntry, CatchPanic, CircuitBreaker, ConfiguredHooks, DryRun,
    FileChanges, Handoff, Idempotency, LoopGuard, OutputCap, Policy, Progress, RateLimit, Receipts,
    Redact, RequireReason, Retry, Scope, Summary, Telemetry, Timeout, Toasts, Validate,
};

impl Catalog {
    /// The bundled layers.
    pub fn bundled() -> Self {
        Self::of([record(), shape(), decide(), repeat(), bound()].concat())
    }
}

fn record() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::of::<Receipts>(Record)
            .by_default()
            .because("outermost, so that nothing happens that cannot be recorded and every refusal is")
            .origin(
                "with_audit_log",
                "the sink is asked whether it can write before the call runs; `sink` takes `local`, `memory`, `host` and `both`; \
                 `cloud` is a sink of the program's own (`host`)",
            ),
        CatalogEntry::of::<Telemetry>(Record)
            .because("outside everything that may answer, so that refused calls have spans")
            .origin("with_telemetry, Telemetry", "content only when asked for, and then redacted"),
        CatalogEntry::of::<Toasts>(Record)
            .by_default()
            .because("outside everything that may refuse, so that people see refusals")
            .origin("ToastNotifications", "texts are redacted and cut"),
        CatalogEntry::of::<Progress>(Record)
            .by_default()
            .because("outside retry, so that one call is one bar however often it is tried")
            .origin("Progress", "moved from the inside to the outside: once per call, not per attempt"),
        CatalogEntry::of::<FileChanges>(Record)
            .by_default()
            .because("outside everything, so that it sees what really came of a call")
            .origin(
                "FileChangeTracking",
                "moved from the inside to the outside; nothing for cached or pretended calls",
            ),
        CatalogEntry::of::<Summary>(Record)
            .by_default()
            .because("innermost of the recorders, so that the others read the line it writes")
            .origin("with_summary", "a reason that the model gave stands in front of it"),
    ]
}

fn shape() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::of::<ConfiguredHooks>(Shape)
            .by_default()
            .because("outside what shapes results, so that hooks read what the model will read")
            .origin("Hooks, HookRegistry", "what hooks said before a call is kept, so that they run once per call"),
        CatalogEntry::of::<OutputCap>(Shape)
            .by_default()
            .because("outside redaction, so that only redacted text is kept for reading on")
            .origin("ResultSizeLimit", "keeps head and tail, and the rest can be read with `read_output`"),
        CatalogEntry::of::<Redact>(Shape)
            .by_default()
            .first()
            .because("outside everything that notes what a model or tool wrote, and inside the recorders")
            .origin(
                "with_redaction",
                "bundled detectors besides the program's redactor; one that fails blocks; the tool's arguments change \
                 only with `arguments = true`",
            ),
        CatalogEntry::of::<RequireReason>(Shape)
            .because("before anybody decides, so that the tool's own arguments are decided on")
            .origin(
                "with_required_reason",
                "`strip` and `schema_required` work together: the view is checked before, the tool's own schema after",
            ),
        CatalogEntry::of::<Handoff>(Shape)
            .because("inside redaction, so that a record holds no secret")
            .origin("with_handoff_artifact", "`policy_override` can only tighten"),
    ]
}

fn decide() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::of::<Scope>(Decide).because("first to decide: it is the cheapest and needs nobody").origin(
            "with_scoped_executor",
            "an empty `allowed_tools` allows nothing; `raise` settles the call as an exception, which stops a run \
                 that stops on failures",
        ),
        CatalogEntry::of::<Policy>(Decide)
            .by_default()
            .first()
            .because("before anybody is asked: what is denied needs no person")
            .origin(
                "persona.autonomy_policy, enforce_current_policy_for_tool",
                "rules as data; deny beats ask beats allow",
            ),
        CatalogEntry::of::<Validate>(Decide)
            .by_default()
            .because("after the rules that look at the tool, before anything is counted")
            .origin("Validation", "every problem with its place, and no value repeated"),
        CatalogEntry::of::<RateLimit>(Decide)
            .because("after what is refused anyway, which does not count")
            .origin("with_rate_limit", "windows besides the total cap"),
        CatalogEntry::of::<Budget>(Decide)
            .because("after the rate, so that nothing is reserved for a call that is one too many")
            .origin("with_budget, BudgetNotifier", "reserved before the call, settled after it"),
        CatalogEntry::of::<LoopGuard>(Decide)
            .by_default()
            .because("before anybody is asked: a person should not answer the same question over and over")
            .origin("(none)", "new"),
        CatalogEntry::of::<Approval>(Decide)
            .by_default()
            .because("last to decide, so that people are asked only about what every rule allows")
            .origin(
                "with_consent, approvalMiddleware, ApprovalGate",
                "suspends the call instead of holding a request open; an answer counts for the arguments and tool that \
                 were shown",
            ),
    ]
}

fn repeat() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::of::<Idempotency>(Repeat)
            .because("inside approval, so that a remembered result was approved for this call too")
            .origin(
                "with_idempotency",
                "per principal; identical calls at the same time run once; only harmless tools by default",
            ),
        CatalogEntry::of::<Retry>(Repeat)
            .by_default()
            .because(
                "inside approval, so that another attempt asks nobody, and outside the limit, so that each has its own",
            )
            .origin("Retry", "by type of error, never by its text; only tools for which a repeat does no harm"),
        CatalogEntry::of::<CircuitBreaker>(Repeat)
            .by_default()
            .because("inside retry, so that it sees every attempt")
            .origin("(none)", "new"),
    ]
}

fn bound() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry::of::<Timeout>(Bound)
            .by_default()
            .because("inside retry, so that every attempt has a fresh limit")
            .origin(
                "with_timeout, Timeout",
                "really stops the work; `observe = true` only labels, as in the design document",
            ),
        CatalogEntry::of::<DryRun>(Bound)
            .because("innermost, so that everything else happens as it would")
            .origin(
                "with_dry_run",
                "status `dry_run` counts as no success and is never remembered",
            ),
        CatalogEntry::of::<CatchPanic>(Bound)
            .by_default()
            .because("right at the tool, so that a panic is noted where it happened")
            .origin(
                "PanicRecovery",
                "the runtime contains every panic by itself; this only notes it",
            ),
    ]
}
