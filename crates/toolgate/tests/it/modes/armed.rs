//! Tools for a host with its own loop: each call passes the gate, and strategies are asked as in a
//! run.

use serde_json::{Value, json};
use toolgate::{
    Decision, Registry, Session, Status,
    model::ScriptLine,
    session::{
        ArmedError, ArmedOutcome, ArmedTool, ArmedTools, RunOptions, Skill, Skills, StrategyAction,
    },
    stack::ToolRequest,
};

use crate::modes::{
    parity::receipt_fields, scenario::ModeScenario, tools::RunMode, transcript::ScenarioTranscript,
    world::ModeWorld,
};

/// Opens a session that does not wait for answers, and one of its tools.
async fn open_armed(
    world: &ModeWorld,
    scenario: &ModeScenario,
    tool: &str,
) -> (Session, ArmedTool) {
    let session = world.open_session(scenario).await;
    let armed = session.arm_tools(RunOptions::new()).await.expect("armed");
    let tool = armed
        .tools()
        .into_iter()
        .find(|armed| armed.spec().name == tool)
        .expect("there is one");
    (session, tool)
}

fn silent_scenario() -> ModeScenario {
    ModeScenario::with_lines(Vec::<ScriptLine>::new())
}

#[tokio::test]
async fn an_armed_tool_runs_or_is_blocked_or_corrected_like_any_call() {
    let scenario = silent_scenario().config(
        "rules = [{ name = 'shut', effect = 'deny', tool = 'note', reason = 'it is late' }]\n",
    );
    let world = ModeWorld::new(&scenario, RunMode::Managed);
    let (session, look) = open_armed(&world, &scenario, "look").await;
    let good: ArmedOutcome = look.call("a", "{}").await.expect("runs");
    assert_eq!((good.status, good.text.as_str()), (Status::Ok, "seen"));
    let armed = session.arm_tools(RunOptions::new()).await.expect("armed");
    let tools = armed.tools();
    let of = |name: &str| {
        tools
            .iter()
            .find(|tool| tool.spec().name == name)
            .expect("there is one")
    };
    let refused = of("note")
        .call("b", &json!({ "text": "x" }).to_string())
        .await
        .expect("a result");
    assert_eq!(
        (refused.status, refused.text.contains("it is late")),
        (Status::Blocked, true)
    );
    for broken in ["", "[]", "{\"path\":1}", "{\"path\":"] {
        let told = of("read").call("c", broken).await.expect("a result");
        assert_eq!(told.status, Status::SchemaViolation, "{broken}");
    }
    assert_eq!(world.deeds.sorted_effects(), ["look{}"]);
    let events = world
        .store
        .events(world.session, 0, usize::MAX)
        .await
        .expect("reads");
    let summary = toolgate_testkit::LifecycleChecker::check_all(events.iter().map(AsRef::as_ref))
        .expect("legal");
    assert_eq!(
        (summary.settled_turns, summary.open.len()),
        (6, 0),
        "each call is a turn of its own"
    );
}

