use super::*;
use crate::files::NEW_FILE;
use std::fs;

struct Space {
    dir: tempfile::TempDir,
    workspace: Workspace,
}

impl Space {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("written");
        }
        let workspace = Workspace::open(dir.path()).expect("a workspace");
        Self { dir, workspace }
    }

    fn plan(&self, place: &str, after: Option<&str>) -> Planned {
        let place = Place::of(place);
        let before = self.workspace.look(&place).expect("readable");
        let after = after.map(|text| Snapshot::new(text.to_owned(), NEW_FILE));
        Planned {
            place,
            renamed_from: None,
            before,
            after,
        }
    }

    fn commit(
        &self,
        plan: &[Planned],
        watch: &mut dyn FnMut(usize) -> Result<(), ToolError>,
    ) -> Result<(), ToolError> {
        commit(
            &self.workspace,
            CallId::new(uuid::Uuid::from_u128(7)),
            plan,
            &Halt::default(),
            watch,
        )
    }

    /// Every file and directory with its content.
    fn found(&self) -> Vec<String> {
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
                match path.is_dir() {
                    true => {
                        open.push(path);
                        found.push(name);
                    }
                    false => found.push(format!(
                        "{name}={}",
                        fs::read_to_string(path).expect("text")
                    )),
                }
            }
        }
        found.sort();
        found
    }
}

fn four(space: &Space) -> Vec<Planned> {
    vec![
        space.plan("a", Some("new a")),
        space.plan("deep/er/b", Some("new b")),
        space.plan("c", None),
        space.plan("d", Some("new d")),
    ]
}

#[test]
fn a_step_that_fails_takes_all_steps_before_it_back() {
    for failing in 0..4 {
        let space = Space::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
        let (plan, before) = (four(&space), space.found());
        let mut watch = |step| match step == failing {
            true => Err(ToolError::new("the disk broke")),
            false => Ok(()),
        };
        let error = space.commit(&plan, &mut watch).expect_err("it fails");
        assert_eq!(error.model, "the disk broke; nothing was changed");
        assert_eq!(space.found(), before, "after step {failing}");
    }
    let space = Space::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
    space
        .commit(&four(&space), &mut |_| Ok(()))
        .expect("nothing fails");
    assert_eq!(
        space.found(),
        ["a=new a", "d=new d", "deep", "deep/er", "deep/er/b=new b"]
    );
}

#[test]
fn between_any_two_steps_every_file_is_the_old_one_or_the_new_one() {
    let space = Space::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
    let plan = four(&space);
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
fn what_somebody_else_changes_at_the_last_moment_is_not_overwritten() {
    for (name, theirs) in [
        ("a", "theirs"),
        ("deep/er/b", "theirs"),
        ("c", "theirs"),
        ("d", "theirs"),
    ] {
        let space = Space::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
        let plan = four(&space);
        let step = plan
            .iter()
            .position(|planned| planned.place == Place::of(name))
            .expect("planned");
        let mut watch = |at| {
            if at == step {
                fs::write(space.dir.path().join(name), theirs).expect("written");
            }
            Ok(())
        };
        let error = space.commit(&plan, &mut watch).expect_err("it was changed");
        assert!(
            error.model.contains("by somebody else meanwhile"),
            "{}",
            error.model
        );
        assert_eq!(error.category, ErrorCategory::Conflict);
        let found = space.found();
        assert!(found.contains(&format!("{name}={theirs}")), "{found:?}");
        assert!(
            found.iter().all(|entry| !entry.contains("=new")),
            "{found:?}"
        );
    }
}

#[test]
fn what_cannot_be_put_back_is_named() {
    let space = Space::new(&[("a", "old a"), ("d", "old d")]);
    let plan = [
        space.plan("a", Some("new a")),
        space.plan("d", Some("new d")),
    ];
    let mut watch = |step| {
        if step == 1 {
            let a = space.dir.path().join("a");
            fs::remove_file(&a).expect("removed");
            fs::create_dir(&a).expect("made");
            return Err(ToolError::new("the disk broke"));
        }
        Ok(())
    };
    let error = space.commit(&plan, &mut watch).expect_err("it fails");
    assert_eq!(
        error.model,
        "the disk broke; these files were changed and could not be put back: a"
    );
    assert_eq!(error.category, ErrorCategory::Unknown);
}

#[test]
fn work_that_was_stopped_before_it_began_leaves_nothing_behind() {
    let space = Space::new(&[("a", "old a"), ("c", "old c"), ("d", "old d")]);
    let (plan, before, halt) = (four(&space), space.found(), Halt::default());
    halt.begin().expect("begun elsewhere");
    let call = CallId::new(uuid::Uuid::from_u128(7));
    assert!(commit(&space.workspace, call, &plan, &halt, &mut |_| Ok(())).is_err());
    assert_eq!(space.found(), before);
}
