//! Checks of the configuration, the sandbox, the models and the terminal.

use std::io::IsTerminal;

use toolgate::{
    Config, Gate,
    gate::{
        CONFIG_NAME, ConfigFile, ConfigTrust, RunSection, ToolsSection, key_variables,
        open_configured_model,
    },
    layers::{HumanDuration, lint},
};
use toolgate_tools::{NamespaceSupport, Sandbox, SandboxEnforcement, SandboxMode};

use super::DoctorFinding;
use crate::{
    CliError, CommandContext, GateArgs, assembly::stored_options::MODEL_VARIABLE,
    show::project_notice::ProjectNotice,
};

/// Checks the configuration: that it is trusted and valid, and that its stack has a good order.
pub(super) fn check_configuration(cx: &CommandContext) -> Vec<DoctorFinding> {
    let check = "configuration";
    let (mut findings, config) = match cx.paths.find_config() {
        None => (
            vec![DoctorFinding::fine(check, "none; defaults apply")],
            Config::parse_with_catalog(CONFIG_NAME, "", toolgate::gate::gate_catalog()),
        ),
        Some((owner, path)) => match ConfigFile::read(owner, path) {
            Ok(file) => {
                let file = file.in_reach_of(&cx.paths.workspace);
                (vec![trust_finding(cx, &file)], file.parse_config())
            }
            Err(error) => return vec![DoctorFinding::error(check, &error.into())],
        },
    };
    let built = config
        .and_then(Config::with_process_environment)
        .map_err(CliError::from);
    match built.and_then(|config| GateArgs::default().preview_gate(cx, config)) {
        Ok(preview) => {
            findings.push(stack_finding(&preview));
            findings.extend(instructions_finding(cx, &preview));
        }
        Err(error) => findings.push(DoctorFinding::error(check, &error)),
    }
    findings
}

fn trust_finding(cx: &CommandContext, file: &ConfigFile) -> DoctorFinding {
    let check = "configuration";
    let shown = file.path.display();
    let fix = "read it, and if you agree: `toolgate config trust`";
    match file.check_trust(&cx.paths.home) {
        Ok(ConfigTrust::Trusted) => DoctorFinding::fine(check, shown.to_string()),
        Ok(ConfigTrust::Changed) => DoctorFinding::broken(
            check,
            format!("{shown} has changed since it was trusted"),
            fix,
        ),
        Ok(ConfigTrust::Unknown) => {
            DoctorFinding::broken(check, format!("{shown} is not trusted yet"), fix)
        }
        Err(error) => DoctorFinding::error(check, &error.into()),
    }
}

/// Reports the `AGENTS.md` of the project, if there is one.
fn instructions_finding(cx: &CommandContext, preview: &Gate) -> Option<DoctorFinding> {
    let notice = ProjectNotice::of_gate(preview, &cx.paths.workspace)?;
    Some(if notice.is_warning {
        DoctorFinding::unusual(
            "instructions",
            notice.text,
            "or leave it out: `project_instructions = false` under [run]",
        )
    } else {
        DoctorFinding::fine("instructions", notice.text)
    })
}

fn stack_finding(preview: &Gate) -> DoctorFinding {
    let check = "stack";
    let deadline = preview
        .configuration()
        .stack()
        .turn_deadline
        .map(HumanDuration::get);
    let findings = lint(&preview.stack().any_layers(), deadline);
    match findings.first() {
        None => DoctorFinding::fine(
            check,
            format!(
                "{} layers in a good order",
                preview.stack().layers().count()
            ),
        ),
        Some(first) => DoctorFinding::broken(
            check,
            first.to_string(),
            "`toolgate stack lint` lists what to fix",
        ),
    }
}

