#![doc = include_str!("../../../README.md")]
//!
//! ---
//!
//! # The guided tour
//!
//! This is the one crate to add; everything here comes from the others.
//!
//! 1. [Write a tool](guide::write_a_tool): [`tool`] on an async function, [`tool_fn`] for a closure, or [`Tool`].
//! 2. [Write a layer](guide::write_a_layer): [`Layer`], [`from_fn`] and the sugar around it; a [`Stack`] puts them in order.
//! 3. [Watch events](guide::watch_events): a [`Dispatcher`] runs a turn and publishes what happens on its [`Bus`].
//! 4. [Configure a stack](guide::configure_a_stack): [`default_stack`] and the bundled [`layers`], a [`Config`] file,
//!    [`lint()`] and [`explain()`].
//!
//! `use toolgate::prelude::*` brings the names that a program usually needs.

pub use toolgate_core::*;
/// The bundled layers, the default stack, its linter, explanations and configuration.
pub use toolgate_layers as layers;
pub use toolgate_layers::{Config, ConfigError, Parts, SharedRedactor, default_stack, explain, lint};
pub use toolgate_macros::tool;
/// Approvals that travel in messages, for hosts that keep nothing between two requests.
pub mod messages {
    pub use toolgate_runtime::{
        MalformedResponse, MessageError, ToolApprovalRequest, ToolApprovalResponse, append_approval_response,
        apply_approval_responses, approval_requests, approval_responses, suspended_messages,
    };
}
pub use toolgate_runtime::{
    Approvals, Attached, Bus, CallResult, DecideOn, Delivery, DispatchError, Dispatcher, DispatcherBuilder, Follow,
    Inbox, InboxApprover, Journal, JournalError, OnFailure, PostError, ShownApproval, Subscription, SystemClock,
    TimeOrderedIds, TurnEnd, TurnHandle, TurnReport, TurnRequest, TurnRun, Urgency,
};
#[cfg(unix)]
pub use toolgate_runtime::{KeyFile, KeyFileError, ListedKey};

/// The names that a program usually needs.
pub mod prelude {
    pub use toolgate_core::{
        Annotations, ApprovalRequest, Approver, Arguments, Band, Call, Context, Decision, Event, HookAction, Hooks,
        Json, Layer, LayerExt, LayerName, LogLevel, Matcher, MemoryStore, Next, Outcome, PostCode, Progress, Question,
        RedactionFailed, Redactor, Registry, Schema, SideEffect, Stack, Status, Suspension, Tool, ToolError, ToolEvent,
        ToolOutput, ToolRequest, ToolSpec, Transform, Verdict, View, after, around, before, from_fn, map_call,
        map_outcome, observe, on_error, tool_fn, typed,
    };
    pub use toolgate_macros::tool;
    pub use toolgate_runtime::{Bus, Delivery, Dispatcher, TurnEnd, TurnReport, TurnRequest};
}

/// The chapters of the guide, with their snippets as tests.
pub mod guide {
    #[doc = include_str!("../../../docs/guide/01-write-a-tool.md")]
    pub mod write_a_tool {}
    #[doc = include_str!("../../../docs/guide/02-write-a-layer.md")]
    pub mod write_a_layer {}
    #[doc = include_str!("../../../docs/guide/03-watch-events.md")]
    pub mod watch_events {}
    #[doc = include_str!("../../../docs/guide/04-configure-a-stack.md")]
    pub mod configure_a_stack {}
}

/// What the code written by `#[tool]` names. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;
    pub use toolgate_core;
}
