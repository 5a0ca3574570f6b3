//! What a key offers about calls: the action of a toast, and cancelling one call.

use toolgate::{budget::BudgetAlert, layers::ToastAction};

use super::{ChatApp, UiEffect, app::OverlayWindow, update::show_info};
use crate::show::screen::{CallState, CallView};

/// Does what the newest toast with an action offers.
pub(super) fn run_toast_action(app: &mut ChatApp) -> Vec<UiEffect> {
    let newest = app.toasts.iter().rev();
    let offered = newest.filter_map(|toast| Some((toast.id, toast.action.clone()?)));
    let Some((id, action)) = offered.into_iter().next() else {
        return show_info("no message offers anything");
    };
    if let Some(call) = action.shown_call() {
        app.window = Some(OverlayWindow::Detail { call, scroll: 0 });
    } else if action.command == ToastAction::SHOW_BUDGETS {
        app.window = Some(OverlayWindow::Text {
            title: "Budgets".to_owned(),
            text: budget_lines(app),
            scroll: 0,
        });
    } else {
        return show_info(format!("this screen cannot {}", action.label));
    }
    vec![UiEffect::Dismiss(id)]
}

fn budget_lines(app: &ChatApp) -> String {
    let line = |alert: &BudgetAlert| {
        let BudgetAlert {
            budget,
            percent,
            spent,
            limit,
            ..
        } = alert;
        format!("{budget}: {percent} % is used, {spent} of {limit}")
    };
    let lines: Vec<String> = app.screen.budget_alerts().iter().map(line).collect();
    lines.join("\n")
}

/// Cancels the selected call if it runs, or else the oldest one that does.
pub(super) fn cancel_call(app: &ChatApp) -> Vec<UiEffect> {
    let running = |call: &&CallView| call.state == CallState::Running;
    let selected = app.call.and_then(|call| app.screen.call(call));
    let selected = selected.filter(running);
    match selected.or_else(|| app.screen.open_calls().find(running)) {
        Some(call) => vec![UiEffect::CancelCall(call.invocation.id)],
        None => show_info("no call is running"),
    }
}
