//! `toolgate memory`: every subcommand, its JSON, and what it says about mistakes.

use std::fs;

use crate::admin::AdminPlace;

const PLANTED: &str = "The heron of Kvikkjokk wears seven violet boots";

/// Returns the id of the newest memory.
fn newest_id(place: &AdminPlace) -> String {
    let listed = place.run(["memory", "list", "--all", "--json"]).json();
    let id = listed[0]["id"].as_str();
    id.expect("an id").to_owned()
}

#[test]
fn a_memory_is_added_once_found_changed_and_forgotten() {
    let place = AdminPlace::new();
    let added = place.run(["memory", "add", "--json", "We deploy on Fridays"]);
    assert_eq!(added.json()[0]["stored"], true, "{added:?}");
    let again = place.run(["memory", "add", "--json", "we deploy  on FRIDAYS!"]);
    assert_eq!(again.json()[0]["stored"], false, "{again:?}");
    let id = newest_id(&place);
    let found = place.run(["memory", "search", "--json", "when do we deploy?"]);
    assert_eq!(found.json()[0]["id"], id.as_str(), "{found:?}");
    let short = &id[id.len() - 8..];
    let edited = place.run([
        "memory",
        "edit",
        short,
        "We deploy on Mondays",
        "--kind",
        "fact",
    ]);
    assert_eq!(edited.code, 0, "{edited:?}");
    let shown = place.run(["memory", "show", short]);
    assert!(shown.out.contains("We deploy on Mondays"), "{shown:?}");
    let why = place.run(["memory", "why", short]);
    assert!(why.out.contains("added by the user"), "{why:?}");
    let forgotten = place.run(["memory", "forget", short, "--json"]).json();
    assert_eq!(forgotten[0]["forgotten"][0], id.as_str());
    assert_eq!(forgotten[0]["remains"], "nothing");
    assert_eq!(place.run(["memory", "list", "--all", "--json"]).out, "");
}

#[test]
fn a_forgotten_memory_is_in_no_file_of_the_home_directory() {
    let place = AdminPlace::new();
    let added = place.run(["memory", "add", PLANTED]);
    assert_eq!(added.code, 0, "{added:?}");
    let count = |place: &AdminPlace| {
        let files = fs::read_dir(place.home()).expect("lists");
        let files = files.map(|file| file.expect("an entry").path());
        let files = files.filter(|path| path.is_file());
        let found = files.filter(|path| {
            let bytes = fs::read(path).expect("reads");
            let mut windows = bytes.windows(PLANTED.len());
            windows.any(|bytes| bytes == PLANTED.as_bytes())
        });
        found.count()
    };
    assert!(count(&place) > 0, "the test looks at the wrong place");
    let forgotten = place.run(["memory", "forget", &newest_id(&place)]);
    assert!(
        forgotten.err.contains("no byte of them is left"),
        "{forgotten:?}"
    );
    assert_eq!(count(&place), 0);
}

