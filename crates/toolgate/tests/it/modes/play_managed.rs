//! Plays a run in managed mode, and performs the acts of the scenario meanwhile.

use std::pin::pin;

use futures::{FutureExt, future::BoxFuture};
use toolgate::{Session, event::BusDelivery};

use crate::modes::{
    play::StepResult,
    scenario::ScenarioStep,
    stage::{ActCue, ActMoment, UserAct},
    world::ModeWorld,
};

pub async fn drive_managed(
    world: &mut ModeWorld,
    session: &Session,
    step: &ScenarioStep,
) -> StepResult {
    let run: BoxFuture<'_, StepResult> = match step {
        ScenarioStep::Run(input, options) => session.run_with(*input, options(world)).boxed(),
        ScenarioStep::Resume(options) => session.resume_with(options(world)).boxed(),
        _ => unreachable!("only these drive a run"),
    };
    let mut run = pin!(run);
    let mut events = session.bus().subscribe();
    loop {
        tokio::select! {
            biased;
            Some(delivery) = events.next() => {
                let waits = matches!(&delivery, BusDelivery::Event(event) if event.name() == "tool_approval_requested");
                if waits && let Some(UserAct::Interrupt) = world.stage.take_act(&ActMoment::Waits) {
                    assert!(session.interrupt(), "a run is under way");
                }
            }
            ended = &mut run => return ended,
            Some(cue) = world.cues.recv() => perform_act(session, cue).await,
        }
    }
}

/// Performs an act.
async fn perform_act(session: &Session, cue: ActCue) {
    let ActCue { act, at, go_on } = cue;
    match (act, at) {
        // An interrupted call does not continue.
        (UserAct::Interrupt, _) => assert!(session.interrupt(), "a run is under way"),
        (UserAct::Say(text), at) => {
            let session = session.clone();
            let mut said = Box::pin(async move { session.send_message(text).await });
            // From here on the message is on its way.
            assert!(
                futures::poll!(&mut said).is_pending(),
                "it is not delivered yet"
            );
            tokio::spawn(async move {
                match at {
                    // It is delivered once the model has replied.
                    ActMoment::Asked(_) => {
                        let _ = go_on.send(());
                        said.await.expect("is delivered");
                    }
                    ActMoment::Runs(_) | ActMoment::Waits => {
                        said.await.expect("is delivered");
                        let _ = go_on.send(());
                    }
                }
            });
        }
    }
}