#[tokio::test]
async fn an_armed_call_that_needs_an_approval_reports_it_and_can_be_decided() {
    let scenario = silent_scenario();
    let world = ModeWorld::new(&scenario, RunMode::Managed);
    let (session, pay) = open_armed(&world, &scenario, "ask_pay").await;
    let Err(ArmedError::Suspended(pending)) = pay.call("a", r#"{"amount":5}"#).await else {
        panic!("no approval was requested")
    };
    let question = pending
        .question
        .as_deref()
        .expect("an approval is requested");
    session
        .decide(question, Decision::approve("ann"))
        .await
        .expect("is accepted");
    assert!(
        world.deeds.sorted_effects().is_empty(),
        "not before its turn is resumed"
    );
    assert_eq!(&*pending.call_id, "a");
    let armed = session.arm_tools(RunOptions::new()).await.expect("armed");
    let turn = armed.resume_turn(pending.turn).await.expect("resumes");
    assert_eq!(turn.report.results[0].status(), Some(Status::Ok));
    assert_eq!(world.deeds.sorted_effects(), [r#"ask_pay{"amount":5}"#]);
}

#[tokio::test]
async fn armed_tools_wait_where_the_session_does() {
    let scenario = silent_scenario().setup(|_, builder| builder.wait_for_answers());
    let world = ModeWorld::new(&scenario, RunMode::Managed);
    let (session, pay) = open_armed(&world, &scenario, "ask_pay").await;
    let mut events = session.bus().subscribe();
    let denied = async {
        while let Some(delivery) = events.next().await {
            let toolgate::event::BusDelivery::Event(event) = delivery else {
                continue;
            };
            if let Some((_, toolgate::event::ToolEvent::ToolApprovalRequested(request))) =
                event.as_tool()
            {
                return session
                    .decide(&**request, Decision::deny("ann", Some("no")))
                    .await
                    .expect("is accepted");
            }
        }
        panic!("no approval was requested")
    };
    let (told, _) = tokio::join!(pay.call("a", r#"{"amount":5}"#), denied);
    let told = told.expect("a result");
    assert_eq!(
        (told.status, told.text.as_str()),
        (Status::Denied, "Tool execution denied: no")
    );
}

/// Returns a skill that lists the tools `look` and `read`. Until it is loaded, `read` is held back;
/// afterwards everything else is.
fn looking_skill() -> (tempfile::TempDir, Skills) {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path().join("looking");
    std::fs::create_dir_all(&folder).expect("is created");
    let text = "---\nname: looking\ndescription: Looks.\nallowed-tools: look read\n---\nLook.\n";
    std::fs::write(folder.join(Skill::FILE), text).expect("is written");
    let skills = Skills::discover([dir.path()]).skills;
    (dir, skills.hold_back(["read"]).narrowing())
}

fn skill_options(skills: &Skills) -> RunOptions {
    let registry = Registry::new();
    skills.install(&registry).expect("free");
    RunOptions::new().tools(registry)
}

fn with_skills(skills: &Skills, lines: Vec<ScriptLine>) -> ModeScenario {
    let skills = skills.clone();
    ModeScenario::with_lines(lines).setup(move |_, builder| builder.strategy(skills.clone()))
}

/// The calls of two model messages.
fn two_messages() -> [Vec<(&'static str, Value)>; 2] {
    let load = vec![("load_skill", json!({ "name": "looking" }))];
    let work = vec![
        ("look", json!({})),
        ("read", json!({ "path": "a" })),
        ("note", json!({ "text": "b" })),
    ];
    [load, work]
}

/// Returns the calls as a scripted model labels those of its reply `number`.
fn to_requests(number: usize, calls: Vec<(&'static str, Value)>) -> Vec<ToolRequest> {
    let label = |at| format!("call_{number}_{at}");
    let calls = calls.into_iter().enumerate();
    calls
        .map(|(at, (tool, arguments))| ToolRequest::from_json(&label(at), tool, arguments))
        .collect()
}

fn tool_names(armed: &ArmedTools) -> Vec<String> {
    let names = armed.view().specs().map(|spec| spec.name.to_string());
    let wanted = ["look", "note", "read"];
    names
        .filter(|name| wanted.contains(&name.as_str()))
        .collect()
}

#[tokio::test]
async fn armed_tools_are_those_that_the_strategies_show() {
    let (_dir, skills) = looking_skill();
    let scenario = with_skills(&skills, Vec::new());
    let world = ModeWorld::new(&scenario, RunMode::Managed);
    let session = world.open_session(&scenario).await;
    let mut armed = session
        .arm_tools(skill_options(&skills))
        .await
        .expect("armed");
    assert_eq!(tool_names(&armed), ["look", "note"], "`read` is held back");
    assert!(
        armed
            .instructions()
            .is_some_and(|text| text.contains("looking"))
    );
    let held_back = ToolRequest::from_json("a", "read", json!({ "path": "a" }));
    let turn = armed.call_all(vec![held_back]).await.expect("a turn");
    assert_eq!(turn.report.results[0].status(), Some(Status::ToolNotFound));
    let fixed = armed.tools();
    let note = fixed.iter().find(|tool| tool.spec().name == "note");

    let [load, _] = two_messages();
    let turn = armed.call_all(to_requests(1, load)).await.expect("a turn");
    assert_eq!(turn.report.results[0].status(), Some(Status::Ok));
    assert_eq!(turn.action, StrategyAction::Refund);
    armed.rearm().await.expect("armed");
    assert_eq!(tool_names(&armed), ["look", "read"], "the skill narrows");
    let note = note.expect("it was shown").call("d", r#"{"text":"x"}"#);
    assert_eq!(
        note.await.expect("a result").status,
        Status::ToolNotFound,
        "a host with a fixed list is narrowed, too"
    );
    assert!(world.deeds.sorted_effects().is_empty());
}

/// Returns what the log says about turns and calls, without the run around them.
fn events_of_calls(transcript: &ScenarioTranscript) -> Vec<String> {
    let of_run = [
        "user_message",
        "inference_started",
        "inference_finished",
        "run_ended",
    ];
    let lines = transcript
        .lines
        .iter()
        .filter(|line| !of_run.contains(&line.event));
    let mut told: Vec<String> = lines
        .map(|line| {
            let mut fields = line.fields.clone();
            // A run continues its last turn; the turns of armed tools may run side by side.
            fields.remove("after");
            let call = line.call.as_deref().unwrap_or_default();
            format!("{call} {} {}", line.event, Value::Object(fields))
        })
        .collect();
    told.sort();
    told
}

#[tokio::test]
async fn armed_calls_leave_the_events_and_receipts_of_a_run() {
    let (_dir, skills) = looking_skill();
    let line = |calls: Vec<(&str, Value)>| {
        let empty = ScriptLine::new();
        calls
            .into_iter()
            .fold(empty, |line, (tool, arguments)| line.call(tool, arguments))
    };
    let [load, work] = two_messages();
    let lines = vec![line(load), line(work), ScriptLine::new().say("Done.")];
    let scenario = with_skills(&skills, lines);
    let world = ModeWorld::new(&scenario, RunMode::Managed);
    let session = world.open_session(&scenario).await;
    let report = session
        .run_with("look", skill_options(&skills))
        .await
        .expect("runs");
    assert_eq!(report.end, toolgate::RunEnd::Completed);
    let managed = ScenarioTranscript::load(&world, &[]).await;

    let armed_world = ModeWorld::new(&scenario, RunMode::Managed);
    let session = armed_world.open_session(&scenario).await;
    let armed = session
        .arm_tools(skill_options(&skills))
        .await
        .expect("armed");
    let armed = armed.asked_by(toolgate::Model::name(&*world.model).clone());
    for (number, calls) in two_messages().into_iter().enumerate() {
        let calls = to_requests(number, calls);
        armed.call_all(calls).await.expect("a turn");
    }
    let armed = ScenarioTranscript::load(&armed_world, &[]).await;
    assert_eq!(events_of_calls(&armed), events_of_calls(&managed));
    assert_eq!(receipt_fields(&armed), receipt_fields(&managed));
    assert_eq!(armed.done, managed.done);
    assert_eq!(armed.done.len(), 2, "`note` is narrowed away");
}
