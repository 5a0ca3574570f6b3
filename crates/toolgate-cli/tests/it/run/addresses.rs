//! `--base-url` and `[run] base_url`: where a model is reached, and which key is sent there.

use serde_json::json;

use crate::run::{
    server::{RecordedRequest, start_recording_server},
    world::{RunWorld, to_text},
};

/// An address at which nothing listens.
const NOWHERE: &str = "http://127.0.0.1:1/v1";

/// Runs a task with these options and variables against a recording server, whose address is in place of
/// `URL`. Returns what the server got.
fn run_with(
    model: &str,
    config: Option<&str>,
    options: &[&str],
    variables: &[(&str, &str)],
) -> Result<RecordedRequest, String> {
    let (url, requests) = start_recording_server("read_file", json!({ "path": "a.txt" }));
    let fill = |text: &str| text.replace("URL", &url);
    let mut world = RunWorld::new("");
    world.set_model(model);
    if let Some(config) = config {
        world.write("toolgate.toml", &fill(config));
        assert_eq!(world.toolgate_status(&["config", "trust", "--yes"]), 0);
    }
    let options: Vec<String> = options.iter().map(|option| fill(option)).collect();
    let mut arguments = vec!["look at a.txt", "--no-retry"];
    arguments.extend(options.iter().map(String::as_str));
    let variables = variables.iter().map(|(name, value)| (*name, fill(value)));
    let mut command = world.command(&arguments);
    let output = command.envs(variables).output().expect("runs");
    requests.try_recv().map_err(|_| to_text(&output.stderr))
}

#[test]
fn an_option_names_the_address_of_a_model_before_every_other_source() {
    let request = run_with(
        "openai-chat:stub",
        Some("[run]\nmodel = \"openai-chat:stub\"\nbase_url = \"http://127.0.0.1:1/v1\"\n"),
        &["--base-url", "URL"],
        &[("OPENAI_BASE_URL", NOWHERE), ("OPENAI_API_KEY", "sk-own")],
    )
    .expect("the server is asked");
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.authorization.as_deref(), Some("Bearer sk-own"));
}

#[test]
fn a_compatible_server_needs_no_variable_and_gets_no_key_of_another_provider() {
    let keys = [
        ("OPENAI_API_KEY", "sk-own"),
        ("ANTHROPIC_API_KEY", "sk-other"),
    ];
    for (config, options) in [
        (None, vec!["--base-url", "URL"]),
        (
            Some("[run]\nmodel = \"compatible:stub\"\nbase_url = \"URL\"\n"),
            vec![],
        ),
    ] {
        let request = run_with("compatible:stub", config, &options, &keys);
        let request = request.expect("the server is asked");
        assert_eq!(request.authorization, None);
    }
    let by_variable = [("TOOLGATE_BASE_URL", "URL")];
    run_with("ollama:stub", None, &[], &by_variable).expect("the server is asked");
}

#[test]
fn the_address_of_a_file_holds_for_the_provider_of_its_model_only() {
    let config = "[run]\nmodel = \"compatible:stub\"\nbase_url = \"URL\"\n";
    let variables = [
        // The provider's own address stays the one that is asked, and cannot be reached from here.
        ("HTTPS_PROXY", "http://127.0.0.1:1"),
        ("OPENAI_API_KEY", "sk-own"),
    ];
    let error = run_with("openai-chat:stub", Some(config), &[], &variables);
    let error = error.expect_err("no key of another provider is sent there");
    assert!(
        error.contains("openai-chat:stub: the connection failed"),
        "{error}"
    );
}

#[test]
fn the_variable_of_the_provider_goes_before_the_file() {
    let config = "[run]\nmodel = \"openai-chat:stub\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    let variables = [("OPENAI_BASE_URL", "URL"), ("OPENAI_API_KEY", "sk-own")];
    run_with("openai-chat:stub", Some(config), &[], &variables).expect("the server is asked");
}

#[test]
fn an_address_without_a_model_in_the_file_is_an_error() {
    let error = run_with(
        "openai-chat:stub",
        Some("[run]\nbase_url = \"URL\"\n"),
        &[],
        &[("OPENAI_API_KEY", "sk-own")],
    );
    let error = error.expect_err("it is not known whose address it is");
    assert!(
        error.contains("base_url is set under [run], and no model"),
        "{error}"
    );
}
