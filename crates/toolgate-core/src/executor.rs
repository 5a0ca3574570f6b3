//! Whatever finally runs a call: in process, an MCP server, the host, the provider.

use std::{borrow::Cow, fmt, future::Future, str::FromStr, sync::Arc};

use futures::future::BoxFuture;
use schemars::{JsonSchema, json_schema};

use crate::{Call, IdempotencyKey, Outcome, ToolEntry, ToolOutput};

/// Runs calls that have passed every layer.
///
/// An executor is called at most once per attempt. It does not panic on purpose, but if it does, that
/// call settles as `exception` and its siblings go on.
pub trait Executor: Send + Sync + 'static {
    /// Runs the call.
    fn execute(&self, call: Call) -> impl Future<Output = Outcome> + Send;

    /// Refuses a call that this executor knows it cannot run, before it is said to start.
    fn refuse(&self, _call: &Call) -> Option<Outcome> {
        None
    }

    /// Whether something outside will run this call and deliver the result later.
    ///
    /// Only an executor that says so may answer with a suspension for a result.
    fn runs_outside(&self, _call: &Call) -> bool {
        false
    }

    /// Finds out whether an earlier attempt took effect, after the process was lost in between.
    fn reconcile(
        &self,
        _call: &Call,
        _key: IdempotencyKey,
    ) -> impl Future<Output = Reconciled> + Send {
        async { Reconciled::Unknown }
    }

    /// [`Executor::execute`] as stacks call it. The registry only passes calls on, and saves itself a box here.
    #[doc(hidden)]
    fn execute_boxed(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome>
    where
        Self: Sized,
    {
        Box::pin(async move { Executor::execute(&*self, call).await })
    }

    /// The tools this executor knows, if it has a list; a stack checks its matchers against it.
    fn tools(&self) -> Option<Vec<Arc<ToolEntry>>> {
        None
    }
}

/// What became of an attempt whose process was lost.
#[derive(Debug, Clone)]
pub enum Reconciled {
    /// It took effect; this is its result.
    Happened(ToolOutput),
    /// It did not take effect and may be run.
    DidNotHappen,
    /// Nobody can tell.
    Unknown,
}

/// [`Executor`] as it is kept in registries and stacks.
pub(crate) trait DynExecutor: Send + Sync {
    fn execute(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome>;
    fn refuse(&self, call: &Call) -> Option<Outcome>;
    fn runs_outside(&self, call: &Call) -> bool;
    fn reconcile<'a>(&'a self, call: &'a Call, key: IdempotencyKey) -> BoxFuture<'a, Reconciled>;
    fn tools(&self) -> Option<Vec<Arc<ToolEntry>>>;
}

impl<E: Executor> DynExecutor for E {
    fn execute(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        self.execute_boxed(call)
    }
    fn refuse(&self, call: &Call) -> Option<Outcome> {
        Executor::refuse(self, call)
    }
    fn runs_outside(&self, call: &Call) -> bool {
        Executor::runs_outside(self, call)
    }
    fn reconcile<'a>(&'a self, call: &'a Call, key: IdempotencyKey) -> BoxFuture<'a, Reconciled> {
        Box::pin(Executor::reconcile(self, call, key))
    }
    fn tools(&self) -> Option<Vec<Arc<ToolEntry>>> {
        Executor::tools(self)
    }
}

/// An executor for tools that the host runs: every call waits for the host's result.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostExecutor;

impl Executor for HostExecutor {
    async fn execute(&self, _call: Call) -> Outcome {
        Outcome::await_result()
    }
    fn runs_outside(&self, _call: &Call) -> bool {
        true
    }
}

/// Who runs a tool, as it is written on events and receipts.
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

/// The text names no kind of executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no executor: native, mcp_server:<name>, host or provider_native")]
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

crate::text::serde_as_text!(ExecutorTag);

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
    fn tags_round_trip_as_text_and_refuse_other_words() {
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
