//! Reports the files that a call has changed.

use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, FileChange, FileChangeKind, Layer, LayerCapabilities, Next, Outcome,
    SettledOutcome, Status, Timestamp, Trail,
};

use crate::{BadOption, Configurable, PathBase, Resources, record::ui::detect::detect_changes};

/// Reports the files that a successful call has changed, as the event `tool_files_changed`.
///
/// Screens show the event, and a [`FileWatcher`](crate::FileWatcher) that is given the events of a
/// session notifies its subscribers. The model notices nothing. The changes come from the first source that has any: the list
/// `files_changed` or `changes` of the result, the note `files`, a patch in the argument `patch` or
/// `diff`, and for a tool that edits, deletes or moves, the arguments that its annotations declare
/// as paths. Arguments are those that the tool received. A call that failed, was blocked, denied or
/// cached, a dry run, or a call with an unknown outcome reports nothing, and neither does a tool
/// that only reads.
///
/// ```
/// use toolgate_core::Stack;
/// use toolgate_layers::FileChanges;
/// use toolgate_testkit::echo;
///
/// let stack = Stack::over(echo()).layer(FileChanges::new()).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct FileChanges {
    workspace: Option<PathBase>,
    options: FileChangesOptions,
}

/// The options of [`FileChanges`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileChangesOptions {
    /// The most changes that one call reports.
    pub max_changes: usize,
}

impl Default for FileChangesOptions {
    fn default() -> Self {
        Self { max_changes: 1000 }
    }
}

impl FileChanges {
    /// Creates a layer with the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads sizes and times of files below `workspace`.
    pub fn workspace(mut self, workspace: PathBase) -> Self {
        self.workspace = Some(workspace);
        self
    }

    /// Reports the changes of a call.
    fn report_changes(&self, call: &Call, settled: &SettledOutcome, trail: &Trail) {
        let mut changes = detect_changes(call, settled, trail);
        let omitted = changes.len().saturating_sub(self.options.max_changes);
        changes.truncate(self.options.max_changes);
        if !changes.is_empty() {
            let changes = changes.into_iter().map(|change| self.with_metadata(change));
            let probe = call.env().probe();
            probe.report_files(call, changes.collect(), omitted as u64);
        }
    }

    /// Adds size and time from the file system, if the file is inside the workspace.
    fn with_metadata(&self, mut change: FileChange) -> FileChange {
        let Some(workspace) = &self.workspace else {
            return change;
        };
        let root = workspace.root();
        change.path = relative_path(root, &change.path);
        let old_path = change.old_path.as_deref();
        change.old_path = old_path.map(|path| relative_path(root, path));
        let file = path_inside(root, &change.path);
        let metadata = file.and_then(|file| std::fs::symlink_metadata(file).ok());
        if let Some(metadata) = metadata.filter(|_| change.change != FileChangeKind::Deleted) {
            let since_epoch = metadata
                .modified()
                .ok()
                .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            change.size = Some(metadata.len());
            change.modified_at = since_epoch.map(|since| Timestamp::EPOCH.plus(since));
        }
        change
    }
}

impl Configurable for FileChanges {
    const NAME: &'static str = "file_changes";
    const SUMMARY: &'static str = "Reports the files that a call has changed.";
    type Options = FileChangesOptions;

    fn configure(options: FileChangesOptions, parts: &Resources) -> Result<Self, BadOption> {
        if options.max_changes == 0 {
            return Err(BadOption::new(
                "max_changes",
                "0 would report nothing; disable the layer instead",
            ));
        }
        Ok(Self {
            workspace: parts.get(),
            options,
        })
    }
}

impl Layer for FileChanges {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if call.is_rehearsal() {
            return next.run(call).await;
        }
        let trail = next.trail();
        let outcome = next.run(call.clone()).await;
        // Only a success that really ran: a cached result was reported when it was new.
        if let Some(settled) = outcome.settled()
            && settled.status == Status::Ok
            && !settled.cached
        {
            self.report_changes(&call, settled, &trail);
        }
        outcome
    }

    fn applies_to(&self, call: &Call) -> bool {
        call.annotations().may_write()
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).recording()
    }
}

/// Returns the path relative to `root` if it is below it, or else as it is.
fn relative_path(root: &Path, path: &str) -> String {
    match Path::new(path).strip_prefix(root) {
        Ok(inside) if !inside.as_os_str().is_empty() => inside.to_string_lossy().into_owned(),
        _ => path.to_owned(),
    }
}

