//! The store rules for what a list of sessions says about each of them: everything that a list shows
//! is in the rows, so that no log is read and no session costs a query of its own.

use std::sync::Arc;

use toolgate_core::{
    CallId, Cost, Digest, FinishReason, HiddenSessions, IdSource, ImportOrigin, SessionEvent,
    SessionFilter, SessionId, SessionTotals, SettledOutcome, Status, StoreHandle, StoreRecord,
    ToolEvent, TurnId, TurnInfo, UnsettledWork,
};

use super::{
    LONG_TERM, StoreRule,
    catalogue::{SessionScript, approved, store_record},
    ensure, error_text, lease_request,
};

pub(super) const RULES: [(&str, StoreRule); 4] = [
    (
        "a_row_says_what_the_events_of_a_session_add_up_to",
        |s, i| Box::pin(adds_up_events(s, i)),
    ),
    ("a_row_says_what_is_not_settled", |s, i| {
        Box::pin(says_what_is_unsettled(s, i))
    }),
    ("a_row_says_where_a_session_was_imported_from", |s, i| {
        Box::pin(says_the_origin(s, i))
    }),
    ("sessions_are_found_by_model_and_without_agents", |s, i| {
        Box::pin(filters_by_model_and_parent(s, i))
    }),
];

fn requested() -> ToolEvent {
    ToolEvent::ToolRequested {
        arguments: None,
        arguments_digest: Digest::of_bytes(b"{}"),
        arguments_bytes: 2,
        executor: None,
    }
}

fn started(external: bool) -> ToolEvent {
    ToolEvent::ToolExecutionStarted {
        attempt: 1,
        executor: None,
        external,
        arguments_digest: Digest::of_bytes(b"{}"),
        arguments: None,
    }
}

fn replied(cost: Cost) -> SessionEvent {
    SessionEvent::InferenceFinished {
        message: 4,
        text: None,
        text_bytes: None,
        calls: 1,
        finish: FinishReason::Stop,
        usage: None,
        cost,
    }
}

/// Returns a turn of a model as the runtime writes it: the provider is not part of the name.
fn turn_with_model(ids: &dyn IdSource, provider: Option<&str>, model: Option<&str>) -> TurnInfo {
    let mut info = TurnInfo::new(SessionId::from_source(ids), TurnId::from_source(ids));
    info.provider = provider.map(Arc::from);
    info.model = model.map(Arc::from);
    info
}

async fn adds_up_events(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = SessionScript::new(store, ids);
    let turn = script.open_turn().await?;
    let mut expected = SessionTotals::default();
    let totals = script.row().await?.totals;
    ensure(
        totals.as_ref() == Some(&expected),
        "a session without calls",
    )?;
    for tool in ["read", "write"] {
        let call = CallId::from_source(ids);
        script.add_tool_event(turn, call, tool, requested()).await?;
        script
            .add_tool_event(turn, call, tool, started(false))
            .await?;
    }
    expected.calls = 2;
    expected.first_tool = Some("read".into());
    let totals = script.row().await?.totals;
    ensure(
        totals.as_ref() == Some(&expected),
        format!("{totals:?} after two calls"),
    )?;
    let steps = [
        (Some("far"), Some("first"), Cost::NanoUsd(3), 3),
        (Some("near"), Some("second:8b"), Cost::NanoUsd(4), 7),
        // The model of a reply that names none is not known: the last one that is stays.
        (Some("odd"), None, Cost::NanoUsd(0), 7),
        // Imported replies name no provider.
        (None, Some("third"), Cost::NanoUsd(2), 9),
        (Some("far"), Some("third"), Cost::NanoUsd(1), 10),
    ];
    for (provider, model, cost, sum) in steps {
        let info = turn_with_model(ids, provider, model);
        script.add_run_event(&info, replied(cost)).await?;
        expected.cost = Some(Cost::NanoUsd(sum));
        if let Some(model) = model {
            expected.model = Some(model.into());
            expected.provider = provider.map(Arc::from);
        }
        let totals = script.row().await?.totals;
        ensure(
            totals.as_ref() == Some(&expected),
            format!("{totals:?}, not {expected:?}"),
        )?;
    }
    for cost in [Cost::Unknown, Cost::NanoUsd(1)] {
        let info = turn_with_model(ids, Some("far"), Some("third"));
        script.add_run_event(&info, replied(cost)).await?;
        expected.cost = Some(Cost::Unknown);
        let totals = script.row().await?.totals;
        ensure(
            totals.as_ref() == Some(&expected),
            format!("{totals:?}, not {expected:?}"),
        )?;
    }
    let listed = script.row().await?.totals;
    let events = store.events(script.session, 0, usize::MAX).await;
    let events = events.map_err(error_text)?;
    let counted = SessionTotals::from_events(events.iter().map(|event| &**event));
    ensure(listed == Some(counted), "the row agrees with the log")
}

