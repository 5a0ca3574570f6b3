//! What a scenario takes place in: a clock, ids, a store, keys, tools and the stack that people get.

use std::sync::Arc;

use toolgate::{
    Config, IdSource, KeyKind, Keyring, Model, Parts, SecretKey, SessionBuilder, SessionId,
    SharedRedactor, StoreHandle, default_stack, prelude::*, store::SqliteStore,
};
use toolgate_testkit::{CountingIds, TestClock};

use crate::{
    asked::Watched,
    scenario::Scenario,
    stage::{Cue, Stage, Staged},
    tools::{Deeds, Regime, registry, specs},
};

/// What every scenario is configured with, before what it brings itself.
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

/// Ids that go on counting when a process is lost.
#[derive(Clone, Default)]
struct SharedIds(Arc<CountingIds>);

impl IdSource for SharedIds {
    fn next_uuid(&self) -> uuid::Uuid {
        self.0.next_uuid()
    }
}

/// A world for one scenario in one regime.
pub struct World {
    pub regime: Regime,
    pub clock: TestClock,
    pub store: StoreHandle,
    pub deeds: Deeds,
    pub stage: Stage,
    pub cues: tokio::sync::mpsc::UnboundedReceiver<Cue>,
    pub model: Arc<Watched>,
    pub session: SessionId,
    ids: SharedIds,
    config: String,
    /// Keeps the file of the store for as long as it is used.
    _dir: Option<tempfile::TempDir>,
}

impl World {
    pub fn new(scenario: &Scenario, regime: Regime) -> Self {
        let (stage, cues) = Stage::new(scenario.acts.clone());
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
            regime,
            clock: TestClock::new(),
            store,
            deeds: Deeds::default(),
            stage,
            cues,
            model: Arc::new(Watched::new((scenario.model)())),
            session: "00000000-0000-0000-0000-0000000000aa"
                .parse()
                .expect("an id"),
            ids: SharedIds::default(),
            config: format!("{CONFIG}{}", scenario.config),
            _dir: dir,
        }
    }

    /// A registry with tools of this regime.
    pub fn registry(&self, specs: Vec<ToolSpec>) -> Registry {
        registry(self.regime, specs, &self.deeds, &self.stage)
    }

    /// The layers of a process, and who redacts for it.
    pub fn layers(&self) -> (Vec<toolgate::AnyLayer>, SharedRedactor, Keyring) {
        let ring = Keyring::new(SecretKey::new(
            "k1".parse().expect("a name"),
            KeyKind::HmacSha256,
            [1; 32],
        ));
        let parts = Parts::new().with(ring.clone());
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

    /// A process that takes the session up, or begins it.
    pub async fn process(&self, scenario: &Scenario) -> Session {
        let registry = self.registry(specs());
        let (layers, redactor, ring) = self.layers();
        let stack = Stack::over(registry.clone())
            .any_layers(layers)
            .build()
            .expect("in order");
        let model: Arc<dyn Model> = match self.regime {
            Regime::Core => Arc::new(Staged {
                model: self.model.clone(),
                stage: self.stage.clone(),
            }),
            Regime::Host => self.model.clone(),
        };
        let (store, clock, ids, session) = (
            self.store.clone(),
            self.clock.clone(),
            self.ids.clone(),
            self.session,
        );
        let builder: SessionBuilder = Session::builder(model, registry)
            .stack(stack)
            .principal("eve");
        let builder = builder.dispatcher(move |builder| {
            let builder = builder
                .store_handle(store)
                .clock(clock)
                .ids(ids)
                .session(session);
            // The process before this one is taken to be lost.
            builder.redactor(redactor).keyring(ring).take_over()
        });
        (scenario.setup)(self, builder)
            .build()
            .await
            .expect("builds")
    }
}
