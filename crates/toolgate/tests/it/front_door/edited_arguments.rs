//! After an approval with edits, the events carry what runs, and the approver's reason.

use futures::StreamExt;
use serde_json::json;
use toolgate::{
    Decision, Gate, RunEnd,
    event::ToolEvent,
    model::{ScriptLine, ScriptedModel},
    prelude::*,
    session::{RunOptions, RunUpdate},
    value::Arguments,
};

/// Sends a letter.
#[tool(side_effect = "network")]
async fn send(to: String) -> String {
    format!("sent to {to}")
}

#[tokio::test]
async fn the_events_of_an_edited_call_carry_the_arguments_that_run_and_the_reason() {
    for edited in [None, Some(json!({ "to": "bob" }))] {
        let gate = Gate::in_memory().expect("builds");
        let gate = gate.tool(send).expect("registered");
        let model = ScriptedModel::new([
            ScriptLine::new().call("send", json!({ "to": "bert" })),
            ScriptLine::new().say("Done."),
        ]);
        let session = gate.session(model).await.expect("opens");
        let report = session.run("Write to Bob.").await.expect("runs");
        let request = report.pending[0].question.as_deref().expect("asks");
        let decision = match edited.clone() {
            Some(edited) => {
                let arguments = Arguments::parse(&edited.to_string()).expect("an object");
                Decision::approve_with_edits("ann", arguments)
            }
            None => Decision::approve("ann"),
        };
        let decision = decision.with_approval_reason("a typo");
        let mut updates = session.resume_stream(RunOptions::new());
        let mut seen = Vec::new();
        // The first resume ends as suspended again: the decision comes after it.
        while let Some(update) = updates.next().await {
            if let RunUpdate::End(report) = update {
                assert_eq!(report.expect("runs").end, RunEnd::Suspended);
            }
        }
        session.decide(request, decision).await.expect("decided");
        let mut updates = session.resume_stream(RunOptions::new());
        while let Some(update) = updates.next().await {
            if let RunUpdate::Event(event) = update
                && let Some((_, event)) = event.as_tool()
            {
                seen.push(event.clone());
            }
        }
        let approved = seen.iter().find_map(|event| match event {
            ToolEvent::ToolApproved { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        assert_eq!(approved, Some(Some("a typo".to_owned())));
        let ran = seen.iter().find_map(|event| match event {
            ToolEvent::ToolExecutionStarted { arguments, .. } => Some(arguments.clone()),
            _ => None,
        });
        let ran = ran.expect("it ran").map(|ran| ran.as_value().clone());
        assert_eq!(ran, edited);
    }
}