/// Checks that the kernel can sandbox commands.
pub(super) fn check_sandbox(cx: &CommandContext) -> DoctorFinding {
    let check = "sandbox";
    // An invalid configuration is a finding of its own; this check then uses the defaults.
    let tools = cx
        .load_config()
        .and_then(|config| Ok(config.section::<ToolsSection>()?))
        .unwrap_or_default();
    let enforced =
        Sandbox::new(&cx.paths.workspace, &tools.shell).and_then(|sandbox| sandbox.enforcement());
    match enforced {
        Ok(SandboxEnforcement {
            mode: SandboxMode::Off,
            ..
        }) => DoctorFinding::unusual(
            check,
            "switched off: commands run with all your permissions",
            "remove `sandbox = \"off\"` from [tools.shell]",
        ),
        Ok(enforced) if enforced.missing.is_empty() => {
            let landlock = enforced.landlock.unwrap_or_default();
            DoctorFinding::fine(
                check,
                format!(
                    "Landlock {landlock}, filtered system calls, {}",
                    namespaces_label(enforced.namespaces)
                ),
            )
        }
        Ok(enforced) => {
            let missing: Vec<_> = enforced.missing.iter().map(ToString::to_string).collect();
            DoctorFinding::unusual(
                check,
                format!("the kernel lacks {}", missing.join("; ")),
                KERNEL_HINT,
            )
        }
        Err(error) => DoctorFinding::unusual(
            check,
            format!("run_shell runs nothing here: {error}"),
            KERNEL_HINT,
        ),
    }
}

const KERNEL_HINT: &str = "use a newer kernel, or set `sandbox = \"best-effort\"` under [tools.shell] if you accept the risk";

fn namespaces_label(namespaces: NamespaceSupport) -> &'static str {
    match namespaces {
        NamespaceSupport::Privileged | NamespaceSupport::User => "namespaces",
        NamespaceSupport::None => "no namespaces",
    }
}

/// Checks that the configured model can be opened, or lists the variables that hold keys, never
/// their values.
pub(super) fn check_models(cx: &CommandContext) -> DoctorFinding {
    let check = "models";
    let config = cx.load_config().ok();
    let run = { config.as_ref() }
        .and_then(|config| RunSection::of(config).ok())
        .unwrap_or_default();
    let variable = std::env::var(MODEL_VARIABLE).ok();
    let source = if variable.is_some() {
        format!("from {MODEL_VARIABLE}")
    } else {
        "as configured".to_owned()
    };
    let name = variable.as_ref().or(run.model.as_ref());
    if let Some((config, name)) = config.as_ref().zip(name) {
        return match open_configured_model(config, name) {
            Ok(_) => DoctorFinding::fine(check, format!("{name}, {source}")),
            Err(error) => DoctorFinding::error(check, &error.into()),
        };
    }
    let there = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let keys: Vec<&str> = key_variables().iter().copied().filter(there).collect();
    if keys.is_empty() {
        DoctorFinding::unusual(
            check,
            "no key of a provider is set, and no model is configured",
            "export ANTHROPIC_API_KEY=… or another one, or use a local model: --model ollama:NAME",
        )
    } else {
        DoctorFinding::fine(check, format!("keys found in {}", keys.join(", ")))
    }
}

/// Checks the size, the colours and the encoding of the terminal.
pub(super) fn check_terminal(cx: &CommandContext) -> DoctorFinding {
    let check = "terminal";
    if !std::io::stdout().is_terminal() {
        return DoctorFinding::fine(
            check,
            "the output is not a terminal; commands print plain lines and do not ask",
        );
    }
    let (columns, rows) = crate::show::render::terminal_size().unwrap_or((80, 24));
    let colours = if cx.out.is_colored() {
        "colours"
    } else {
        "no colours"
    };
    let detail = format!("{columns}×{rows}, {colours}");
    // The first one that is set decides, as in the C library.
    let utf8 = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let utf8 = utf8.is_some_and(|locale| locale.to_lowercase().replace('-', "").contains("utf8"));
    match (columns < 60 || rows < 20, utf8) {
        (true, _) => {
            DoctorFinding::unusual(check, detail, "make it at least 60 columns by 20 rows")
        }
        (false, false) => DoctorFinding::unusual(
            check,
            format!("{detail}, no UTF-8 locale"),
            "export LANG=C.UTF-8",
        ),
        (false, true) => DoctorFinding::fine(check, detail),
    }
}
