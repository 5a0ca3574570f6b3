//! Plays a scenario in either mode: its steps in order, and the result of each.

use std::{pin::pin, time::Duration};

use toolgate::{
    Arguments, Decision, RunReport, Session,
    session::{PendingCall, SessionError},
};

use crate::modes::{
    play_host, play_managed,
    scenario::{ModeScenario, ScenarioDecision, ScenarioStep},
    tools::RunMode,
    transcript::ScenarioTranscript,
    world::ModeWorld,
};

/// The result of a step.
pub type StepResult = Result<RunReport, SessionError>;

/// Plays a scenario to its end and records what happened.
pub async fn play_scenario(scenario: &ModeScenario, mode: RunMode) -> ScenarioTranscript {
    let mut world = ModeWorld::new(scenario, mode);
    let mut session = world.open_session(scenario).await;
    let mut ends: Vec<StepResult> = Vec::new();
    for step in &scenario.steps {
        match step {
            ScenarioStep::Run(..) | ScenarioStep::Resume(_) => {
                let clock = scenario.ticking.then(|| world.clock.clone());
                let ended = match mode {
                    RunMode::Managed => {
                        run_with_clock(
                            clock,
                            play_managed::drive_managed(&mut world, &session, step),
                        )
                        .await
                    }
                    RunMode::HostDriven => {
                        run_with_clock(clock, play_host::drive_as_host(&world, &session, step))
                            .await
                    }
                };
                ends.push(ended);
            }
            ScenarioStep::Decide(at, ruling) => {
                decide_pending(&session, pending_call(&ends, *at), ruling).await
            }
            ScenarioStep::Pass(span) => world.clock.advance(*span),
            ScenarioStep::Stop => {
                let turn = pending_call(&ends, 0).turn;
                let desk = toolgate::approval::ApprovalService::new(world.store.clone())
                    .clock(world.clock.clone());
                assert!(
                    desk.interrupt_turn(turn, "not wanted any more")
                        .await
                        .expect("is stored"),
                    "there is such a turn"
                );
            }
            ScenarioStep::Lose => {
                drop(session);
                session = world.open_session(scenario).await;
            }
        }
    }
    assert!(world.stage.is_over(), "every planned act has happened");
    ScenarioTranscript::load(&world, &ends).await
}

/// Returns the pending call of the last run at this position.
fn pending_call(ends: &[StepResult], at: usize) -> &PendingCall {
    let report = ends
        .last()
        .and_then(|ended| ended.as_ref().ok())
        .expect("a run has ended");
    &report.pending[at]
}

async fn decide_pending(session: &Session, pending: &PendingCall, ruling: &ScenarioDecision) {
    let question = pending
        .question
        .as_deref()
        .expect("an approval is requested");
    let decision = match ruling {
        ScenarioDecision::Approve => Decision::approve("ann"),
        ScenarioDecision::Deny(reason) => Decision::deny("ann", *reason),
        ScenarioDecision::Edit(arguments) => Decision::approve_with_edits(
            "ann",
            Arguments::try_from(arguments.clone()).expect("an object"),
        ),
    };
    session
        .decide(question, decision)
        .await
        .expect("is accepted");
}

/// Advances the clock while `work` runs, if a clock is given.
async fn run_with_clock<T>(
    clock: Option<toolgate_testkit::TestClock>,
    work: impl Future<Output = T>,
) -> T {
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
