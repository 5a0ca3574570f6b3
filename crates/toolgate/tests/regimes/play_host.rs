//! Drives a run as a host does: asks the model, runs the tools, and says what came of it.

use futures::StreamExt;
use toolgate::{
    Delta, Gate, HostStep, Model, ModelError, ModelRequest, Outcome, Reply, Session, Status,
};

use crate::{
    play::Ended,
    scenario::Step,
    stage::{Act, Moment},
    world::World,
};

pub async fn drive(world: &World, session: &Session, step: &Step) -> Ended {
    let mut hosted = match step {
        Step::Run(input, options) => session.host(*input, options(world)).await?,
        Step::Resume(options) => session.host_again(options(world)).await?,
        _ => unreachable!("only these drive a run"),
    };
    loop {
        match hosted.next() {
            HostStep::Ask => {
                let request = hosted.ask(world.model.name()).await?.clone();
                act(world, session, &world.stage.asked());
                if hosted.next() == HostStep::Cancel {
                    continue;
                }
                match reply(&*world.model, &request).await {
                    Ok(reply) => drop(hosted.gate(reply).await?),
                    Err(error) => return hosted.failed(error).await,
                }
            }
            HostStep::Settle => {
                let gates = hosted.gates();
                if let Some((call, outcome)) = run_one(world, session, &gates) {
                    // A host that was stopped while it ran the tool has nothing to say about it.
                    if hosted.next() != HostStep::Cancel {
                        hosted.settle(call, outcome).await?;
                    }
                } else if gates
                    .iter()
                    .any(|gate| matches!(gate, Gate::Ask(_) | Gate::Delegated(_)))
                {
                    act(world, session, &Moment::Waits);
                    if hosted.next() != HostStep::Cancel {
                        return hosted.suspend().await;
                    }
                } else {
                    hosted.settled().await?;
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

/// Runs the first tool that the host may run.
fn run_one(
    world: &World,
    session: &Session,
    gates: &[Gate],
) -> Option<(toolgate::CallId, Outcome)> {
    gates.iter().find_map(|gate| {
        let Gate::Run {
            call,
            tool,
            arguments,
            ..
        } = gate
        else {
            return None;
        };
        act(world, session, &Moment::Runs(tool.to_string()));
        if tool.as_str().starts_with("hang") {
            // Whoever runs a tool keeps its time.
            return Some((*call, Outcome::refused(Status::Timeout, TIMED_OUT)));
        }
        Some((*call, world.deeds.run_as_host(tool.as_str(), arguments)))
    })
}

/// What the model is told of a tool that took too long.
const TIMED_OUT: &str = "the call took longer than 1s and was stopped";

async fn reply(model: &dyn Model, request: &ModelRequest) -> Result<Reply, ModelError> {
    let mut pieces = model.reply(request);
    while let Some(piece) = pieces.next().await {
        if let Delta::Done(reply) = piece? {
            return Ok(*reply);
        }
    }
    unreachable!("the models of the scenarios reply or fail")
}

/// Does what is to be done now. What is said is heard at the host's next step.
fn act(world: &World, session: &Session, moment: &Moment) {
    match world.stage.take(moment) {
        None => {}
        Some(Act::Interrupt) => assert!(session.interrupt(), "a run is under way"),
        Some(Act::Say(text)) => {
            let session = session.clone();
            let mut said = Box::pin(async move { session.say(text).await });
            let waker = futures::task::noop_waker();
            let on_its_way = said
                .as_mut()
                .poll(&mut std::task::Context::from_waker(&waker))
                .is_pending();
            assert!(on_its_way, "nobody has heard it yet");
            tokio::spawn(async move { said.await.expect("is heard") });
        }
    }
}
