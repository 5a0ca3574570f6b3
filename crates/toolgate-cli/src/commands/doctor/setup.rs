//! How things are set up: the configuration, the models and the terminal.

use std::io::IsTerminal;

use toolgate::{Config, layers::Span, lint};
use toolgate_tools::{Enforced, Namespaces, Sandbox, SandboxMode};

use super::Finding;
use crate::{
    CliError, Cx, GateArgs,
    config_file::{ConfigFile, Trust},
    paths::CONFIG_NAME,
    preview::Preview,
    settings::{self, RunSection, ToolsSection},
};

/// The configuration: whether there is one, whether it counts, whether it is valid, and whether its stack is.
pub(super) fn configuration(cx: &Cx) -> Vec<Finding> {
    let check = "configuration";
    let (mut findings, config) = match ConfigFile::find(&cx.paths) {
        None => (
            vec![Finding::fine(check, "none; all is as by default")],
            Config::read(CONFIG_NAME, "", settings::catalog()),
        ),
        Some((owner, path)) => match ConfigFile::read(owner, path) {
            Ok(file) => (vec![trust(cx, &file)], file.config()),
            Err(error) => return vec![Finding::error(check, &error)],
        },
    };
    let built = config
        .and_then(Config::with_process_environment)
        .map_err(CliError::from);
    match built.and_then(|config| Preview::of(cx, config, &GateArgs::default())) {
        Ok(preview) => findings.push(stack(&preview)),
        Err(error) => findings.push(Finding::error(check, &error)),
    }
    findings
}

fn trust(cx: &Cx, file: &ConfigFile) -> Finding {
    let (check, shown) = ("configuration", file.path.display());
    let fix = "read it, and if you agree: `toolgate config trust`";
    match file.trust(&cx.paths.home) {
        Ok(Trust::Trusted) => Finding::fine(check, shown.to_string()),
        Ok(Trust::Changed) => Finding::broken(
            check,
            format!("{shown} has changed since it was trusted"),
            fix,
        ),
        Ok(Trust::Unknown) => Finding::broken(check, format!("{shown} is not trusted yet"), fix),
        Err(error) => Finding::error(check, &error),
    }
}

fn stack(preview: &Preview) -> Finding {
    let check = "stack";
    let deadline = preview.config.stack().turn_deadline.map(Span::get);
    let findings = lint(&preview.stack.any_layers(), deadline);
    match findings.first() {
        None => Finding::fine(
            check,
            format!("{} layers in a good order", preview.stack.layers().count()),
        ),
        Some(first) => Finding::broken(
            check,
            first.to_string(),
            "`toolgate stack lint` lists what to mend",
        ),
    }
}

/// Whether the kernel can keep commands in their place.
pub(super) fn sandbox(cx: &Cx) -> Finding {
    let check = "sandbox";
    let tools = cx
        .config()
        .and_then(|config| Ok(config.section::<ToolsSection>()?))
        .unwrap_or_default();
    let enforced =
        Sandbox::new(&cx.paths.workspace, &tools.shell).and_then(|sandbox| sandbox.enforced());
    match enforced {
        Ok(Enforced {
            mode: SandboxMode::Off,
            ..
        }) => Finding::unusual(
            check,
            "switched off: commands have all your rights",
            "take `sandbox = \"off\"` out of [tools.shell]",
        ),
        Ok(enforced) if enforced.missing.is_empty() => {
            let landlock = enforced.landlock.unwrap_or_default();
            Finding::fine(
                check,
                format!(
                    "Landlock {landlock}, filtered system calls, {}",
                    apart(enforced.namespaces)
                ),
            )
        }
        Ok(enforced) => {
            let missing: Vec<_> = enforced.missing.iter().map(ToString::to_string).collect();
            Finding::unusual(
                check,
                format!("the kernel lacks {}", missing.join("; ")),
                NEWER,
            )
        }
        Err(error) => Finding::unusual(
            check,
            format!("run_shell runs nothing here: {error}"),
            NEWER,
        ),
    }
}

const NEWER: &str = "use a newer kernel, or set `sandbox = \"best-effort\"` under [tools.shell] if you accept the risk";

fn apart(namespaces: Namespaces) -> &'static str {
    match namespaces {
        Namespaces::Privileged | Namespaces::User => "namespaces",
        Namespaces::None => "no namespaces",
    }
}

/// The variables that hold keys of providers.
const KEYS: [&str; 7] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "COMPATIBLE_API_KEY",
    "VLLM_API_KEY",
    "LLAMA_CPP_API_KEY",
];

/// Which keys there are, by the names of their variables only, and whether the model of the configuration can be had.
pub(super) fn models(cx: &Cx) -> Finding {
    let check = "models";
    let run = cx
        .config()
        .and_then(|config| Ok(config.section::<RunSection>()?))
        .unwrap_or_default();
    if let Some(name) = &run.model {
        return match crate::model::open(None, &run) {
            Ok(_) => Finding::fine(check, format!("{name}, as configured")),
            Err(error) => Finding::error(check, &error),
        };
    }
    let there = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let keys: Vec<&str> = KEYS.into_iter().filter(there).collect();
    match keys.is_empty() {
        false => Finding::fine(check, format!("there is a key in {}", keys.join(", "))),
        true => Finding::unusual(
            check,
            "no key of a provider is set, and no model is configured",
            "export ANTHROPIC_API_KEY=… or another one, or use a local model: --model ollama:NAME",
        ),
    }
}

/// What the terminal can show.
pub(super) fn terminal(cx: &Cx) -> Finding {
    let check = "terminal";
    if !std::io::stdout().is_terminal() {
        return Finding::fine(
            check,
            "none at the output; commands print plain lines and ask nobody",
        );
    }
    let (columns, rows) = crossterm::terminal::size().unwrap_or((80, 24));
    let colours = if cx.out.is_colored() {
        "colours"
    } else {
        "no colours"
    };
    let detail = format!("{columns}×{rows}, {colours}");
    let utf8 = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let utf8 = utf8.is_some_and(|locale| locale.to_lowercase().replace('-', "").contains("utf8"));
    match (columns < 60 || rows < 20, utf8) {
        (true, _) => Finding::unusual(check, detail, "make it at least 60 columns by 20 rows"),
        (false, false) => Finding::unusual(
            check,
            format!("{detail}, no UTF-8 locale"),
            "export LANG=C.UTF-8",
        ),
        (false, true) => Finding::fine(check, detail),
    }
}
