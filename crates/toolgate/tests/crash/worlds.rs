//! The databases in which cases run, and what each scenario comes to in them when nothing goes wrong.

use std::error::Error;

use tempfile::TempDir;
use toolgate::StoreHandle;
use toolgate_store::{PostgresStore, SqliteStore};
use toolgate_testkit::crash::{
    CaseReport, CrashChild, EffectLog, Extent, Facts, Mishaps, Seen, Table, World,
};

use crate::{child_command, database::Database, runs, scenarios::names, tools::registry};

/// One world per kind of store, with every scenario once without mishaps.
pub(crate) struct Worlds {
    worlds: Vec<(&'static str, World)>,
    calm: Vec<Calm>,
    facts: Facts,
    database: Option<Database>,
    _dir: TempDir,
}

/// A scenario in a store, as it goes when nothing goes wrong.
struct Calm {
    scenario: &'static str,
    world: usize,
    seen: Seen,
    extents: Vec<Extent>,
}

impl Worlds {
    pub(crate) async fn new() -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("toolgate.db");
        let place = path.to_str().ok_or("the path is not text")?.to_owned();
        let sqlite = StoreHandle::new(SqliteStore::open(&path)?);
        let mut worlds = vec![(
            "SQLite",
            World::new(sqlite, place, dir.path().join("sqlite"), child_command),
        )];
        let database = Database::create().await?;
        if let Some(database) = &database {
            let postgres = StoreHandle::new(PostgresStore::connect(database.url()).await?);
            let world = World::new(
                postgres,
                database.url(),
                dir.path().join("postgres"),
                child_command,
            );
            worlds.push(("PostgreSQL", world));
        }
        let facts = Facts::of(&registry(&EffectLog::at("nowhere")))
            .always_knowing(runs::HELPER)
            .within(runs::budgets());
        let mut all = Self {
            worlds,
            calm: Vec::new(),
            facts,
            database,
            _dir: dir,
        };
        for world in 0..all.worlds.len() {
            for scenario in names() {
                let report = all.worlds[world].1.run(scenario, &Mishaps::none()).await?;
                // What has to be the same as without mishaps is; the rest has to be right by itself.
                let calm = report.seen.clone();
                let report = report.judged(&calm, &all.facts);
                assert!(
                    report.violations.is_empty(),
                    "{scenario} without mishaps: {:#?}",
                    report.violations
                );
                let CaseReport { seen, extents, .. } = report;
                all.calm.push(Calm {
                    scenario,
                    world,
                    seen,
                    extents,
                });
            }
        }
        Ok(all)
    }

    /// Judges by other facts.
    pub(crate) fn judging_by(mut self, change: impl Fn(Facts) -> Facts) -> Self {
        self.facts = change(self.facts);
        self
    }

    /// Runs the case of a seed and says how to repeat it if a rule was broken.
    pub(crate) async fn run(
        &mut self,
        seed: u64,
        plan: &crate::Plan,
        table: &mut Table,
    ) -> Result<CaseReport, Box<dyn Error>> {
        let number = self.calm.len() as u64;
        let calm = &self.calm[usize::try_from(seed % number)?];
        // A stride that shares no factor with small numbers reaches distant places early.
        let lap = seed / number * 37 + seed % number;
        let mishaps = plan(lap, seed, &calm.extents);
        let (store, world) = &mut self.worlds[calm.world];
        let report = world
            .run(calm.scenario, &mishaps)
            .await?
            .judged(&calm.seen, &self.facts);
        table.add(store, &report);
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
        mishaps: &Mishaps,
    ) -> Result<CaseReport, Box<dyn Error>> {
        let calm = self
            .calm
            .iter()
            .find(|calm| calm.scenario == scenario)
            .ok_or("there is no such scenario")?;
        Ok(self.worlds[calm.world]
            .1
            .run(scenario, mishaps)
            .await?
            .judged(&calm.seen, &self.facts))
    }

    /// Reads every chain once more from its start, and removes the databases.
    pub(crate) async fn close(self) -> Result<(), Box<dyn Error>> {
        for (store, world) in self.worlds {
            let mut chains = toolgate_testkit::crash::Chains::default();
            chains.follow(world.store()).await?;
            assert!(chains.broken.is_empty(), "{store}: {:?}", chains.broken);
        }
        if let Some(database) = self.database {
            database.remove().await?;
        }
        Ok(())
    }
}

/// The store of a child, with what is planned for it in front.
pub(crate) async fn open_in_child(child: &CrashChild) -> Result<StoreHandle, Box<dyn Error>> {
    Ok(match child.place().starts_with("postgres:") {
        true => StoreHandle::new(child.store(PostgresStore::connect(child.place()).await?)),
        false => StoreHandle::new(child.store(SqliteStore::open(child.place())?)),
    })
}
