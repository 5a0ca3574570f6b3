//! The environment of a scenario: clock, ids, store, keys, tools and the default stack.

use std::sync::Arc;

use toolgate::{
    Config, Model, Resources,
    approval::{KeyKind, Keyring, SecretKey},
    default_stack,
    layers::SharedRedactor,
    prelude::*,
    session::SessionBuilder,
    store::{MemoryStore, SqliteStore, StoreHandle},
    tool::ToolSpec,
    value::{IdSource, SessionId},
};
use toolgate_testkit::{CountingIds, TestClock};

use crate::modes::{
    asked::RequestRecorder,
    scenario::ModeScenario,
    stage::{ActCue, ActStage, StagedModel},
    tools::{RunMode, ToolEffects, build_registry, tool_specs},
};

/// The configuration of every scenario, before its own additions.
const CONFIG: &str = "
[layers.approval]
tools = ['ask_*']
expires_after = '60s'
[layers.summary]
template = '{label}: {status}'
[layers.retry]
jitter = 0.0
[layers.policy]
default = 'allow'
";

/// Ids that continue counting after a process dies.
#[derive(Clone, Default)]
struct SharedIds(Arc<CountingIds>);

impl IdSource for SharedIds {
    fn next_uuid(&self) -> uuid::Uuid {
        self.0.next_uuid()
    }
}

/// The environment of one scenario in one mode.
pub struct ModeWorld {
    pub mode: RunMode,
    pub clock: TestClock,
    pub store: StoreHandle,
    pub deeds: ToolEffects,
    pub stage: ActStage,
    pub cues: tokio::sync::mpsc::UnboundedReceiver<ActCue>,
    pub model: Arc<RequestRecorder>,
    pub session: SessionId,
    ids: SharedIds,
    config: String,
    /// The directory of the store, deleted on drop.
    _dir: Option<tempfile::TempDir>,
}

impl ModeWorld {
    pub fn new(scenario: &ModeScenario, mode: RunMode) -> Self {
        let (stage, cues) = ActStage::new(scenario.acts.clone());
        let dir = scenario
            .sqlite
            .then(|| tempfile::tempdir().expect("a directory"));
        let store = match &dir {
            Some(dir) => {
                StoreHandle::new(SqliteStore::open(dir.path().join("toolgate.db")).expect("opens"))
            }
            None => StoreHandle::new(MemoryStore::new()),
        };
        Self {
            mode,
            clock: TestClock::new(),
            store,
            deeds: ToolEffects::default(),
            stage,
            cues,
            model: Arc::new(RequestRecorder::new((scenario.model)())),
            session: "00000000-0000-0000-0000-0000000000aa"
                .parse()
                .expect("an id"),
            ids: SharedIds::default(),
            config: format!("{CONFIG}{}", scenario.config),
            _dir: dir,
        }
    }

    /// Builds a registry with tools of this mode.
    pub fn registry(&self, specs: Vec<ToolSpec>) -> Registry {
        build_registry(self.mode, specs, &self.deeds, &self.stage)
    }

    /// Builds the stack and the redactor of a process.
    pub fn build_stack(&self) -> (Vec<toolgate::stack::AnyLayer>, SharedRedactor, Keyring) {
        let ring = Keyring::new(SecretKey::new(
            "k1".parse().expect("a name"),
            KeyKind::HmacSha256,
            [1; 32],
        ));
        let parts = Resources::new().with(ring.clone());
        let config = Config::parse(&self.config).unwrap_or_else(|error| panic!("{error}"));
        let layers = default_stack(&config, &parts).expect("valid");
        (
            layers,
            parts
                .get::<SharedRedactor>()
                .expect("the default stack redacts"),
            ring,
        )
    }

    /// Opens the session, as a new process would.
    pub async fn open_session(&self, scenario: &ModeScenario) -> Session {
        let registry = self.registry(tool_specs());
        let (layers, redactor, ring) = self.build_stack();
        let stack = Stack::over(registry.clone())
            .any_layers(layers)
            .build()
            .expect("in order");
        let model: Arc<dyn Model> = match self.mode {
            RunMode::Managed => Arc::new(StagedModel {
                model: self.model.clone(),
                stage: self.stage.clone(),
            }),
            RunMode::HostDriven => self.model.clone(),
        };
        let store = self.store.clone();
        let clock = self.clock.clone();
        let ids = self.ids.clone();
        let session = self.session;
        let builder: SessionBuilder = Session::ungated(model, registry)
            .stack(stack)
            .principal("eve");
        let builder = builder.dispatcher(move |builder| {
            let builder = builder.store(store).clock(clock).ids(ids).session(session);
            // The previous process counts as dead, so its lease may be taken over.
            builder.redactor(redactor).keyring(ring).take_over()
        });
        (scenario.setup)(self, builder)
            .build()
            .await
            .expect("builds")
    }
}
