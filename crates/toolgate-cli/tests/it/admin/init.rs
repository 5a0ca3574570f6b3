//! `init`: finds a model, writes a configuration, trusts it and checks the set-up.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use serde_json::Value;
use toolgate_testkit::terminal::{Key, Terminal};

use crate::admin::{AdminPlace, place::CommandRun};

/// An address at which nothing listens.
const NOWHERE: &str = "http://127.0.0.1:1/v1";

/// Returns a place where no server of this machine answers.
fn place_without_servers() -> AdminPlace {
    let place = AdminPlace::new().with_variable("OLLAMA_HOST", NOWHERE);
    place
        .with_variable("VLLM_BASE_URL", NOWHERE)
        .with_variable("LLAMA_CPP_BASE_URL", NOWHERE)
}

/// Serves a list of models to everyone who asks, and returns the address.
fn start_model_list(models: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let body = models.to_owned();
    // It ends with the process of the test.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                assert!(!line.to_lowercase().starts_with("authorization"), "{line}");
                line.clear();
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = reader.get_mut().write_all((head + &body).as_bytes());
        }
    });
    format!("http://{address}/v1")
}

/// Returns the first line of the JSON output: what was written.
fn written(ran: &CommandRun) -> Value {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json().remove(0)
}

fn read_config(place: &AdminPlace) -> String {
    fs::read_to_string(place.work().join("toolgate.toml")).expect("written")
}

#[test]
fn a_file_is_written_once_trusted_and_checked() {
    let place = place_without_servers();
    let ran = place.run(["init", "--json"]);
    let said = written(&ran);
    assert_eq!(
        (&said["policy"], &said["model"]),
        (&"solo".into(), &Value::Null)
    );
    assert!(
        ran.json().iter().any(|line| line["check"] == "sandbox"),
        "{ran:?}"
    );
    assert!(read_config(&place).starts_with("#:schema https://"));
    assert_eq!(place.run(["config", "check"]).code, 0);
    assert_eq!(place.run(["tools", "list"]).code, 0, "it is trusted");
    let path = place.write("toolgate.toml", "# mine\n");
    for command in [vec!["init"], vec!["config", "init"]] {
        insta::assert_snapshot!("init_twice", place.run(command).mistake());
    }
    assert_eq!(fs::read_to_string(&path).expect("reads"), "# mine\n");
}

#[test]
fn a_file_is_replaced_only_by_force_and_every_older_one_is_kept() {
    let place = place_without_servers();
    place.write("toolgate.toml", "# first\n");
    let said = written(&place.run(["init", "--force", "--json"]));
    assert_eq!(said["backup"], "DIR/work/toolgate.toml.bak");
    place.write("toolgate.toml", "# second\n");
    assert_eq!(place.run(["config", "init", "--force"]).code, 0);
    for (name, text) in [
        ("toolgate.toml.bak", "# first\n"),
        ("toolgate.toml.bak.1", "# second\n"),
    ] {
        let kept = fs::read_to_string(place.work().join(name));
        assert_eq!(kept.expect("kept"), text);
    }
}

#[test]
fn a_key_in_the_environment_chooses_the_model_and_is_never_shown() {
    let place = place_without_servers().with_variable("OPENAI_API_KEY", "sk-planted-secret");
    let ran = place.run(["init", "--policy", "team", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.err.contains("openai:gpt-5, key in OPENAI_API_KEY"),
        "{ran:?}"
    );
    let text = read_config(&place);
    assert!(
        text.contains("model = \"openai:gpt-5\"") && text.contains("expires_after"),
        "{text}"
    );
    for shown in [&ran.out, &ran.err, &text] {
        assert!(!shown.contains("sk-planted-secret"));
    }
}

#[test]
fn a_server_of_this_machine_chooses_the_model_if_it_lists_any() {
    let list = start_model_list(r#"{"object":"list","data":[{"id":"llama3:8b"},{"id":"other"}]}"#);
    let page = start_model_list("<html>not a model server</html>");
    let place = AdminPlace::new()
        .with_variable("OLLAMA_HOST", page)
        .with_variable("VLLM_BASE_URL", list)
        .with_variable("LLAMA_CPP_BASE_URL", NOWHERE);
    let said = written(&place.run(["init", "--json", "--policy", "ci"]));
    assert_eq!(said["model"], "vllm:llama3:8b");
    assert!(read_config(&place).contains("approve = \"never\""));
}

#[test]
fn a_named_model_is_written_with_its_address() {
    let place = place_without_servers();
    let url = "http://127.0.0.1:9/v1";
    let named = [
        "init",
        "--model",
        "compatible:m",
        "--base-url",
        url,
        "--yes",
    ];
    assert_eq!(place.run(named).code, 0);
    let text = read_config(&place);
    assert!(text.contains(&format!("base_url = \"{url}\"")), "{text}");
    let wrong = place.run(["init", "--model", "claude", "--force"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("is not a model name"),
        "{wrong:?}"
    );
    assert_eq!(read_config(&place), text, "nothing was written");
}

#[test]
fn the_file_of_the_user_applies_where_the_project_has_none() {
    let place = place_without_servers();
    assert_eq!(place.run(["init", "--user"]).code, 0);
    let said = &place.run(["config", "path", "--json"]).json()[0];
    assert_eq!(
        (said["owner"].as_str(), &said["config"]),
        (Some("user"), &said["user_config"])
    );
    let place = place.configured("[run]\n");
    let said = &place.run(["config", "path", "--json"]).json()[0];
    assert_eq!(said["owner"], "project");
}

#[test]
fn a_user_at_a_terminal_chooses_model_and_policy() {
    let place = AdminPlace::new();
    let mut terminal = Terminal::builder(env!("CARGO_BIN_EXE_toolgate"))
        .args(["init"])
        .dir(place.work())
        .env("HOME", place.root())
        .env("TOOLGATE_HOME", place.home())
        .env("OLLAMA_HOST", NOWHERE)
        .env("VLLM_BASE_URL", NOWHERE)
        .env("LLAMA_CPP_BASE_URL", NOWHERE)
        .env("ANTHROPIC_API_KEY", "sk-1")
        .env("OPENAI_API_KEY", "sk-2")
        .size(100, 50)
        .spawn();
    terminal.wait_for("Which model?");
    terminal.send("7");
    terminal.press_key(Key::Enter);
    terminal.wait_for("7 is not one of them");
    terminal.send("2");
    terminal.press_key(Key::Enter);
    terminal.wait_for("Which policy?");
    terminal.send("ci");
    terminal.press_key(Key::Enter);
    assert_eq!(terminal.wait_exit(), 0, "{}", terminal.transcript());
    let text = read_config(&place);
    assert!(
        text.contains("openai:gpt-5") && text.contains("one job"),
        "{text}"
    );
}