/// Returns the file at `path` below `root`, or `None` if the path leads outside. The last part is
/// not followed.
fn path_inside(root: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    if path
        .components()
        .any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return None;
    }
    // A tool's result is not trusted: a linked directory must not make the layer read files
    // elsewhere.
    let root = root.canonicalize().ok()?;
    let parent = root.join(path.parent()?).canonicalize().ok()?;
    parent
        .starts_with(&root)
        .then(|| path.file_name().map(|name| parent.join(name)))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use toolgate_core::{
        Annotations, ApprovalAnswer, ApprovalRequest, Arguments, CallSeed, Decision, Json,
        Registry, Resource, Schema, Stack, ToolKind, ToolOutput, ToolSpec, Verdict, View, map_call,
    };
    use toolgate_testkit::{FakeExecutor, ReportProbe, run_twice, seed, seed_for};

    fn view() -> View {
        let registry = Registry::new();
        let path = |kind, names: &[&str]| {
            let plain = Annotations::default().with_kind(kind);
            names
                .iter()
                .fold(plain, |all, name| all.with_resource(Resource::path(name)))
        };
        let tools = [
            ("edit", path(ToolKind::Edit, &["path"])),
            ("delete", path(ToolKind::Delete, &["paths"])),
            ("move", path(ToolKind::Move, &["from", "to"])),
            ("patch", Annotations::default()),
            ("status", Annotations::read_only()),
        ];
        for (name, annotations) in tools {
            let spec =
                ToolSpec::new(name, "Works.", Schema::any_object()).with_annotations(annotations);
            registry.register_host(spec).expect("a new name");
        }
        toolgate_testkit::plain_view(&registry)
    }

    fn seed_of(tool: &str, arguments: Value) -> CallSeed {
        seed_for(&view(), tool, arguments)
    }

    async fn changes(
        seed: CallSeed,
        outcome: Outcome,
    ) -> Vec<(FileChangeKind, String, Option<String>)> {
        let probe = ReportProbe::new();
        let stack = Stack::over(FakeExecutor::new().then(outcome))
            .layer(FileChanges::new())
            .build()
            .expect("in order");
        stack.run(Call::new(probe.attach(seed))).await;
        let files = probe.files().into_iter();
        files
            .map(|change| (change.change, change.path, change.old_path))
            .collect()
    }

    fn one(kind: FileChangeKind, path: &str) -> Vec<(FileChangeKind, String, Option<String>)> {
        vec![(kind, path.to_owned(), None)]
    }

    #[tokio::test]
    async fn the_result_comes_first_then_notes_then_a_patch_then_the_named_paths() {
        let arguments = json!({ "path": "argued", "patch": "*** Add File: patched" });
        let bare = json!({ "path": "argued" });
        let noted = ToolOutput::from("done").with_notes(|notes| {
            notes.metadata.insert(
                "files".into(),
                json!([{ "path": "noted", "change": "created" }]),
            );
        });
        let listed = json!({ "files_changed": [{ "path": "listed", "type": "removed" }] });
        let seed = || seed_of("edit", arguments.clone());
        assert_eq!(
            changes(seed(), Outcome::ok(listed)).await,
            one(FileChangeKind::Deleted, "listed")
        );
        assert_eq!(
            changes(seed(), Outcome::ok(noted)).await,
            one(FileChangeKind::Created, "noted")
        );
        assert_eq!(
            changes(seed(), Outcome::ok("done")).await,
            one(FileChangeKind::Created, "patched")
        );
        let seed = seed_of("edit", bare);
        assert_eq!(
            changes(seed, Outcome::ok("done")).await,
            one(FileChangeKind::Modified, "argued")
        );
    }

    #[tokio::test]
    async fn the_kind_of_tool_says_what_happened_to_its_paths() {
        let deleted = changes(
            seed_of("delete", json!({ "paths": ["a", "./b"] })),
            Outcome::ok(""),
        )
        .await;
        assert_eq!(
            deleted,
            [
                one(FileChangeKind::Deleted, "a"),
                one(FileChangeKind::Deleted, "b")
            ]
            .concat()
        );
        let moved = changes(
            seed_of("move", json!({ "from": "a", "to": "b" })),
            Outcome::ok(""),
        )
        .await;
        assert_eq!(
            moved,
            [(
                FileChangeKind::Renamed,
                "b".to_owned(),
                Some("a".to_owned())
            )]
        );
    }

    #[tokio::test]
    async fn only_successful_calls_are_reported() {
        let seed = || seed_of("edit", json!({ "path": "a" }));
        let listed = json!({ "changes": ["a"] });
        let mut cached = SettledOutcome::new(Status::Ok);
        cached.cached = true;
        cached.value = Json::new(listed.clone()).expect("flat");
        assert_eq!(changes(seed(), cached.into()).await, []);
        for status in Status::ALL
            .into_iter()
            .filter(|status| *status != Status::Ok)
        {
            assert_eq!(
                changes(seed(), SettledOutcome::new(status).into()).await,
                [],
                "{status}"
            );
        }
        assert_eq!(
            changes(seed_of("status", json!({})), Outcome::ok(listed)).await,
            [],
            "it only reads"
        );
    }

    #[tokio::test]
    async fn a_rehearsal_reports_nothing_whatever_its_outcome() {
        let probe = ReportProbe::new();
        let answer = toolgate_core::from_fn(async |_, _| Outcome::ok(json!({ "changes": ["a"] })));
        let stack = Stack::over(FakeExecutor::new())
            .layer(FileChanges::new())
            .layer(answer)
            .build()
            .expect("in order");
        let seed = probe.attach(seed_of("edit", json!({ "path": "a" })));
        stack
            .run(Call::new(CallSeed {
                rehearsal: true,
                ..seed.clone()
            }))
            .await;
        assert!(probe.files().is_empty());
        stack.run(Call::new(seed)).await;
        assert_eq!(probe.files().len(), 1);
    }

    #[tokio::test]
    async fn the_path_that_the_tool_received_is_reported() {
        let probe = ReportProbe::new();
        let redirect = map_call(|call: Call| {
            let arguments = call
                .arguments
                .with_argument("path", json!("elsewhere"))
                .expect("flat");
            call.with_arguments(arguments)
        });
        let stack = Stack::over(FakeExecutor::new())
            .layer(FileChanges::new())
            .layer(redirect)
            .build()
            .expect("in order");
        let seed = probe.attach(seed_of("edit", json!({ "path": "a" })));
        assert!(stack.run(Call::new(seed)).await.is_ok());
        assert_eq!(probe.files()[0].path, "elsewhere");
    }

    #[tokio::test]
    async fn the_path_that_an_approver_edited_is_reported() {
        let mut seed = seed_of("edit", json!({ "path": "asked" }));
        let request = ApprovalRequest::for_call(&Call::new(seed.clone()));
        let arguments = Arguments::try_from(json!({ "path": "edited" })).expect("an object");
        let mut decision = Decision::approve("ann");
        decision.verdict = Verdict::ApproveWithEdits { arguments };
        seed.resumed
            .answers
            .push(ApprovalAnswer::for_request(&request, decision));
        assert_eq!(
            changes(seed, Outcome::ok("done")).await,
            one(FileChangeKind::Modified, "edited")
        );
    }

    #[tokio::test]
    async fn a_call_that_suspends_reports_once() {
        let probe = ReportProbe::new();
        let seed = probe.attach(seed_of("edit", json!({ "path": "a" })));
        run_twice(FileChanges::new(), seed).await.assert_replays();
        assert_eq!(probe.files().len(), 1);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn sizes_come_from_the_workspace_and_never_from_outside() {
        let root = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        std::fs::write(root.path().join("in.txt"), "12345").expect("writes");
        std::fs::write(outside.path().join("out.txt"), "123").expect("writes");
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).expect("links");
        let probe = ReportProbe::new();
        let layer = FileChanges::new().workspace(PathBase::new(root.path()));
        let absolute = root.path().join("in.txt").to_string_lossy().into_owned();
        let secret = outside
            .path()
            .join("out.txt")
            .to_string_lossy()
            .into_owned();
        let listed =
            json!({ "changes": ["in.txt", absolute, "link/out.txt", "../x", secret, "missing"] });
        let stack = Stack::over(FakeExecutor::new().then(Outcome::ok(listed)))
            .layer(layer)
            .build()
            .expect("in order");
        let seed = probe.attach(seed("write", json!({})));
        stack.run(Call::new(seed)).await;
        let known: Vec<_> = probe
            .files()
            .into_iter()
            .map(|change| (change.size, change.modified_at.is_some()))
            .collect();
        let unknown = (None, false);
        assert_eq!(
            known,
            [
                (Some(5), true),
                (Some(5), true),
                unknown,
                unknown,
                unknown,
                unknown
            ]
        );
        assert_eq!(
            probe.files()[1].path,
            "in.txt",
            "relative to the root of the workspace"
        );
    }

    #[test]
    fn a_maximum_of_zero_is_rejected() {
        let error =
            FileChanges::configure(FileChangesOptions { max_changes: 0 }, &Resources::new())
                .expect_err("0");
        assert_eq!(error.key, "max_changes");
    }
}
