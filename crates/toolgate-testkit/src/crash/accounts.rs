//! The rules for accounts: the amount spent is what was done, nothing stays reserved, no limit is
//! exceeded.

use toolgate_core::{
    AccountRow, BudgetRule, BudgetScope, BudgetUnit, SessionId, Status, StoreError, StoreHandle,
};

use super::{CallSnapshot, SessionSnapshot, snapshot::STARTED};

/// Loads the accounts of a session, of its runs, and of the user with the session's name.
pub(super) async fn load_accounts(
    store: &StoreHandle,
    session: SessionId,
) -> Result<Vec<AccountRow>, StoreError> {
    let mut rows = Vec::new();
    for scope in [BudgetScope::Session, BudgetScope::Run, BudgetScope::User] {
        rows.extend(
            store
                .accounts(&format!("budget/{}/{session}", scope.as_str()), None, 1000)
                .await?,
        );
    }
    Ok(rows)
}

/// Returns the violations of the account rules at the end of a case. After store failures less can
/// be known.
pub(super) fn compare_accounts(
    after: &SessionSnapshot,
    limits: &[BudgetRule],
    troubled: bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in &after.accounts {
        let account = &row.account;
        let spent = row.spent;
        if row.reserved > 0 {
            wrong.push(format!("{} is still reserved in {account}", row.reserved));
        }
        let about = |rule: &&BudgetRule| (rule.scope, rule.unit) == (account.scope, account.unit);
        if let Some(rule) = limits.iter().find(|rule| about(rule) && spent > rule.limit) {
            wrong.push(format!(
                "{spent} was spent from {account}, whose limit is {}",
                rule.limit
            ));
        }
        // The delegating run pays for model requests in the sessions of its agents.
        let everybody = account.scope == BudgetScope::User || account.unit != BudgetUnit::Calls;
        let sessions = if everybody {
            after.all_sessions()
        } else {
            vec![after]
        };
        let sum = |of: &dyn Fn(&SessionSnapshot) -> u64| {
            sessions.iter().map(|seen| of(seen)).sum::<u64>()
        };
        let done = match account.unit {
            BudgetUnit::Requests => sum(&|seen| seen.talk.sent.len() as u64),
            BudgetUnit::Calls => sum(&|seen| {
                seen.calls
                    .iter()
                    .filter(|call| call.life.contains(&STARTED))
                    .count() as u64
            }),
            BudgetUnit::Tokens => sum(&|seen| seen.talk.token_count()),
            BudgetUnit::Usd => sum(&|seen| seen.talk.known_cost()),
        };
        // A request that was lost with its process is charged at its highest possible price.
        let lost = sum(&|seen| {
            (seen.talk.sent.len() - seen.talk.model_replies().count().min(seen.talk.sent.len()))
                as u64
        });
        let may_be_more =
            (lost > 0 || troubled) && matches!(account.unit, BudgetUnit::Tokens | BudgetUnit::Usd);
        // A call whose start was stored without an answer to the writer did not run, and the log
        // cannot tell.
        let unknown = |call: &&CallSnapshot| call.status() == Some(Status::OutcomeUnknown);
        let unheard = sum(&|seen| seen.calls.iter().filter(unknown).count() as u64);
        let may_be_less = troubled && account.unit == BudgetUnit::Calls && spent + unheard >= done;
        if spent != done && !(may_be_more && spent > done) && !(may_be_less && spent < done) {
            wrong.push(format!(
                "{spent} was spent from {account} instead of {done}"
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use toolgate_core::{BudgetPeriod, TurnId};
    use uuid::Uuid;

    use super::*;

    fn snapshot_with(spent: u64, reserved: u64, sent: u128) -> SessionSnapshot {
        let account = "budget/session/s/requests/total"
            .parse()
            .expect("an account");
        let mut seen = SessionSnapshot {
            accounts: vec![AccountRow {
                account,
                spent,
                reserved,
            }],
            ..SessionSnapshot::default()
        };
        seen.talk.sent = (0..sent).map(|n| TurnId::new(Uuid::from_u128(n))).collect();
        seen
    }

    #[test]
    fn the_amount_spent_is_what_was_done_and_nothing_stays_reserved() {
        let limits = [BudgetRule::new(
            "b",
            BudgetScope::Session,
            BudgetPeriod::Total,
            BudgetUnit::Requests,
            3,
        )];
        let wrong = |seen: SessionSnapshot| compare_accounts(&seen, &limits, false).len();
        assert_eq!(wrong(snapshot_with(2, 0, 2)), 0);
        assert_eq!(wrong(snapshot_with(3, 0, 2)), 1, "paid twice");
        assert_eq!(wrong(snapshot_with(1, 0, 2)), 1, "not paid");
        assert_eq!(wrong(snapshot_with(2, 1, 2)), 1, "still reserved");
        assert_eq!(wrong(snapshot_with(4, 0, 4)), 1, "over the limit");
    }
}
