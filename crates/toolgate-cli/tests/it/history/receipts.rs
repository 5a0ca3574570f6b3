//! Receipts are listed and exported, and every change to them is detected.

use std::fs;

use toolgate::ledger::{LedgerName, SealedEntry};

use crate::{account_name, history::HistoryPlace};

/// Creates a place with the receipts of three calls, and returns their entries.
async fn three_receipts() -> (HistoryPlace, Vec<SealedEntry>) {
    let place = HistoryPlace::new();
    for name in ["a.txt", "b.txt"] {
        place.write(name, "x");
    }
    place.ends(0, &["tools", "call", "read_file", "path=a.txt"]);
    let entries = place
        .store()
        .await
        .entries(&LedgerName::main(), 0, 10)
        .await
        .expect("reads");
    assert_eq!(entries.len(), 3);
    (place, entries)
}

fn assert_tampered(place: &HistoryPlace, args: &[&str], record: u64) {
    let said = place.ends(7, &[&["receipts", "verify"], args].concat());
    assert!(said.err.contains(&format!("record {record}")), "{said:?}");
}

#[tokio::test]
async fn receipts_are_filtered_listed_and_shown() {
    let (place, _) = three_receipts().await;
    let all = place.json(&["receipts", "list"]);
    assert_eq!(
        all.iter()
            .map(|row| row["record"].as_u64())
            .collect::<Vec<_>>(),
        [Some(1), Some(2), Some(3)]
    );
    assert_eq!(
        place.json(&["receipts", "list", "--tool", "read_file"]),
        all[2..]
    );
    assert_eq!(
        place.json(&[
            "receipts",
            "list",
            "--approver",
            &format!("{} (approve = yes)", account_name()),
        ]),
        all[..2]
    );
    assert_eq!(place.json(&["receipts", "list", "--limit", "1"]), all[2..]);
    assert!(
        place
            .json(&["receipts", "list", "--status", "consent_denied"])
            .is_empty()
    );
    assert!(
        place
            .json(&["receipts", "list", "--until", "2020-01-01"])
            .is_empty()
    );
    let session = all[0]["receipt"]["session_id"].as_str().expect("an id");
    assert_eq!(
        place.json(&["receipts", "list", "--session", session]),
        all[..1]
    );
    let call = all[1]["receipt"]["invocation_id"].as_str().expect("an id");
    assert_eq!(
        place.json(&["receipts", "show", &call[call.len() - 8..]]),
        all[1..2]
    );
    place.ends(2, &["receipts", "show", "ffffffff"]);
    place.ends(2, &["receipts", "list", "--status", "fine"]);
}

#[tokio::test]
async fn an_intact_chain_and_its_export_are_verified() {
    let (place, _) = three_receipts().await;
    let said = place.ends(0, &["receipts", "verify"]).out;
    assert!(
        said.starts_with("intact: 3 receipts, head sha256:"),
        "{said}"
    );
    place.ends(0, &["receipts", "export", "all.jsonl"]);
    assert_eq!(
        place.ends(0, &["receipts", "verify", "all.jsonl"]).out,
        said
    );
    let twice = place.ends(2, &["receipts", "export", "all.jsonl"]);
    assert!(twice.err.contains("nothing was overwritten"), "{twice:?}");
    let some = place
        .ends(0, &["receipts", "export", "--tool", "read_file"])
        .out;
    fs::write(place.work().join("some.jsonl"), some).expect("writes");
    let said = place.ends(0, &["receipts", "verify", "some.jsonl"]).out;
    assert!(said.contains("2 of them in outline"), "{said}");
    place.ends(2, &["receipts", "verify", "missing.jsonl"]);
}

#[tokio::test]
async fn one_flipped_byte_in_the_database_is_detected_and_the_record_named() {
    let (place, entries) = three_receipts().await;
    let body = entries[1].body.as_bytes();
    let mut file = fs::read(place.database()).expect("one file");
    // SQLite splits long texts over pages; a part that occurs once belongs to this receipt.
    let places = |part: &[u8]| {
        file.windows(part.len())
            .enumerate()
            .filter(|(_, window)| *window == part)
            .map(|(at, _)| at)
            .collect::<Vec<_>>()
    };
    let digits = |part: &&[u8]| part[20].is_ascii_lowercase();
    let at = body
        .windows(40)
        .step_by(7)
        .filter(digits)
        .map(places)
        .find(|places| places.len() == 1);
    let at = at.expect("the receipt is in the file")[0] + 20;
    file[at] ^= 1;
    fs::write(place.database(), &file).expect("writes");
    assert_tampered(&place, &[], 2);
    let json = place.ends(7, &["--json", "receipts", "verify"]);
    assert!(json.err.contains("\"exit\":7"), "{json:?}");
}

#[tokio::test]
async fn every_change_to_an_export_is_detected_and_the_record_named() {
    let (place, _) = three_receipts().await;
    place.ends(0, &["receipts", "export", "all.jsonl"]);
    let text = place.read("all.jsonl").expect("written");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let check = |name: &str, lines: Vec<&str>, record: u64| {
        fs::write(place.work().join(name), lines.concat()).expect("writes");
        assert_tampered(&place, &[name], record);
    };
    // The header comes first, then the records.
    let flipped = lines[2].replace("write_file", "write_filf");
    check(
        "flipped.jsonl",
        [&lines[..2], &[&*flipped], &lines[3..]].concat(),
        2,
    );
    check("removed.jsonl", [&lines[..2], &lines[3..]].concat(), 2);
    check(
        "moved.jsonl",
        [&lines[..1], &[lines[2], lines[1]], &lines[3..]].concat(),
        1,
    );
    let cut = lines[..3].concat();
    fs::write(place.work().join("cut.jsonl"), cut).expect("writes");
    let said = place.ends(7, &["receipts", "verify", "cut.jsonl"]);
    assert!(
        said.err.contains("verification of receipts failed"),
        "{said:?}"
    );
    fs::write(place.work().join("other.txt"), "no receipts").expect("writes");
    place.ends(7, &["receipts", "verify", "other.txt"]);
}

#[tokio::test]
async fn malformed_keys_and_checkpoints_are_usage_errors() {
    let (place, _) = three_receipts().await;
    for args in [
        &["--key", "abc"][..],
        &["--key", &"zz".repeat(32)],
        &["--key", &"00".repeat(32)],
        &["--checkpoints", "none.jsonl", "--key", &"11".repeat(32)],
    ] {
        place.ends(2, &[&["receipts", "verify"], args].concat());
    }
}
