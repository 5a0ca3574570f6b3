//! Executors, which finally run a call: in process, an MCP server, the host, the provider.

use std::{borrow::Cow, fmt, future::Future, str::FromStr, sync::Arc};

use futures::future::BoxFuture;
use schemars::{JsonSchema, json_schema};

use crate::{Call, IdempotencyKey, Outcome, Registry, ToolEntry, ToolOutput};

/// Runs calls that have passed every layer.
///
/// An executor is called at most once per attempt. It does not panic on purpose, but if it does,
/// that call settles as `exception` and its siblings continue.
pub trait Executor: Send + Sync + 'static {
    /// Runs the call.
    fn execute(&self, call: Call) -> impl Future<Output = Outcome> + Send;

    /// Rejects a call that this executor knows it cannot run, before its start is announced.
    fn reject_early(&self, _call: &Call) -> Option<Outcome> {
        None
    }

    /// Returns the outcome of a call that would fail before it changes anything, for explanations.
    ///
    /// It may read, and changes nothing. `None` means that the call would run, as far as the executor
    /// can tell beforehand.
    fn rehearse(&self, _call: Call) -> impl Future<Output = Option<Outcome>> + Send {
        async { None }
    }

    /// Checks whether an external party will run this call and deliver the result later.
    ///
    /// Only an executor that returns true here may suspend a call for its result.
    fn runs_externally(&self, _call: &Call) -> bool {
        false
    }

    /// Finds out whether an earlier attempt took effect, after its process was lost.
    fn reconcile(
        &self,
        _call: &Call,
        _key: IdempotencyKey,
    ) -> impl Future<Output = ReconciledAttempt> + Send {
        // Fail closed: an executor that cannot tell must not make a call with an effect run again.
        async { ReconciledAttempt::Unknown }
    }

    /// Runs the call as stacks do. The registry overrides it to save one allocation.
    #[doc(hidden)]
    fn execute_boxed(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome>
    where
        Self: Sized,
    {
        Box::pin(async move { Executor::execute(&*self, call).await })
    }

    /// Returns the tools this executor knows, if it has a list; a stack checks its matchers against
    /// it.
    fn known_tools(&self) -> Option<Vec<Arc<ToolEntry>>> {
        None
    }
}

/// The fate of an attempt whose process was lost.
#[derive(Debug, Clone)]
pub enum ReconciledAttempt {
    /// It took effect; this is its result.
    Happened(ToolOutput),
    /// It did not take effect and may be run.
    DidNotHappen,
    /// The outcome is unknown.
    Unknown,
}

/// The object-safe form of [`Executor`] that registries and stacks store.
pub(crate) trait DynExecutor: Send + Sync {
    fn execute(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome>;
    fn reject_early(&self, call: &Call) -> Option<Outcome>;
    fn rehearse(&self, call: Call) -> BoxFuture<'_, Option<Outcome>>;
    fn runs_externally(&self, call: &Call) -> bool;
    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
        key: IdempotencyKey,
    ) -> BoxFuture<'a, ReconciledAttempt>;
    fn known_tools(&self) -> Option<Vec<Arc<ToolEntry>>>;
}

impl<E: Executor> DynExecutor for E {
    fn execute(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        self.execute_boxed(call)
    }
    fn reject_early(&self, call: &Call) -> Option<Outcome> {
        Executor::reject_early(self, call)
    }
    fn rehearse(&self, call: Call) -> BoxFuture<'_, Option<Outcome>> {
        Box::pin(Executor::rehearse(self, call))
    }
    fn runs_externally(&self, call: &Call) -> bool {
        Executor::runs_externally(self, call)
    }
    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
        key: IdempotencyKey,
    ) -> BoxFuture<'a, ReconciledAttempt> {
        Box::pin(Executor::reconcile(self, call, key))
    }
    fn known_tools(&self) -> Option<Vec<Arc<ToolEntry>>> {
        Executor::known_tools(self)
    }
}

/// An executor for tools that the host runs: every call waits for the host's result.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostExecutor;

