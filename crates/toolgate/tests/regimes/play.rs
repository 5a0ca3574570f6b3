//! Plays a scenario, whoever drives: steps one after the other, and what each of them led to.

use std::{pin::pin, time::Duration};

use toolgate::{Arguments, Decision, Pending, RunReport, Session, SessionError};

use crate::{
    play_core, play_host,
    scenario::{Ruling, Scenario, Step},
    tools::Regime,
    transcript::Transcript,
    world::World,
};

/// What a step led to.
pub type Ended = Result<RunReport, SessionError>;

/// Plays a scenario to its end and writes down what happened.
pub async fn play(scenario: &Scenario, regime: Regime) -> Transcript {
    let mut world = World::new(scenario, regime);
    let mut session = world.process(scenario).await;
    let mut ends: Vec<Ended> = Vec::new();
    for step in &scenario.steps {
        match step {
            Step::Run(..) | Step::Resume(_) => {
                let clock = scenario.ticking.then(|| world.clock.clone());
                let ended = match regime {
                    Regime::Core => tick(clock, play_core::drive(&mut world, &session, step)).await,
                    Regime::Host => tick(clock, play_host::drive(&world, &session, step)).await,
                };
                ends.push(ended);
            }
            Step::Decide(at, ruling) => decide(&session, pending(&ends, *at), ruling).await,
            Step::Pass(span) => world.clock.advance(*span),
            Step::Stop => {
                let turn = pending(&ends, 0).turn;
                let desk = toolgate::Approvals::new(world.store.clone()).clock(world.clock.clone());
                assert!(
                    desk.interrupt(turn, "not wanted any more")
                        .await
                        .expect("is kept"),
                    "there is such a turn"
                );
            }
            Step::Lose => {
                drop(session);
                session = world.process(scenario).await;
            }
        }
    }
    assert!(
        world.stage.is_over(),
        "everything happened that was to happen"
    );
    Transcript::of(&world, &ends).await
}

/// The so-manieth call that the last run left waiting.
fn pending(ends: &[Ended], at: usize) -> &Pending {
    let report = ends
        .last()
        .and_then(|ended| ended.as_ref().ok())
        .expect("a run has ended");
    &report.pending[at]
}

async fn decide(session: &Session, pending: &Pending, ruling: &Ruling) {
    let question = pending.question.as_deref().expect("somebody is asked");
    let decision = match ruling {
        Ruling::Approve => Decision::approve("ann"),
        Ruling::Deny(reason) => Decision::deny("ann", *reason),
        Ruling::Edit(arguments) => Decision::approve_with_edits(
            "ann",
            Arguments::try_from(arguments.clone()).expect("an object"),
        ),
    };
    session.decide(question, decision).await.expect("is taken");
}

/// Lets time pass while something is under way, if it is to.
async fn tick<T>(clock: Option<toolgate_testkit::TestClock>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let Some(clock) = clock else {
        return work.await;
    };
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::task::yield_now() => clock.advance(Duration::from_millis(50)),
        }
    }
}
