//! The memories of a gate: the service, the section `[memory]`, and what sessions get of it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{BillingService, Embedder, RecallOptions, Redactor, Registry, StoreHandle};
use toolgate_layers::{Config, ProgramSection, SharedRedactor};
use toolgate_runtime::{
    Gated, Memory, MemoryExtraction, MemoryExtractor, MemoryRecall, ModelBilling, ModelExtractor,
    SessionBuilder, install_memory_tools,
};

use super::{
    Gate,
    builder::GateOptions,
    models::{ModelSetup, PreparedModel},
    sections::resolve_script,
};
use crate::{Error, Result};

/// `[memory]`: what is recalled in a run, and what is stored at its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySection {
    /// True if memories that are relevant to a request become part of the instructions of its run,
    /// as quoted data.
    pub recall: bool,
    /// True if memories are extracted from what was said, at the end of each run.
    pub extract: bool,
    /// True if the model has the tools `remember` and `recall`; by default it has them if `recall`
    /// or `extract` is true.
    pub tools: Option<bool>,
    /// The maximum number of memories that are recalled; 8 by default.
    pub limit: Option<usize>,
    /// The maximum number of tokens of all recalled memories, estimated as a quarter of their bytes
    /// and 40 for each; 800 by default.
    pub max_tokens: Option<usize>,
    /// The minimum relevance of a recalled memory, from 0 to 1; 0.2 by default.
    pub min_score: Option<f32>,
    /// A model that extracts memories in addition to the patterns, as provider:name. Its requests
    /// are paid for by the budgets of the run.
    pub model: Option<String>,
}

impl ProgramSection for MemorySection {
    const NAME: &'static str = "memory";
}

impl MemorySection {
    /// Returns the section of a configuration.
    ///
    /// # Errors
    ///
    /// Fails if the section is invalid.
    pub fn of(config: &Config) -> Result<Self> {
        let mut section: Self = config.section()?;
        let score = section.min_score.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&score) {
            return Err(Error::configuration(format!(
                "memory.min_score is {score}, and a relevance is from 0 to 1"
            )));
        }
        if section.model.is_some() && !section.extract {
            let problem = "memory.model is set, but memories are not extracted";
            return Err(Error::configuration(problem).with_hint("add `extract = true` to [memory]"));
        }
        if let Some(directory) = config.directory() {
            section.model = section.model.map(|name| resolve_script(directory, name));
        }
        Ok(section)
    }

    /// Returns how memories are recalled.
    pub fn recall_options(&self) -> RecallOptions {
        let usual = RecallOptions::default();
        RecallOptions {
            limit: self.limit.unwrap_or(usual.limit),
            max_tokens: self.max_tokens.unwrap_or(usual.max_tokens),
            min_score: self.min_score.unwrap_or(usual.min_score),
            ..usual
        }
    }

    fn has_tools(&self) -> bool {
        self.tools.unwrap_or(self.recall || self.extract)
    }
}

/// Builds the memories of a gate: of its user, in its workspace, redacted by its redactor.
pub(super) fn build_memory(
    options: &GateOptions,
    store: &StoreHandle,
    redactor: &SharedRedactor,
    embedder: Option<Arc<dyn Embedder>>,
) -> Memory {
    let redactor: Arc<dyn Redactor> = Arc::new(redactor.clone());
    let mut memory = Memory::new(store.clone())
        .clock(options.dispatch.clock().clone())
        .redactor(redactor);
    if let Some(user) = &options.user {
        memory = memory.owner(user.clone());
    }
    if let Some(workspace) = &options.workspace {
        memory = memory.project(workspace.display().to_string());
    }
    match embedder {
        Some(embedder) => memory.embedder(embedder),
        None => memory,
    }
}

/// Registers the tools `remember` and `recall`, if the model has them.
pub(super) fn install_tools(
    section: &MemorySection,
    memory: &Memory,
    registry: &Registry,
) -> Result<()> {
    if section.has_tools() {
        install_memory_tools(memory, &section.recall_options(), registry)?;
    }
    Ok(())
}

impl Gate {
    /// Returns the memories of the user of this gate, in its workspace.
    pub fn memory(&self) -> Memory {
        self.assembly.memory.clone()
    }

    /// Returns the `[memory]` section of the configuration.
    pub fn memory_section(&self) -> &MemorySection {
        &self.assembly.memory_section
    }

    /// Adds to a session what `[memory]` says: recalling at the beginning of a run, and extracting
    /// at its end.
    pub(super) fn wire_memory(
        &self,
        mut builder: SessionBuilder<Gated>,
        model: Option<ModelExtractor>,
    ) -> SessionBuilder<Gated> {
        let section = &self.assembly.memory_section;
        let memory = &self.assembly.memory;
        if section.recall {
            let options = section.recall_options();
            builder = builder.strategy(MemoryRecall::new(memory.clone(), options));
        }
        if section.extract {
            let extractor = MemoryExtractor::standard();
            let extractor = match model {
                Some(model) => extractor.model(model),
                None => extractor,
            };
            builder = builder.on_run_end(MemoryExtraction::new(memory.clone(), extractor));
        }
        builder
    }

    /// Opens the model that extracts memories, if the configuration names one.
    pub(super) fn memory_model(&self, setup: &ModelSetup<'_>) -> Result<Option<ModelExtractor>> {
        let Some(name) = &self.assembly.memory_section.model else {
            return Ok(None);
        };
        let PreparedModel { model, may_use } = setup.prepare_model(name.as_str().into())?;
        let budgets = self.assembly.config.budgets().clone();
        let service =
            BillingService::new(self.store.clone(), budgets).paid_by(self.assembly.payer.clone());
        let billing = ModelBilling::new(service, self.options.dispatch.clock().clone())
            .with_prices(self.assembly.prices.clone())
            .may_use(may_use);
        Ok(Some(ModelExtractor::new(Arc::new(model), billing)))
    }
}
