//! The resources that the bundled layers take, each with a setter of its own.

use std::{any::TypeId, path::PathBuf, sync::Arc};

use toolgate_core::{BillingService, Hooks, Keyring, Payer, Redactor, StoreHandle};

use crate::{
    AskWhen, CommitmentKey, FileWatcher, HandoffSink, KnownSecrets, MemoryReceipts, PathBase,
    Preview, ProgressManager, ReceiptSink, Resources, RuleBook, ScopePolicy, SharedPreview,
    SharedReceiptSink, SharedRedactor, SharedSpanSink, SpanSink, SpanSinks, TelemetryCounters,
    ToastManager, config::budgets::FileBilling, shape::redact::StackRedactor,
};

/// Setters of what the bundled layers take.
///
/// ```
/// use toolgate_core::{MemoryStore, StoreHandle};
/// use toolgate_layers::Resources;
/// let store = StoreHandle::new(MemoryStore::new());
/// let resources = Resources::new().store(store).path_base("/srv/project");
/// ```
impl Resources {
    /// Sets the store in which budgets are accounted.
    pub fn store(self, store: StoreHandle) -> Self {
        self.with(store)
    }

    /// Sets who pays for calls, where a budget has the scope of a user or tenant.
    pub fn payer(self, payer: Payer) -> Self {
        self.with(payer)
    }

    /// Sets the billing service that the layer `budget` uses in place of the file's budgets.
    pub fn billing(self, billing: BillingService) -> Self {
        self.with(billing)
    }

    /// Sets the keys that sign and verify approvals.
    pub fn keyring(self, keyring: Keyring) -> Self {
        self.with(keyring)
    }

    /// Sets the standing rules that answer approval requests.
    pub fn rule_book(self, rules: RuleBook) -> Self {
        self.with(rules)
    }

    /// Sets the preview of what a call would change, for approvers.
    pub fn preview(self, preview: impl Preview) -> Self {
        self.with(SharedPreview::new(preview))
    }

    /// Sets the program's own test of whether a call needs approval.
    pub fn ask_when(self, ask: AskWhen) -> Self {
        self.with(ask)
    }

    /// Sets the program's own limits of the layer `scope`.
    pub fn scope_policy(self, policy: ScopePolicy) -> Self {
        self.with(policy)
    }

    /// Sets the directory that relative paths in calls start from.
    pub fn path_base(self, root: impl Into<PathBuf>) -> Self {
        self.with(PathBase::new(root))
    }

    /// Sets the program's own redactor, which runs before the rules of the file.
    pub fn redactor(self, redactor: impl Redactor) -> Self {
        self.with(SharedRedactor::new(redactor))
    }

    /// Sets the values that the layer `redact` redacts wherever they occur.
    pub fn known_secrets(self, secrets: KnownSecrets) -> Self {
        self.with(secrets)
    }

    /// Sets the functions that the layer `hooks` runs.
    pub fn hooks(self, hooks: Hooks) -> Self {
        self.with(Arc::new(hooks))
    }

    /// Sets the callback for handoffs.
    pub fn handoff_sink(self, sink: HandoffSink) -> Self {
        self.with(sink)
    }

    /// Sets the program's own sink of receipts.
    pub fn receipt_sink(self, sink: impl ReceiptSink) -> Self {
        self.with(SharedReceiptSink::new(sink))
    }

    /// Sets the key of the digests in receipts.
    pub fn commitment_key(self, key: CommitmentKey) -> Self {
        self.with(key)
    }

    /// Sets the program's own sink of spans.
    pub fn span_sink(self, sink: impl SpanSink) -> Self {
        self.with(SharedSpanSink::new(sink))
    }
}

/// Checks whether a bundled layer takes resources of this type, or shares one with the program.
pub(super) fn is_bundled_resource(resource: TypeId) -> bool {
    [
        TypeId::of::<StoreHandle>(),
        TypeId::of::<Payer>(),
        TypeId::of::<BillingService>(),
        TypeId::of::<FileBilling>(),
        TypeId::of::<Keyring>(),
        TypeId::of::<RuleBook>(),
        TypeId::of::<SharedPreview>(),
        TypeId::of::<AskWhen>(),
        TypeId::of::<ScopePolicy>(),
        TypeId::of::<PathBase>(),
        TypeId::of::<SharedRedactor>(),
        TypeId::of::<KnownSecrets>(),
        TypeId::of::<StackRedactor>(),
        TypeId::of::<Arc<Hooks>>(),
        TypeId::of::<HandoffSink>(),
        TypeId::of::<SharedReceiptSink>(),
        TypeId::of::<MemoryReceipts>(),
        TypeId::of::<CommitmentKey>(),
        TypeId::of::<SharedSpanSink>(),
        TypeId::of::<SpanSinks>(),
        TypeId::of::<TelemetryCounters>(),
        TypeId::of::<ToastManager>(),
        TypeId::of::<ProgressManager>(),
        TypeId::of::<FileWatcher>(),
    ]
    .contains(&resource)
}
