//! Lets Toolgate drive a run, and does meanwhile what the scenario wants.

use std::pin::pin;

use futures::{FutureExt, future::BoxFuture};
use toolgate::{Delivery, Session};

use crate::{
    play::Ended,
    scenario::Step,
    stage::{Act, Cue, Moment},
    world::World,
};

pub async fn drive(world: &mut World, session: &Session, step: &Step) -> Ended {
    let run: BoxFuture<'_, Ended> = match step {
        Step::Run(input, options) => session.run_with(*input, options(world)).boxed(),
        Step::Resume(options) => session.resume_with(options(world)).boxed(),
        _ => unreachable!("only these drive a run"),
    };
    let (mut run, mut events) = (pin!(run), session.bus().subscribe());
    loop {
        tokio::select! {
            biased;
            Some(delivery) = events.next() => {
                let waits = matches!(&delivery, Delivery::Event(event) if event.name() == "tool_approval_requested");
                if waits && let Some(Act::Interrupt) = world.stage.take(&Moment::Waits) {
                    assert!(session.interrupt(), "a run is under way");
                }
            }
            ended = &mut run => return ended,
            Some(cue) = world.cues.recv() => act(session, cue).await,
        }
    }
}

/// Does what is to be done now.
async fn act(session: &Session, cue: Cue) {
    let Cue { act, at, go_on } = cue;
    match (act, at) {
        // Whoever was stopped does not go on.
        (Act::Interrupt, _) => assert!(session.interrupt(), "a run is under way"),
        (Act::Say(text), at) => {
            let session = session.clone();
            let mut said = Box::pin(async move { session.say(text).await });
            // From here on it is on its way.
            assert!(
                futures::poll!(&mut said).is_pending(),
                "nobody has heard it yet"
            );
            tokio::spawn(async move {
                match at {
                    // It is heard once the model has replied.
                    Moment::Asked(_) => {
                        let _ = go_on.send(());
                        said.await.expect("is heard");
                    }
                    Moment::Runs(_) | Moment::Waits => {
                        said.await.expect("is heard");
                        let _ = go_on.send(());
                    }
                }
            });
        }
    }
}
