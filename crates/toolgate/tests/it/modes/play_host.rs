//! Plays a run in host-driven mode: asks the model, executes the tools, and delivers the results.

use futures::StreamExt;
use toolgate::{
    Model, Outcome, Session,
    model::{Delta, ModelError, ModelRequest, Reply},
    session::{HostAction, HostCall, HostStep},
    stack::Failure,
};

use crate::modes::{
    play::StepResult,
    scenario::ScenarioStep,
    stage::{ActMoment, UserAct},
    world::ModeWorld,
};

pub async fn drive_as_host(
    world: &ModeWorld,
    session: &Session,
    step: &ScenarioStep,
) -> StepResult {
    let mut hosted = match step {
        ScenarioStep::Run(input, options) => session.begin_hosted(*input, options(world)).await?,
        ScenarioStep::Resume(options) => session.resume_hosted(options(world)).await?,
        _ => unreachable!("only these drive a run"),
    };
    loop {
        match hosted.next_step() {
            HostStep::Ask => {
                let request = hosted.begin_iteration(world.model.name()).await?.clone();
                perform_act(world, session, &world.stage.request_moment());
                if hosted.next_step() == HostStep::Cancel {
                    continue;
                }
                match collect_reply(&*world.model, &request).await {
                    Ok(reply) => drop(hosted.submit_reply(reply).await?),
                    Err(error) => return hosted.model_failed(error).await,
                }
            }
            HostStep::Settle => {
                let gates = hosted.call_actions();
                if let Some((call, outcome)) = run_one(world, session, &gates) {
                    // A host that was interrupted while it executed the tool reports nothing.
                    if hosted.next_step() != HostStep::Cancel {
                        hosted.deliver_result(call, outcome).await?;
                    }
                } else if gates
                    .iter()
                    .any(|gate| matches!(gate, HostAction::Ask { .. } | HostAction::Delegated(_)))
                {
                    perform_act(world, session, &ActMoment::Waits);
                    if hosted.next_step() != HostStep::Cancel {
                        return hosted.suspend().await;
                    }
                } else {
                    hosted.end_iteration().await?;
                }
            }
            HostStep::Finish => match hosted.finish().await? {
                Ok(report) => return Ok(report),
                Err(again) => hosted = again,
            },
            HostStep::Cancel => return hosted.cancel().await,
        }
    }
}

/// Executes the first tool that the host may execute.
fn run_one(
    world: &ModeWorld,
    session: &Session,
    gates: &[HostAction],
) -> Option<(toolgate::value::CallId, Outcome)> {
    gates.iter().find_map(|gate| {
        let HostAction::Run(HostCall {
            call,
            tool,
            arguments,
            ..
        }) = gate
        else {
            return None;
        };
        perform_act(world, session, &ActMoment::Runs(tool.to_string()));
        if tool.as_str().starts_with("hang") {
            // The host enforces the timeout of the tools that it executes.
            return Some((*call, Outcome::failed_with(Failure::Timeout, TIMED_OUT)));
        }
        Some((*call, world.deeds.run_as_host(tool.as_str(), arguments)))
    })
}

/// The text for the model about a tool that timed out.
const TIMED_OUT: &str = "the call took longer than 1s and was stopped";

async fn collect_reply(model: &dyn Model, request: &ModelRequest) -> Result<Reply, ModelError> {
    let mut pieces = model.reply(request);
    while let Some(piece) = pieces.next().await {
        if let Delta::Done(reply) = piece? {
            return Ok(*reply);
        }
    }
    unreachable!("the models of the scenarios reply or fail")
}

/// Performs the act of this moment. A message is delivered at the host's next step.
fn perform_act(world: &ModeWorld, session: &Session, moment: &ActMoment) {
    match world.stage.take_act(moment) {
        None => {}
        Some(UserAct::Interrupt) => assert!(session.interrupt(), "a run is under way"),
        Some(UserAct::Say(text)) => {
            let session = session.clone();
            let mut said = Box::pin(async move { session.send_message(text).await });
            let waker = futures::task::noop_waker();
            let on_its_way = said
                .as_mut()
                .poll(&mut std::task::Context::from_waker(&waker))
                .is_pending();
            assert!(on_its_way, "it is not delivered yet");
            tokio::spawn(async move { said.await.expect("is delivered") });
        }
    }
}
