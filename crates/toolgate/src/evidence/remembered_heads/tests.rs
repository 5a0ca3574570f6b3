//! Tests of the file with the remembered heads.

use std::os::unix::fs::{PermissionsExt, symlink};

use toolgate_core::{LedgerHead, LedgerKey, LedgerName, Timestamp};

use super::*;

fn place() -> (tempfile::TempDir, HeadFile) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = HeadFile::new(&StateDir::new(dir.path()).expect("absolute"));
    (dir, file)
}

fn head(id: u128, counter: u64, at: i64) -> RememberedHead {
    let head = LedgerHead {
        counter,
        ..LedgerHead::start_of(LedgerName::main())
    };
    let key = LedgerKey::from_bytes(&[7; 32]);
    RememberedHead {
        id: Uuid::from_u128(id),
        address: None,
        checkpoint: Checkpoint::sign(&head, Timestamp::from_micros(at), &key),
    }
}

#[test]
fn heads_of_several_ledgers_are_remembered_and_only_grow() {
    let (_dir, file) = place();
    assert_eq!(file.load().expect("none"), []);
    for head in [
        head(1, 5, 1),
        head(2, 3, 2),
        head(1, 4, 3),
        head(1, 9, 4),
        head(1, 9, 5),
    ] {
        file.remember(head).expect("stored");
    }
    assert_eq!(file.load().expect("loads"), [head(2, 3, 2), head(1, 9, 5)]);
    file.replace(&head(1, 9, 5), head(1, 2, 6)).expect("stored");
    assert_eq!(file.load().expect("loads"), [head(2, 3, 2), head(1, 2, 6)]);
}

#[test]
fn the_file_is_private_and_anything_else_is_rejected() {
    let (dir, file) = place();
    file.remember(head(1, 1, 1)).expect("stored");
    let mode = |path: &PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&file.path), 0o600);
    let good = fs::read_to_string(&file.path).expect("reads");
    let with_mode = |text: &str, mode: u32| {
        fs::write(&file.path, text).expect("written");
        fs::set_permissions(&file.path, fs::Permissions::from_mode(mode)).expect("set");
        file.load()
    };
    assert!(with_mode(&good, 0o600).is_ok());
    assert!(with_mode(&good, 0o644).is_err(), "others can read it");
    assert!(with_mode(&good, 0o620).is_err(), "others can write it");
    assert!(
        with_mode(&good[..good.len() / 2], 0o600).is_err(),
        "truncated"
    );
    assert!(with_mode("", 0o600).is_err(), "emptied");
    assert!(with_mode(&good.replace("\"id\"", "\"ID\""), 0o600).is_err());
    // A damaged file is not replaced either: what it remembered would be lost.
    assert!(file.remember(head(1, 2, 2)).is_err());
    fs::rename(&file.path, dir.path().join("elsewhere")).expect("moved");
    symlink(dir.path().join("elsewhere"), &file.path).expect("linked");
    assert!(file.load().is_err(), "a link");
}

#[test]
fn the_list_is_bounded_and_drops_the_oldest() {
    let (_dir, file) = place();
    let many = (0..MAX_LEDGERS as u128 + 5).map(|id| head(id, 1, id as i64));
    file.change(|heads| heads.extend(many)).expect("stored");
    let kept = file.load().expect("loads");
    assert_eq!((kept.len(), kept[0].id), (MAX_LEDGERS, Uuid::from_u128(5)));
}

#[test]
fn processes_that_remember_at_once_lose_nothing() {
    let (_dir, file) = place();
    std::thread::scope(|scope| {
        for id in 0..8 {
            let file = &file;
            scope.spawn(move || {
                for counter in 1..=5 {
                    file.remember(head(id, counter, counter as i64))
                        .expect("stored");
                }
            });
        }
    });
    let kept = file.load().expect("loads");
    assert_eq!(kept.len(), 8);
    assert!(kept.iter().all(|head| head.checkpoint.counter == 5));
}
