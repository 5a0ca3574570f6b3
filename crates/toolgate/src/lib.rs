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
//! 5. [Keep everything](guide::keep_everything): a [`store`] on disk, one driver per session, recovery after a loss.
//! 6. [Ask people](guide::ask_people): [`Approvals`], signed tokens, quorums, standing rules, diffs, messages.
//! 7. [Keep receipts](guide::keep_receipts): the [`layers::Ledger`], checkpoints, verification, export.
//! 8. [Run an agent](guide::run_an_agent): a [`Session`] asks a model and runs what it asks for; [`Agent`]s, limits, forms.
//! 9. Models of providers, scripts and recordings: [`models`].
//! 10. [Sessions and regimes](guide::sessions_and_regimes): a host drives ([`Hosted`]), or is handed [`ArmedTool`]s.
//! 11. [Budgets](guide::budgets): [`Budgets`] reserved in the store, [`Prices`], alerts.
//! 12. [Give it skills](guide::skills): [`Skills`] from folders, loaded when they help.
//! 13. [Work over a large context](guide::recursive_strategy): [`Recursive`] over [`Documents`] of any size.
//!
//! `use toolgate::prelude::*` brings the names that a program usually needs.

pub use toolgate_core::*;
/// The bundled layers, the default stack, its linter, explanations and configuration.
pub use toolgate_layers as layers;
pub use toolgate_layers::{
    Config, ConfigError, Parts, SharedRedactor, default_stack, explain, lint,
};
pub use toolgate_macros::tool;
/// Approvals that travel in messages, for hosts that keep nothing between two requests.
pub mod messages {
    pub use toolgate_runtime::{
        MalformedResponse, MessageError, ToolApprovalRequest, ToolApprovalResponse,
        append_approval_response, apply_approval_responses, approval_requests, approval_responses,
        suspended_messages,
    };
}
/// Models: providers, a scripted one, recording and replaying.
pub use toolgate_models as models;
pub use toolgate_runtime::{
    Agent, Approvals, ArmedError, ArmedOutcome, ArmedTool, Attached, Bus, CallFound, CallResult,
    DecideOn, Delivery, DispatchError, Dispatcher, DispatcherBuilder, Follow, FoundCall, Gate,
    HostStep, Hosted, Inbox, InboxApprover, Input, Journal, JournalError, OnCap, OnFailure, Onward,
    Pending, Piece, PostError, Recovery, Round, RunError, RunOptions, RunReport, RunStream,
    Session, SessionBuildError, SessionBuilder, SessionError, ShownApproval, Strategy,
    StrategyError, Subscription, SystemClock, TimeOrderedIds, TurnEnd, TurnFound, TurnHandle,
    TurnReport, TurnRequest, TurnRun, Turned, Update, Urgency,
};
pub use toolgate_runtime::{
    Choice, Hold, Paid, Patience, Retrying, RouteRule, Router, Routing, RoutingDecision,
    RoutingError, RoutingHook, Spending,
};
pub use toolgate_runtime::{
    Document, DocumentError, Documents, FoundSkills, Recursive, RecursiveBuilder, RecursiveLimits,
    ReferenceError, Skill, SkillError, SkillFault, SkillFile, SkillProblem, Skills,
};
#[cfg(unix)]
pub use toolgate_runtime::{KeyFile, KeyFileError, ListedKey};
/// Where sessions, approvals and receipts are kept: SQLite, PostgreSQL, memory.
pub use toolgate_store as store;

/// The names that a program usually needs.
pub mod prelude {
    pub use toolgate_core::{
        Annotations, ApprovalRequest, Approver, Arguments, Band, Call, Context, Decision, Event,
        HookAction, Hooks, Json, Layer, LayerExt, LayerName, LogLevel, Matcher, MemoryStore,
        Message, Model, Next, Outcome, PostCode, Progress, Question, RedactionFailed, Redactor,
        Registry, RunEnd, Schema, SideEffect, Stack, Status, Suspension, Tool, ToolError,
        ToolEvent, ToolOutput, ToolRequest, ToolSpec, Transform, Verdict, View, after, around,
        before, from_fn, map_call, map_outcome, observe, on_error, tool_fn, typed,
    };
    pub use toolgate_macros::tool;
    pub use toolgate_runtime::{
        Bus, Delivery, Dispatcher, RunOptions, RunReport, Session, TurnEnd, TurnReport,
        TurnRequest, Update,
    };
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
    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../../docs/guide/05-keep-everything.md")]
    pub mod keep_everything {}
    #[cfg(all(unix, feature = "sqlite"))]
    #[doc = include_str!("../../../docs/guide/06-ask-people.md")]
    pub mod ask_people {}
    #[doc = include_str!("../../../docs/guide/07-keep-receipts.md")]
    pub mod keep_receipts {}
    #[doc = include_str!("../../../docs/guide/08-run-an-agent.md")]
    pub mod run_an_agent {}
    #[cfg(feature = "http")]
    #[doc = include_str!("../../../docs/guide/09-models.md")]
    pub mod models {}
    #[doc = include_str!("../../../docs/guide/10-sessions-and-regimes.md")]
    pub mod sessions_and_regimes {}
    #[doc = include_str!("../../../docs/guide/11-budgets.md")]
    pub mod budgets {}
    #[doc = include_str!("../../../docs/guide/12-skills.md")]
    pub mod skills {}
    #[doc = include_str!("../../../docs/guide/13-recursive-strategy.md")]
    pub mod recursive_strategy {}
}

/// What the code written by `#[tool]` names. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;
    pub use toolgate_core;
}