#[test]
fn forgetting_a_whole_scope_needs_confirmation() {
    let place = AdminPlace::new();
    place.run(["memory", "add", "one fact"]);
    place.run(["memory", "add", "--scope", "user", "two facts"]);
    let asked = place.run(["memory", "forget", "--scope", "project", "--all"]);
    assert_eq!(asked.code, 2, "{asked:?}");
    assert!(asked.err.contains("--yes"), "{asked:?}");
    let done = place.run(["memory", "forget", "--scope", "project", "--all", "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    let left = place.run(["memory", "list", "--all", "--json"]).json();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["scope"], "user");
}

#[test]
fn memories_move_as_a_file_and_a_bad_line_stores_nothing() {
    let place = AdminPlace::new();
    place.run(["memory", "add", "one fact"]);
    place.run(["memory", "add", "--scope", "user", "two facts"]);
    let file = place.run(["memory", "export"]).out;
    let other = AdminPlace::new();
    let imported = other
        .run_with(["memory", "import", "-", "--json"], &file)
        .json();
    assert_eq!(imported[0]["stored"], 2, "{imported:?}");
    let again = other
        .run_with(["memory", "import", "-", "--json"], &file)
        .json();
    assert_eq!(
        (again[0]["stored"].as_u64(), again[0]["duplicates"].as_u64()),
        (Some(0), Some(2))
    );
    let why = other.run(["memory", "why", &newest_id(&other)]);
    assert!(why.out.contains("imported from a file"), "{why:?}");
    let third = AdminPlace::new();
    let bad = format!("{file}{{\"id\":7}}\n");
    let rejected = third.run_with(["memory", "import", "-"], &bad);
    assert_eq!(rejected.code, 2, "{rejected:?}");
    assert!(rejected.err.contains("line 4"), "{rejected:?}");
    assert_eq!(third.run(["memory", "list", "--all", "--json"]).out, "");
    let written = third.run(["memory", "export", "--output", "a.jsonl"]);
    assert_eq!(written.code, 0, "{written:?}");
    let twice = third.run(["memory", "export", "--output", "a.jsonl"]);
    assert!(twice.err.contains("exists already"), "{twice:?}");
}

#[test]
fn a_hostile_text_cannot_control_the_terminal_and_secrets_are_not_stored() {
    let place = AdminPlace::new();
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let hostile = format!("deploy \u{1b}[2J\u{202e} with {secret}");
    let added = place.run(["memory", "add", &hostile]);
    assert_eq!(added.code, 0, "{added:?}");
    for arguments in [
        vec!["memory", "list"],
        vec!["memory", "search", "deploy"],
        vec!["memory", "list", "--json"],
        vec!["memory", "export"],
    ] {
        let ran = place.run(arguments.iter().copied());
        assert!(ran.out.contains("deploy"), "{ran:?}");
        assert!(!ran.out.contains(['\u{1b}', '\u{202e}']), "{ran:?}");
        assert!(!ran.out.contains(secret), "{ran:?}");
    }
    let long = "x".repeat(5_000);
    let rejected = place.run(["memory", "add", &long]);
    assert_eq!(rejected.code, 2, "{rejected:?}");
    assert!(rejected.err.contains("hint:"), "{rejected:?}");
}

#[test]
fn a_run_stores_what_was_decided_and_the_next_one_recalls_it() {
    let place = AdminPlace::new();
    let script = place.write_outside("s.toml", "[[reply]]\ntext = 'We decided to use make.'\n");
    let place = place.configured("[memory]\nrecall = true\nextract = true\n");
    let model = format!("script:{}", script.display());
    let run = |task: &str| place.run(["run", "--json", "--model", &model, task]);
    let first = run("I prefer small commits.");
    assert_eq!(first.code, 0, "{first:?}");
    let stored = place.run(["memory", "list", "--json"]).json();
    assert_eq!(stored.len(), 2, "{stored:?}");
    let second = run("How small are commits?");
    assert_eq!(second.code, 0, "{second:?}");
    assert!(second.out.contains("memory_recalled"), "{second:?}");
    let session = stored[0]["source"]["session"].as_str().expect("a session");
    let erase = ["sessions", "delete", session, "--erase", "--yes", "--json"];
    let kept = place.run(erase);
    assert_eq!(kept.code, 0, "{kept:?}");
    assert_eq!(place.run(["memory", "list", "--json"]).json().len(), 2);
}

#[test]
fn a_run_names_the_memories_that_it_recalled() {
    let place = AdminPlace::new();
    let script = place.write_outside("s.toml", "[[reply]]\ntext = 'Fridays.'\n");
    let place = place.configured("[memory]\nrecall = true\n");
    place.run(["memory", "add", "We deploy on Fridays"]);
    let id = newest_id(&place);
    let model = format!("script:{}", script.display());
    let said = place.run(["run", "--model", &model, "When do we deploy?"]);
    let short = &id[id.len() - 8..];
    assert!(said.err.contains(&format!("({short}; about")), "{said:?}");
    let why = place.run(["memory", "why", short]);
    assert_eq!(why.code, 0, "{why:?}");
}

#[test]
fn the_memories_of_an_erased_session_go_with_it_on_request() {
    let place = AdminPlace::new();
    let script = place.write_outside("s.toml", "[[reply]]\ntext = 'Yes.'\n");
    let place = place.configured("[memory]\nextract = true\n");
    let model = format!("script:{}", script.display());
    let ran = place.run(["run", "--model", &model, "I prefer small commits."]);
    assert_eq!(ran.code, 0, "{ran:?}");
    place.run(["memory", "add", "stays here"]);
    let stored = place.run(["memory", "list", "--json"]).json();
    let session = stored[1]["source"]["session"].as_str().expect("a session");
    let erase = [
        "sessions",
        "delete",
        session,
        "--erase",
        "--memories",
        "--yes",
        "--json",
    ];
    let erased = place.run(erase).json();
    assert_eq!(
        erased[0]["memories"].as_array().map(Vec::len),
        Some(1),
        "{erased:?}"
    );
    assert_eq!(place.run(["memory", "list", "--json"]).json().len(), 1);
}

#[cfg(unix)]
#[test]
fn why_names_the_call_of_a_command_that_worked() {
    use std::os::unix::fs::PermissionsExt;

    let place = AdminPlace::new();
    let script = place.write_outside(
        "s.toml",
        "[[reply]]\ncalls = [{ tool = \"run_shell\", arguments = { command = \"./make test\" } }]\n\
         [[reply]]\ntext = 'Done.'\n",
    );
    let make = place.write("make", "#!/bin/sh\n");
    fs::set_permissions(make, fs::Permissions::from_mode(0o755)).expect("is set");
    let place = place.configured("[memory]\nextract = true\n");
    let model = format!("script:{}", script.display());
    let ran = place.run([
        "run",
        "--json",
        "--model",
        &model,
        "--allow",
        "run_shell",
        "Test it.",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let events = ran.json();
    let mut ids = events
        .iter()
        .filter_map(|event| event["invocation_id"].as_str());
    let call = ids.next().expect("it ran");
    let why = place.run(["memory", "why", &newest_id(&place)]);
    assert!(why.out.contains("pattern  command-worked"), "{why:?}");
    assert!(why.out.contains(&format!("call     {call}")), "{why:?}");
}
