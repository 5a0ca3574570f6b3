use super::*;
use crate::workspace::open::NEW_FILE_MODE;
use std::fs;

struct TestWorkspace {
    dir: tempfile::TempDir,
    workspace: Workspace,
}

impl TestWorkspace {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("written");
        }
        let workspace = Workspace::open(dir.path()).expect("a workspace");
        Self { dir, workspace }
    }

    fn plan(&self, place: &str, after: Option<&str>) -> PlannedChange {
        let place = RootedPath::from_normalized(place);
        let before = self.workspace.read_target(&place).expect("readable");
        let after = after.map(|text| FileSnapshot::new(text.to_owned(), NEW_FILE_MODE));
        PlannedChange {
            place,
            renamed_from: None,
            before,
            after,
        }
    }

    fn commit(
        &self,
        plan: &[PlannedChange],
        watch: &mut dyn FnMut(usize) -> Result<(), ToolError>,
    ) -> Result<(), ToolError> {
        commit_changes(
            &self.workspace,
            CallId::new(uuid::Uuid::from_u128(7)),
            plan,
            &HaltFlag::default(),
            watch,
        )
    }

    /// Every file and directory with its content.
    fn list_files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.dir.path().to_owned()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).expect("readable") {
                let path = entry.expect("an entry").path();
                let name = path
                    .strip_prefix(self.dir.path())
                    .expect("inside")
                    .display()
                    .to_string();
                if path.is_dir() {
                    open.push(path);
                    found.push(name);
                } else {
                    found.push(format!(
                        "{name}={}",
                        fs::read_to_string(path).expect("text")
                    ))
                }
            }
        }
        found.sort();
        found
    }
}

fn plan_of_four_changes(space: &TestWorkspace) -> Vec<PlannedChange> {
    vec![
        space.plan("a", Some("new a")),
        space.plan("deep/er/b", Some("new b")),
        space.plan("c", None),
        space.plan("d", Some("new d")),
    ]
}

#[test]
fn a_failed_step_undoes_all_steps_before_it() {
    for failing in 0..4 {
        let space = TestWorkspace::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
        let plan = plan_of_four_changes(&space);
        let before = space.list_files();
        let mut watch = |step| {
            if step == failing {
                Err(ToolError::new("the disk failed"))
            } else {
                Ok(())
            }
        };
        let error = space.commit(&plan, &mut watch).expect_err("it fails");
        assert_eq!(error.model, "the disk failed; nothing was changed");
        assert_eq!(space.list_files(), before, "after step {failing}");
    }
    let space = TestWorkspace::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
    space
        .commit(&plan_of_four_changes(&space), &mut |_| Ok(()))
        .expect("nothing fails");
    assert_eq!(
        space.list_files(),
        ["a=new a", "d=new d", "deep", "deep/er", "deep/er/b=new b"]
    );
}

#[test]
fn between_any_two_steps_every_file_is_the_old_one_or_the_new_one() {
    let space = TestWorkspace::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
    let plan = plan_of_four_changes(&space);
    let read = |name: &str| fs::read_to_string(space.dir.path().join(name)).ok();
    let mut seen = Vec::new();
    let mut watch = |step| {
        seen.push((step, read("a"), read("deep/er/b"), read("c"), read("d")));
        Ok(())
    };
    space.commit(&plan, &mut watch).expect("nothing fails");
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        (0, text("old a"), None, text("old c"), text("old d")),
        (1, text("new a"), None, text("old c"), text("old d")),
        (
            2,
            text("new a"),
            text("new b"),
            text("old c"),
            text("old d"),
        ),
        (3, text("new a"), text("new b"), None, text("old d")),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_file_that_another_process_changes_at_the_last_moment_is_not_overwritten() {
    for (name, theirs) in [
        ("a", "theirs"),
        ("deep/er/b", "theirs"),
        ("c", "theirs"),
        ("d", "theirs"),
    ] {
        let space = TestWorkspace::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
        let plan = plan_of_four_changes(&space);
        let step = plan
            .iter()
            .position(|planned| planned.place == RootedPath::from_normalized(name))
            .expect("planned");
        let mut watch = |at| {
            if at == step {
                fs::write(space.dir.path().join(name), theirs).expect("written");
            }
            Ok(())
        };
        let error = space.commit(&plan, &mut watch).expect_err("it was changed");
        assert!(
            error.model.contains("by another process in the meantime"),
            "{}",
            error.model
        );
        assert_eq!(error.category, ErrorCategory::Conflict);
        let found = space.list_files();
        assert!(found.contains(&format!("{name}={theirs}")), "{found:?}");
        assert!(
            found.iter().all(|entry| !entry.contains("=new")),
            "{found:?}"
        );
    }
}

#[test]
fn files_that_cannot_be_restored_are_named() {
    let space = TestWorkspace::new(&[("a", "old a"), ("d", "old d")]);
    let plan = [
        space.plan("a", Some("new a")),
        space.plan("d", Some("new d")),
    ];
    let mut watch = |step| {
        if step == 1 {
            let a = space.dir.path().join("a");
            fs::remove_file(&a).expect("removed");
            fs::create_dir(&a).expect("created");
            return Err(ToolError::new("the disk failed"));
        }
        Ok(())
    };
    let error = space.commit(&plan, &mut watch).expect_err("it fails");
    assert_eq!(
        error.model,
        "the disk failed; these files were changed and could not be restored: a"
    );
    assert_eq!(error.category, ErrorCategory::Unknown);
}

#[test]
fn work_that_was_stopped_before_it_began_leaves_nothing_behind() {
    let space = TestWorkspace::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
    let plan = plan_of_four_changes(&space);
    let before = space.list_files();
    let halt = HaltFlag::default();
    halt.begin_writing().expect("begun elsewhere");
    let call = CallId::new(uuid::Uuid::from_u128(7));
    assert!(commit_changes(&space.workspace, call, &plan, &halt, &mut |_| Ok(())).is_err());
    assert_eq!(space.list_files(), before);
}
