//! The corpus of every target holds, whichever way the tests are run.

use crate::{TARGETS, harness::FuzzFolders};

#[test]
fn every_committed_input_keeps_the_properties_of_its_target() {
    for target in TARGETS {
        (target.run)(b"");
        let folder = FuzzFolders::of_repository().corpus.join(target.name);
        let files = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{} has no corpus: {error}", target.name));
        let mut count = 0;
        for file in files {
            let path = file.expect("a file").path();
            (target.run)(&std::fs::read(&path).expect("is readable"));
            count += 1;
        }
        assert!(count >= 3, "{} has only {count} inputs", target.name);
    }
}

#[test]
fn every_corpus_belongs_to_a_target_and_names_are_unique() {
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    let mut folders: Vec<String> = std::fs::read_dir(FuzzFolders::of_repository().corpus)
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    folders.sort_unstable();
    assert_eq!(folders, names);
}
