//! The parts of a gate that follow from its configuration: services, stack, redactor, approver.

use std::{path::Path, sync::Arc};

use toolgate_core::{
    AnyLayer, Embedder, Hooks, Keyring, Payer, Prices, Registry, SearchService, Stack, StoreHandle,
};
use toolgate_layers::{
    CommandHooks, Config, Configurable as _, ConfiguredHooks, FilePreview, KnownSecrets, PathBase,
    Resources, RuleBook, SecretScanner, SecretScannerOptions, SharedRedactor,
};
use toolgate_runtime::{Memory, Skills};

use crate::{
    Error, Result,
    gate::{
        AgentsSection, ApproveMode, HooksSection, MemorySection, ProjectInstructions,
        RoutingSection, RunSection, agents,
        approve::{SharedApprover, apply_mode, standing_approver},
        builder::GateOptions,
        memory, models,
    },
    search::SearchSection,
};

/// Everything that is built from the configuration, together.
#[derive(Debug)]
pub(super) struct GateAssembly {
    pub(super) config: Config,
    pub(super) run: RunSection,
    pub(super) routing: RoutingSection,
    pub(super) agents: AgentsSection,
    pub(super) resources: Resources,
    pub(super) stack: Stack,
    pub(super) redactor: SharedRedactor,
    pub(super) approve: ApproveMode,
    pub(super) approver: Option<SharedApprover>,
    pub(super) payer: Payer,
    pub(super) prices: Prices,
    pub(super) skills: Option<Skills>,
    pub(super) project: ProjectInstructions,
    pub(super) search: SearchService,
    pub(super) memory_section: MemorySection,
    pub(super) memory: Memory,
}

impl GateAssembly {
    pub(super) fn build(
        options: &GateOptions,
        config: Config,
        store: &StoreHandle,
        keyring: &Keyring,
        registry: &Registry,
    ) -> Result<Self> {
        let run = RunSection::of(&config)?;
        let routing = RoutingSection::of(&config)?;
        routing.check()?;
        models::ModelAddresses::configured(&run, &routing)?;
        let approve = options.approve.unwrap_or(run.approve);
        let config = apply_mode(config, approve)?;
        let payer = default_payer(options);
        let resources = share_resources(options, store, keyring, &payer)?;
        let skills = agents::install_skills(&run, options.workspace.as_deref(), registry)?;
        let hooks = HooksSection::of(&config)?;
        let shared_hooks = resources.get_or_default::<Arc<Hooks>>();
        shared_hooks.seal_with(keyring.clone());
        let stack = config.build(registry.clone(), &resources)?;
        // A stack without the layer `redact` still has events, and they are redacted all the same.
        let redactor = resources.get::<SharedRedactor>().unwrap_or_else(|| {
            let known = known_secrets(keyring);
            let known = known.values().map(str::to_owned);
            let options = SecretScannerOptions::default();
            SharedRedactor::new(SecretScanner::with_options(options, known))
        });
        let memory_section = MemorySection::of(&config)?;
        let embedder = open_embedder(options, &config)?;
        let memory = memory::build_memory(options, store, &redactor, embedder.clone());
        memory::install_tools(&memory_section, &memory, registry)?;
        install_hooks(&hooks, &config, &stack, &shared_hooks, &redactor)?;
        let prices = match &options.prices {
            Some(prices) => prices.clone(),
            None => models::load_prices(&run)?,
        };
        let approver = standing_approver(approve, options.user.as_ref(), resources.get())
            .or_else(|| options.approver.clone());
        Ok(Self {
            agents: AgentsSection::of(&config)?,
            project: ProjectInstructions::find(options, &run)?,
            search: search_service(options, store, embedder),
            routing,
            config,
            run,
            resources,
            stack,
            redactor,
            approve,
            approver,
            payer,
            prices,
            skills,
            memory_section,
            memory,
        })
    }
}

/// Returns what turns texts into vectors, for search and memories: the embedder of the builder, or
/// else that of the section `[search]`.
fn open_embedder(options: &GateOptions, config: &Config) -> Result<Option<Arc<dyn Embedder>>> {
    match &options.embedder {
        Some(embedder) => Ok(Some(embedder.clone())),
        None => config.section::<SearchSection>()?.open_embedder(),
    }
}

