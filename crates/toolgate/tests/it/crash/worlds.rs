//! The databases of the cases, and the reference result of each scenario without mishaps.

use std::error::Error;

use tempfile::TempDir;
use toolgate::store::StoreHandle;
use toolgate_store::{PostgresStore, SqliteStore};
use toolgate_testkit::crash::{
    CaseReport, CrashChild, CrashTable, CrashWorld, EffectLog, MishapPlan, ProcessExtent,
    ScenarioFacts, SessionSnapshot,
};

use crate::crash::{
    child_command, database::CrashDatabase, runs, scenarios::scenario_names, tools::build_registry,
};

/// One world per kind of store, with every scenario once without mishaps.
pub(crate) struct CrashWorlds {
    worlds: Vec<(&'static str, CrashWorld)>,
    calm: Vec<ReferenceRun>,
    facts: ScenarioFacts,
    database: Option<CrashDatabase>,
    _dir: TempDir,
}

/// The reference result of a scenario in a store, without mishaps.
struct ReferenceRun {
    scenario: &'static str,
    world: usize,
    seen: SessionSnapshot,
    extents: Vec<ProcessExtent>,
}

impl CrashWorlds {
    pub(crate) async fn new() -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("toolgate.db");
        let place = path.to_str().ok_or("the path is not text")?.to_owned();
        let sqlite = StoreHandle::new(SqliteStore::open(&path)?);
        let mut worlds = vec![(
            "SQLite",
            CrashWorld::new(sqlite, place, dir.path().join("sqlite"), child_command),
        )];
        let database = CrashDatabase::create().await?;
        if let Some(database) = &database {
            let postgres = StoreHandle::new(PostgresStore::connect(database.url()).await?);
            let world = CrashWorld::new(
                postgres,
                database.url(),
                dir.path().join("postgres"),
                child_command,
            );
            worlds.push(("PostgreSQL", world));
        }
        let facts = ScenarioFacts::from_registry(&build_registry(&EffectLog::open_at("nowhere")))
            .with_known_outcome(runs::HELPER)
            .within_budgets(runs::budgets());
        let mut all = Self {
            worlds,
            calm: Vec::new(),
            facts,
            database,
            _dir: dir,
        };
        for world in 0..all.worlds.len() {
            for scenario in scenario_names() {
                let report = all.worlds[world]
                    .1
                    .run_case(scenario, &MishapPlan::none())
                    .await?;
                // The reference run itself has to keep the rules.
                let calm = report.seen.clone();
                let report = report.compare_with(&calm, &all.facts);
                assert!(
                    report.violations.is_empty(),
                    "{scenario} without mishaps: {:#?}",
                    report.violations
                );
                let CaseReport { seen, extents, .. } = report;
                all.calm.push(ReferenceRun {
                    scenario,
                    world,
                    seen,
                    extents,
                });
            }
        }
        Ok(all)
    }

    /// Replaces the facts that cases are judged by.
    pub(crate) fn judging_by(mut self, change: impl Fn(ScenarioFacts) -> ScenarioFacts) -> Self {
        self.facts = change(self.facts);
        self
    }

    /// Runs the case of a seed, and prints how to repeat it if a rule was violated.
    pub(crate) async fn run_case(
        &mut self,
        seed: u64,
        plan: &crate::crash::CasePlan,
        table: &mut CrashTable,
    ) -> Result<CaseReport, Box<dyn Error>> {
        let number = self.calm.len() as u64;
        let calm = &self.calm[usize::try_from(seed % number)?];
        // A stride that is coprime to small numbers reaches distant places early.
        let lap = seed / number * 37 + seed % number;
        let mishaps = plan(lap, seed, &calm.extents);
        let (store, world) = &mut self.worlds[calm.world];
        let report = world
            .run_case(calm.scenario, &mishaps)
            .await?
            .compare_with(&calm.seen, &self.facts);
        table.add_case(store, &report);
        if !report.violations.is_empty() {
            println!("{} on {store}, seed {seed}, {mishaps}:", calm.scenario);
            report
                .violations
                .iter()
                .for_each(|violation| println!("  {violation}"));
            println!("  repeat it with TOOLGATE_CRASH_SEED={seed}");
        }
        Ok(report)
    }

    /// Runs a scenario in the first store.
    pub(crate) async fn run_one(
        &mut self,
        scenario: &str,
        mishaps: &MishapPlan,
    ) -> Result<CaseReport, Box<dyn Error>> {
        let calm = self
            .calm
            .iter()
            .find(|calm| calm.scenario == scenario)
            .ok_or("there is no such scenario")?;
        Ok(self.worlds[calm.world]
            .1
            .run_case(scenario, mishaps)
            .await?
            .compare_with(&calm.seen, &self.facts))
    }

    /// Verifies every chain once more from its start, and drops the databases.
    pub(crate) async fn close(self) -> Result<(), Box<dyn Error>> {
        for (store, world) in self.worlds {
            let mut chains = toolgate_testkit::crash::LedgerChains::default();
            chains.read_new_entries(world.store()).await?;
            assert!(chains.broken.is_empty(), "{store}: {:?}", chains.broken);
        }
        if let Some(database) = self.database {
            database.drop_database().await?;
        }
        Ok(())
    }
}

/// Opens the store of a child, behind the planned mishaps.
pub(crate) async fn open_in_child(child: &CrashChild) -> Result<StoreHandle, Box<dyn Error>> {
    Ok(if child.store_location().starts_with("postgres:") {
        StoreHandle::new(child.wrap_store(PostgresStore::connect(child.store_location()).await?))
    } else {
        StoreHandle::new(child.wrap_store(SqliteStore::open(child.store_location())?))
    })
}
