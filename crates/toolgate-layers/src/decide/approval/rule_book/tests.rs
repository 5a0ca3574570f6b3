//! Tests of the rule book: signatures, adoption and revocation.

use toolgate_core::MemoryStore;
use toolgate_testkit::{call_with, keyring_with};

use super::*;

fn new_book() -> RuleBook {
    RuleBook::new(StoreHandle::new(MemoryStore::new()), keyring_with("k1", 1)).in_project("shop")
}

fn rule(reason: &str, created_at: Timestamp) -> StandingRule {
    serde_json::from_value(json!({
        "id": "status", "effect": "allow", "tool": "run_shell", "owner": "ann",
        "created_at": created_at, "reason": reason,
        "scope": { "scope": "project", "project": "shop" },
        "arguments": { "/command": { "equals": "git status" } },
    }))
    .expect("a rule")
}

#[tokio::test]
async fn an_equal_rule_is_stored_once_and_returned_and_a_revoked_one_stays_revoked() {
    let book = new_book();
    let first = rule("daily", Timestamp::EPOCH);
    let later = rule("daily", Timestamp::EPOCH.plus(Duration::from_secs(9)));
    assert_eq!(book.add(first.clone()).await.expect("stored"), first);
    assert_eq!(book.add(later.clone()).await.expect("the same"), first);
    assert_eq!(book.list().await.expect("listed").len(), 1);
    let other = book.add(rule("weekly", Timestamp::EPOCH)).await;
    assert!(matches!(other, Err(RuleError::DuplicateId(_))));
    book.revoke("status", "ann", Timestamp::EPOCH)
        .await
        .expect("revoked");
    let again = book.add(later).await;
    assert!(matches!(again, Err(RuleError::DuplicateId(_))));
}

/// Stores a rule as an earlier version, or another program, would have stored it.
async fn store_unsigned(book: &RuleBook, rule: &StandingRule) {
    let value = Json::new(serde_json::to_value(rule).expect("plain data")).expect("shallow");
    let key = RecordKey::Other(format!("{RULE_PREFIX}{}", rule.id).into());
    book.store.put_json_once(key, value).await.expect("stored");
    book.clear_cache();
}

async fn is_allowed(book: &RuleBook) -> bool {
    let call = call_with("run_shell", json!({ "command": "git status" }));
    match book.find_rule(&call).await {
        RuleLookup::Matched(rule) => rule.effect == RuleEffect::Allow,
        RuleLookup::NoMatch | RuleLookup::Unreadable => false,
    }
}

async fn signer_of(book: &RuleBook) -> RuleSigner {
    book.list().await.expect("listed")[0].signer
}

#[tokio::test]
async fn a_rule_that_allows_counts_only_as_it_was_signed() {
    let signed = rule("daily", Timestamp::EPOCH);
    let later = Timestamp::EPOCH.plus(Duration::from_secs(9));
    let mut changed: Vec<(&str, StandingRule)> = Vec::new();
    let mut change = |what, edit: &dyn Fn(&mut StandingRule)| {
        let mut rule = signed.clone();
        edit(&mut rule);
        changed.push((what, rule));
    };
    change("the scope", &|rule| rule.scope = crate::RuleScope::Global);
    change("the owner", &|rule| rule.owner = "bob".into());
    change("the lifetime", &|rule| rule.expires_at = Some(later));
    change("the time", &|rule| rule.created_at = later);
    change("the tool", &|rule| rule.tool = "run_*".into());
    change("the reason", &|rule| rule.reason = None);
    change("the id", &|rule| rule.id = "other".into());
    change("the patterns", &|rule| {
        let any = crate::ArgumentPattern::Glob("git*".into());
        rule.arguments.insert("/command".into(), any);
    });
    for (what, rule) in changed {
        let book = new_book();
        // The signature of the original is in the store, and the changed rule beside it.
        book.sign(&signed).await.expect("signed");
        store_unsigned(&book, &rule).await;
        assert_eq!(signer_of(&book).await, RuleSigner::Unsigned, "{what}");
        assert!(!is_allowed(&book).await, "{what}");
        book.sign(&rule).await.expect("signed");
        assert!(is_allowed(&book).await, "{what}: adopted");
    }
}