async fn says_what_is_unsettled(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = SessionScript::new(store, ids);
    let turn = script.open_turn().await?;
    let calls = [0; 3].map(|_| CallId::from_source(ids));
    for call in calls {
        script.request_approval(turn, call, "write", 1).await?;
    }
    let check = async |script: &SessionScript<'_>, counts: [u64; 3], has_open_turn| {
        let [pending, answered, running] = counts;
        let expected = UnsettledWork {
            pending,
            answered,
            running,
            has_open_turn,
        };
        let found = script.row().await?.unsettled;
        ensure(found == expected, format!("{found:?}, not {expected:?}"))
    };
    check(&script, [3, 0, 0], true).await?;
    for call in &calls[..2] {
        script
            .add_tool_event(turn, *call, "write", approved())
            .await?;
    }
    check(&script, [1, 2, 0], true).await?;
    script
        .add_tool_event(turn, calls[0], "write", started(false))
        .await?;
    // Nothing of ours runs while an external party does.
    script
        .add_tool_event(turn, calls[1], "write", started(true))
        .await?;
    check(&script, [1, 1, 1], true).await?;
    for call in calls {
        let settled = SettledOutcome::new(Status::Ok);
        let settled = ToolEvent::from_settled(&settled, true, None, None);
        script.add_tool_event(turn, call, "write", settled).await?;
    }
    check(&script, [0, 0, 0], true).await?;
    script.settle_turn(turn).await?;
    check(&script, [0, 0, 0], false).await
}

async fn says_the_origin(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let origin = |format: &str| ImportOrigin {
        format: format.into(),
        source: Some("there".into()),
    };
    let mark = |format| StoreRecord::Json(origin(format).to_json());
    let mut scripts = [(); 3].map(|()| SessionScript::new(store, ids));
    for script in &mut scripts {
        script.open_turn().await?;
    }
    let [ours, foreign, archived] = scripts.map(|script| script.session);
    let key = ImportOrigin::record_key(foreign);
    store_record(store, key, mark("other")).await?;
    let key = ImportOrigin::archive_key(archived);
    store_record(store, key, mark(ImportOrigin::ARCHIVE)).await?;
    for (session, expected) in [
        (ours, None),
        (foreign, Some(origin("other"))),
        (archived, Some(origin(ImportOrigin::ARCHIVE))),
    ] {
        let rows = store.sessions(SessionFilter::for_session(session)).await;
        let rows = rows.map_err(error_text)?;
        let found = rows.into_iter().next().and_then(|row| row.imported);
        ensure(found == expected, format!("{found:?}, not {expected:?}"))?;
    }
    // A mark that cannot be read must not make a session look like one of ours.
    let unreadable = StoreRecord::Json("no mark".into());
    store_record(store, ImportOrigin::record_key(ours), unreadable).await?;
    let rows = store.sessions(SessionFilter::for_session(ours)).await;
    let found = rows.map_err(error_text)?.pop().and_then(|row| row.imported);
    let format = found.map(|origin| origin.format);
    ensure(
        format.as_deref() == Some(ImportOrigin::UNREADABLE),
        format!("{format:?} for a mark that cannot be read"),
    )
}

async fn filters_by_model_and_parent(
    store: &StoreHandle,
    ids: &dyn IdSource,
) -> Result<(), String> {
    // A name that no other rule uses: the store may hold anything already.
    let name = SessionId::from_source(ids).to_string();
    let tagged = format!("{name}:8b");
    let full = format!("far:{tagged}");
    let mut root = SessionScript::new(store, ids);
    let mut agent = SessionScript::new(store, ids);
    let mut former = SessionScript::new(store, ids);
    let mut request = lease_request(agent.session, "driver", LONG_TERM);
    request.parent = Some(root.session);
    let lease = store.acquire_lease(request).await.map_err(error_text)?;
    store.release_lease(&lease).await.map_err(error_text)?;
    let info = turn_with_model(ids, Some("far"), Some(&tagged));
    for script in [&mut former, &mut root] {
        script.add_run_event(&info, replied(Cost::Unknown)).await?;
    }
    agent.set_fence(lease.fence);
    agent.add_run_event(&info, replied(Cost::Unknown)).await?;
    let other = turn_with_model(ids, Some("far"), Some("another"));
    former.add_run_event(&other, replied(Cost::Unknown)).await?;
    let other_full = format!("near:{tagged}");
    let mut both = vec![root.session, agent.session];
    both.sort();
    for (model, without_agents, expected) in [
        (full.as_str(), false, both.clone()),
        (tagged.as_str(), false, both),
        (tagged.as_str(), true, vec![root.session]),
        (other_full.as_str(), false, vec![]),
        (name.as_str(), false, vec![]),
        ("8b", false, vec![]),
        ("far", false, vec![]),
    ] {
        let filter = SessionFilter {
            model: Some(model.into()),
            without_agents,
            hidden: HiddenSessions::Included,
            ..SessionFilter::default()
        };
        let rows = store.sessions(filter).await.map_err(error_text)?;
        let found: Vec<_> = rows.iter().map(|row| row.session).collect();
        ensure(found == expected, format!("{found:?} by {model}"))?;
    }
    Ok(())
}