fn search_service(
    options: &GateOptions,
    store: &StoreHandle,
    embedder: Option<Arc<dyn Embedder>>,
) -> SearchService {
    let service = SearchService::new(store.clone(), options.dispatch.clock().clone());
    match embedder {
        Some(embedder) => service.with_embedder(embedder),
        None => service,
    }
}

/// Adds the commands of the file to the hooks of the stack.
fn install_hooks(
    section: &HooksSection,
    config: &Config,
    stack: &Stack,
    hooks: &Hooks,
    redactor: &SharedRedactor,
) -> Result<()> {
    if section.is_empty() {
        return Ok(());
    }
    // Fail closed: hooks that a user relies on must not be left out in silence.
    let is_hooks = |layer: &AnyLayer| layer.capabilities().kind == Some(ConfiguredHooks::NAME);
    if !stack.any_layers().iter().any(is_hooks) {
        let problem = "the file has [hooks], but its stack has no layer `hooks` to run them";
        return Err(Error::configuration(problem)
            .with_hint("add `hooks` to stack.order, or remove `enabled = false`"));
    }
    // Names of files in the section are relative to it, and their content was trusted there.
    let directory = config.directory().unwrap_or(Path::new("."));
    let commands = CommandHooks::new(directory, Some(redactor.clone()));
    for hook in &section.pre {
        commands.add_pre(hooks, hook.clone());
    }
    for hook in &section.post {
        commands.add_post(hooks, hook.clone());
    }
    Ok(())
}

fn default_payer(options: &GateOptions) -> Payer {
    options.payer.clone().unwrap_or_else(|| Payer {
        user: options.user.as_ref().map(|user| user.as_str().into()),
        project: project_name(options).map(|project| project.as_str().into()),
        ..Payer::default()
    })
}

fn project_name(options: &GateOptions) -> Option<String> {
    let workspace = options.workspace.as_ref()?;
    Some(workspace.display().to_string())
}

/// Returns the services that layers need and no file can describe.
fn share_resources(
    options: &GateOptions,
    store: &StoreHandle,
    keyring: &Keyring,
    payer: &Payer,
) -> Result<Resources> {
    let given = options
        .resources
        .iter()
        .fold(Resources::new(), |resources, setup| setup(resources));
    reject_owned_resources(&given)?;
    let mut rules =
        RuleBook::new(store.clone(), keyring.clone()).trusting(options.rule_keys.iter().copied());
    if let Some(workspace) = &options.workspace {
        rules = rules.in_workspace(&PathBase::new(workspace));
    }
    if let Some(project) = project_name(options) {
        rules = rules.in_project(&project);
    }
    let mut resources = given
        .store(store.clone())
        .keyring(keyring.clone())
        .known_secrets(known_secrets(keyring))
        .payer(payer.clone())
        .rule_book(rules);
    if let Some(workspace) = &options.workspace {
        let base = PathBase::new(workspace);
        resources = resources
            .preview(FilePreview::new(&base))
            .path_base(base.root());
    }
    Ok(match &options.redactor {
        Some(redactor) => resources.with(redactor.clone()),
        None => resources,
    })
}

/// Returns the values that no event and no surface shows: the keys of the gate and of providers.
fn known_secrets(keyring: &Keyring) -> KnownSecrets {
    let of_providers = models::key_variables().iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some(value.trim().to_owned())
    });
    KnownSecrets::new(keyring.secret_texts().chain(of_providers))
}

/// Rejects services that the gate owns: a layer with another one would disagree with the rest.
fn reject_owned_resources(given: &Resources) -> Result<()> {
    let owned = [
        (given.get::<StoreHandle>().is_some(), "store"),
        (given.get::<Keyring>().is_some(), "keyring"),
        (given.get::<Payer>().is_some(), "payer"),
        (given.get::<RuleBook>().is_some(), "rule book"),
        (given.get::<PathBase>().is_some(), "workspace"),
        (given.get::<SharedRedactor>().is_some(), "redactor"),
        (
            given.get::<KnownSecrets>().is_some(),
            "list of known secrets",
        ),
    ];
    match owned.iter().find(|(given, _)| *given) {
        Some((_, name)) => Err(Error::configuration(format!(
            "the {name} belongs to the gate and is not a resource of layers"
        ))),
        None => Ok(()),
    }
}