#[tokio::test]
async fn an_unsigned_or_foreign_rule_allows_nothing_and_still_denies() {
    let ours = new_book();
    let theirs = RuleBook {
        keys: keyring_with("k1", 2),
        read: Arc::default(),
        ..ours.clone()
    };
    let allowing = rule("daily", Timestamp::EPOCH);
    let denying = StandingRule {
        id: "never".into(),
        effect: RuleEffect::Deny,
        ..allowing.clone()
    };
    store_unsigned(&ours, &allowing).await;
    assert!(!is_allowed(&ours).await, "unsigned");
    theirs
        .add(allowing.clone())
        .await
        .expect("signed by another key");
    let key = theirs.keys.rule_key();
    assert_eq!(signer_of(&ours).await, RuleSigner::Foreign(key));
    ours.clear_cache();
    assert!(
        is_allowed(&theirs).await && !is_allowed(&ours).await,
        "foreign"
    );
    let trusting = ours.clone().trusting([key]);
    assert_eq!(signer_of(&trusting).await, RuleSigner::Trusted(key));
    assert!(is_allowed(&trusting).await, "trusted");
    ours.add(allowing).await.expect("confirmed again");
    assert!(is_allowed(&ours).await, "signed with our key too");
    let older = RuleBook {
        keys: keyring_with("k2", 3).verifying(toolgate_core::SecretKey::new(
            "k1".parse().expect("an id"),
            toolgate_core::KeyKind::HmacSha256,
            [1; 32],
        )),
        read: Arc::default(),
        ..ours.clone()
    };
    assert!(
        is_allowed(&older).await,
        "signed with an older key of the ring"
    );
    for book in [&ours, &theirs] {
        store_unsigned(book, &denying).await;
        let call = call_with("run_shell", json!({ "command": "git status" }));
        let found = book.find_rule(&call).await;
        assert!(matches!(found, RuleLookup::Matched(rule) if rule.effect == RuleEffect::Deny));
    }
}

#[tokio::test]
async fn a_record_that_is_no_signature_signs_nothing() {
    let rule = rule("daily", Timestamp::EPOCH);
    let digest = rule.digest().expect("a digest");
    let own = keyring_with("k1", 1);
    let valid = own.sign_rule(digest);
    let swapped = keyring_with("k1", 2).sign_rule(digest).signature;
    for record in [
        json!(null),
        json!("own"),
        json!({ "key": valid.key }),
        json!({ "key": valid.key, "signature": "" }),
        json!({ "key": valid.key, "signature": swapped }),
        json!({ "key": valid.key, "signature": valid.signature, "more": 1 }),
        json!({ "key": "ed25519:AAAA", "signature": valid.signature }),
        json!(own.sign_rule(toolgate_core::Digest::of_bytes(b"another rule"))),
    ] {
        let book = new_book();
        store_unsigned(&book, &rule).await;
        let key = RecordKey::Other(format!("rule-signature/{digest}/x").into());
        let value = Json::new(record.clone()).expect("shallow");
        book.store.put_json_once(key, value).await.expect("stored");
        assert!(!is_allowed(&book).await, "{record}");
    }
    // In the place of our own signature it is noticed, because the rule cannot be signed.
    let book = new_book();
    store_unsigned(&book, &rule).await;
    let signer = toolgate_core::Digest::of_bytes(valid.key.to_string().as_bytes());
    let key = RecordKey::Other(format!("rule-signature/{digest}/{signer}").into());
    book.store
        .put_json_once(key, Json::null())
        .await
        .expect("stored");
    let signed = book.sign(&rule).await;
    assert!(matches!(signed, Err(RuleError::DamagedSignature(id)) if id == "status"));
}

#[tokio::test]
async fn a_revoked_rule_is_not_revived_by_storing_or_signing_it_again() {
    let book = new_book();
    let rule = rule("daily", Timestamp::EPOCH);
    book.add(rule.clone()).await.expect("stored");
    book.revoke("status", "ann", Timestamp::EPOCH)
        .await
        .expect("revoked");
    book.sign(&rule).await.expect("signed");
    store_unsigned(&book, &rule).await;
    assert!(!is_allowed(&book).await);
    assert!(book.add(rule).await.is_err());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_listed_asks_about_every_call_and_can_be_revoked() {
    let denies = json!({
        "id": "push", "effect": "deny", "tool": "run_shell", "owner": "ann",
        "created_at": Timestamp::EPOCH, "scope": { "scope": "global" },
        "arguments": { "/command": { "equals": "git push" } },
    });
    let lookup = async |book: &RuleBook, command: &str| {
        let call = call_with("run_shell", json!({ "command": command }));
        book.find_rule(&call).await
    };
    for damaged in [
        json!({ "id": "odd", "effect": "forbid" }),
        json!("text"),
        // One that another record stands for.
        denies.clone(),
    ] {
        let book = new_book();
        let push = serde_json::from_value(denies.clone()).expect("a rule");
        book.add(push).await.expect("stored");
        book.add(rule("daily", Timestamp::EPOCH))
            .await
            .expect("stored");
        assert!(is_allowed(&book).await, "{damaged}");
        let key = RecordKey::Other(format!("{RULE_PREFIX}odd").into());
        let value = Json::new(damaged.clone()).expect("shallow");
        book.store.put_json_once(key, value).await.expect("stored");
        book.clear_cache();
        assert_eq!(lookup(&book, "git status").await, RuleLookup::Unreadable);
        let denied = lookup(&book, "git push").await;
        assert!(matches!(denied, RuleLookup::Matched(rule) if rule.id == "push"));
        let unreadable = book.list_unreadable().await.expect("listed");
        assert_eq!(unreadable.len(), 1, "{damaged}");
        assert_eq!(unreadable[0].id, "odd");
        assert_eq!(book.list().await.expect("listed").len(), 2, "the others");
        let revoked = book.revoke("odd", "ann", Timestamp::EPOCH).await;
        revoked.expect("revoked");
        assert!(is_allowed(&book).await, "{damaged}");
        assert!(book.list_unreadable().await.expect("listed").is_empty());
    }
}