impl Executor for HostExecutor {
    async fn execute(&self, _call: Call) -> Outcome {
        Outcome::await_result()
    }
    fn runs_externally(&self, _call: &Call) -> bool {
        true
    }
}

/// The tools of a registry in front of another executor, which runs every other call.
pub(super) struct ToolsInFront {
    pub(super) tools: Registry,
    pub(super) behind: Arc<dyn DynExecutor>,
}

impl ToolsInFront {
    fn has_tool_of(&self, call: &Call) -> bool {
        self.tools.get(call.tool.as_str()).is_some()
    }
}

impl Executor for ToolsInFront {
    async fn execute(&self, call: Call) -> Outcome {
        if self.has_tool_of(&call) {
            Executor::execute(&self.tools, call).await
        } else {
            self.behind.clone().execute(call).await
        }
    }

    fn reject_early(&self, call: &Call) -> Option<Outcome> {
        if self.has_tool_of(call) {
            Executor::reject_early(&self.tools, call)
        } else {
            self.behind.reject_early(call)
        }
    }

    async fn rehearse(&self, call: Call) -> Option<Outcome> {
        if self.has_tool_of(&call) {
            Executor::rehearse(&self.tools, call).await
        } else {
            self.behind.rehearse(call).await
        }
    }

    fn runs_externally(&self, call: &Call) -> bool {
        if self.has_tool_of(call) {
            Executor::runs_externally(&self.tools, call)
        } else {
            self.behind.runs_externally(call)
        }
    }

    async fn reconcile(&self, call: &Call, key: IdempotencyKey) -> ReconciledAttempt {
        if self.has_tool_of(call) {
            Executor::reconcile(&self.tools, call, key).await
        } else {
            self.behind.reconcile(call, key).await
        }
    }

    fn known_tools(&self) -> Option<Vec<Arc<ToolEntry>>> {
        let mut known = self.behind.known_tools()?;
        known.retain(|entry| self.tools.get(entry.spec.name.as_str()).is_none());
        known.extend(Executor::known_tools(&self.tools)?);
        Some(known)
    }
}

/// The executor of a tool, as written on events and receipts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExecutorTag {
    /// A function in this process.
    Native,
    /// An MCP server.
    McpServer(Arc<str>),
    /// The program that embeds Toolgate.
    Host,
    /// The model provider itself.
    ProviderNative,
}

impl fmt::Display for ExecutorTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => f.write_str("native"),
            Self::McpServer(name) => write!(f, "mcp_server:{name}"),
            Self::Host => f.write_str("host"),
            Self::ProviderNative => f.write_str("provider_native"),
        }
    }
}

/// An error for text that names no kind of executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an executor: use native, mcp_server:<name>, host or provider_native")]
pub struct UnknownExecutor(String);

impl FromStr for ExecutorTag {
    type Err = UnknownExecutor;
    fn from_str(text: &str) -> Result<Self, UnknownExecutor> {
        match text {
            "native" => Ok(Self::Native),
            "host" => Ok(Self::Host),
            "provider_native" => Ok(Self::ProviderNative),
            text => match text
                .strip_prefix("mcp_server:")
                .filter(|name| !name.is_empty())
            {
                Some(name) => Ok(Self::McpServer(name.into())),
                None => Err(UnknownExecutor(text.chars().take(64).collect())),
            },
        }
    }
}

crate::value::text::serde_as_text!(ExecutorTag);

impl JsonSchema for ExecutorTag {
    fn schema_name() -> Cow<'static, str> {
        "ExecutorTag".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        json_schema!({ "type": "string", "pattern": "^(native|host|provider_native|mcp_server:.+)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_round_trip_as_text_and_reject_other_words() {
        for tag in [
            ExecutorTag::Native,
            ExecutorTag::McpServer("git".into()),
            ExecutorTag::Host,
            ExecutorTag::ProviderNative,
        ] {
            assert_eq!(tag.to_string().parse(), Ok(tag));
        }
        for bad in ["", "mcp_server:", "Native", "shell"] {
            assert!(bad.parse::<ExecutorTag>().is_err(), "{bad}");
        }
    }
}
