//! What a case has spent: exactly what was done, nothing left set aside, never more than there was.

use toolgate_core::{
    AccountRow, BudgetRule, BudgetScope, BudgetUnit, SessionId, Status, StoreError, StoreHandle,
};

use super::{Seen, SeenCall, seen::STARTED};

/// The accounts of a session, its runs, and the person who is called like it.
pub(super) async fn accounts_of(
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

/// What is wrong with the accounts when everything is over. Where the store was in trouble, less can be known.
pub(super) fn compare_accounts(after: &Seen, limits: &[BudgetRule], troubled: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in &after.accounts {
        let (account, spent) = (&row.account, row.spent);
        if row.reserved > 0 {
            wrong.push(format!("{} is still set aside in {account}", row.reserved));
        }
        let about = |rule: &&BudgetRule| (rule.scope, rule.unit) == (account.scope, account.unit);
        if let Some(rule) = limits.iter().find(|rule| about(rule) && spent > rule.limit) {
            wrong.push(format!(
                "{spent} was spent from {account}, where there was {}",
                rule.limit
            ));
        }
        // What models are asked in the sessions of agents, the run that delegates pays for.
        let everybody = account.scope == BudgetScope::User || account.unit != BudgetUnit::Calls;
        let sessions = if everybody {
            after.sessions()
        } else {
            vec![after]
        };
        let sum = |of: &dyn Fn(&Seen) -> u64| sessions.iter().map(|seen| of(seen)).sum::<u64>();
        let done = match account.unit {
            BudgetUnit::Requests => sum(&|seen| seen.talk.sent.len() as u64),
            BudgetUnit::Calls => sum(&|seen| {
                seen.calls
                    .iter()
                    .filter(|call| call.life.contains(&STARTED))
                    .count() as u64
            }),
            BudgetUnit::Tokens => sum(&|seen| seen.talk.tokens()),
            BudgetUnit::Usd => sum(&|seen| seen.talk.cost()),
        };
        // What was asked for and lost with its process costs as much as it may have cost at most.
        let lost = sum(&|seen| {
            (seen.talk.sent.len() - seen.talk.replies().count().min(seen.talk.sent.len())) as u64
        });
        let may_be_more =
            (lost > 0 || troubled) && matches!(account.unit, BudgetUnit::Tokens | BudgetUnit::Usd);
        // A call whose start was written without anybody hearing of it did not run, and nobody can tell from the log.
        let unknown = |call: &&SeenCall| call.status() == Some(Status::OutcomeUnknown);
        let unheard = sum(&|seen| seen.calls.iter().filter(unknown).count() as u64);
        let may_be_less = troubled && account.unit == BudgetUnit::Calls && spent + unheard >= done;
        if spent != done && !(may_be_more && spent > done) && !(may_be_less && spent < done) {
            wrong.push(format!(
                "{spent} was spent from {account} for what took {done}"
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

    fn seen(spent: u64, reserved: u64, sent: u128) -> Seen {
        let account = "budget/session/s/requests/total"
            .parse()
            .expect("an account");
        let mut seen = Seen {
            accounts: vec![AccountRow {
                account,
                spent,
                reserved,
            }],
            ..Seen::default()
        };
        seen.talk.sent = (0..sent).map(|n| TurnId::new(Uuid::from_u128(n))).collect();
        seen
    }

    #[test]
    fn what_was_spent_is_what_was_done_and_nothing_is_left_set_aside() {
        let limits = [BudgetRule::new(
            "b",
            BudgetScope::Session,
            BudgetPeriod::Total,
            BudgetUnit::Requests,
            3,
        )];
        let wrong = |seen: Seen| compare_accounts(&seen, &limits, false).len();
        assert_eq!(wrong(seen(2, 0, 2)), 0);
        assert_eq!(wrong(seen(3, 0, 2)), 1, "paid twice");
        assert_eq!(wrong(seen(1, 0, 2)), 1, "not paid");
        assert_eq!(wrong(seen(2, 1, 2)), 1, "still set aside");
        assert_eq!(wrong(seen(4, 0, 4)), 1, "more than there was");
    }
}
