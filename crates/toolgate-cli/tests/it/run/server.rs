//! A model behind HTTP: an OpenAI-compatible server on the loopback interface that streams.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use toolgate::Status;
use toolgate_testkit::terminal::Key;

use crate::run::world::{RunWorld, to_text};

/// A request that a server got.
#[derive(Debug)]
pub(super) struct RecordedRequest {
    pub(super) path: String,
    pub(super) authorization: Option<String>,
    pub(super) body: Value,
}

/// Serves chat completions: a call first, text once the call has its result. Returns the address.
fn start_server(tool: &'static str, arguments: Value) -> String {
    start_recording_server(tool, arguments).0
}

/// Serves like [`start_server`], and sends every request to the receiver.
pub(super) fn start_recording_server(
    tool: &'static str,
    arguments: Value,
) -> (String, mpsc::Receiver<RecordedRequest>) {
    let (sender, requests) = mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    // It ends with the process of the test.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A killed client must not stop the server.
            let _ = answer_request(stream, tool, &arguments, &sender);
        }
    });
    (format!("http://{address}/v1"), requests)
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<RecordedRequest> {
    let mut length = 0;
    let mut authorization = None;
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    line.clear();
    while reader.read_line(&mut line)? > 2 {
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(RecordedRequest {
        path,
        authorization,
        body: serde_json::from_slice(&body)?,
    })
}

fn answer_request(
    stream: TcpStream,
    tool: &str,
    arguments: &Value,
    sender: &mpsc::Sender<RecordedRequest>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let request = read_request(&mut reader)?;
    let messages = request.body["messages"].as_array().cloned();
    let messages = messages.unwrap_or_default();
    // Most tests do not look at the requests.
    let _ = sender.send(request);
    let answered = messages
        .iter()
        .find(|message| message["role"] == "tool")
        .map(|message| message["content"].to_string());
    let stream = reader.get_mut();
    stream.set_nodelay(true)?;
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
    )?;
    for (delta, finish) in deltas(tool, arguments, answered.as_deref()) {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "stub", "choices": [choice] });
        stream.write_all(format!("data: {chunk}\n\n").as_bytes())?;
        stream.flush()?;
    }
    stream.write_all(b"data: [DONE]\n\n")
}

fn deltas(
    tool: &str,
    arguments: &Value,
    answered: Option<&str>,
) -> Vec<(Value, Option<&'static str>)> {
    match answered {
        Some(result) => {
            let words = [
                "The tool ".to_owned(),
                "said: ".to_owned(),
                result.chars().take(60).collect(),
            ];
            let mut deltas: Vec<_> = words
                .into_iter()
                .map(|word| (json!({ "content": word }), None))
                .collect();
            deltas.push((json!({}), Some("stop")));
            deltas
        }
        None => {
            let text = arguments.to_string();
            let (first, rest) = text.split_at(text.len() / 2);
            let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": { "name": tool, "arguments": first } });
            vec![
                (
                    json!({ "role": "assistant", "content": "Let me see. " }),
                    None,
                ),
                (json!({ "tool_calls": [call] }), None),
                (
                    json!({ "tool_calls": [{ "index": 0, "function": { "arguments": rest } }] }),
                    None,
                ),
                (json!({}), Some("tool_calls")),
            ]
        }
    }
}

#[test]
fn a_model_behind_http_works_with_real_tools() {
    let mut world = RunWorld::new("");
    let url = start_server("read_file", json!({ "path": "a.txt" }));
    world.set_model("openai-chat:stub");
    let mut terminal = world
        .terminal(&["what is in a.txt?"])
        .env("OPENAI_BASE_URL", &url)
        .env("OPENAI_API_KEY", "sk-unused")
        .spawn();
    assert_eq!(terminal.wait_exit(), 0, "{}", terminal.transcript());
    let transcript = terminal.transcript();
    for part in ["Let me see.", "✓ read_file a.txt", "The tool said:", "one"] {
        assert!(transcript.contains(part), "{part} in:\n{transcript}");
    }
    assert!(!transcript.contains("sk-unused"));
}

#[test]
fn a_command_that_ran_when_the_process_was_killed_is_not_executed_again_and_its_outcome_is_unknown()
{
    let mut world = RunWorld::new("");
    // The command ends when the test creates the file `stop`, should it survive the kill.
    let command = "echo ran >> ran.txt; echo up-$((1+1)); while ! [ -e stop ]; do sleep 0.1; done";
    let url = start_server("run_shell", json!({ "command": command }));
    world.set_model("openai-chat:stub");
    let variables = [
        ("OPENAI_BASE_URL", url.as_str()),
        ("OPENAI_API_KEY", "sk-unused"),
    ];
    let builder = world.terminal(&["run it"]);
    let mut terminal = variables
        .iter()
        .fold(builder, |builder, (name, value)| builder.env(name, value))
        .spawn();
    terminal.wait_for("Run run_shell?");
    terminal.press_key(Key::Char('y'));
    terminal.wait_for("up-2");
    terminal.signal(Signal::KILL);
    assert_eq!(terminal.wait_exit(), 128 + 9);
    let output = world
        .command(&["--resume"])
        .envs(variables)
        .output()
        .expect("runs");
    fs::write(world.work().join("stop"), "").expect("written");
    let stdout = to_text(&output.stdout);
    let stderr = to_text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("The tool said:"), "{stdout}");
    assert_eq!(
        (
            world.read("ran.txt").as_str(),
            world.statuses_of("run_shell")
        ),
        ("ran\n", vec![Status::OutcomeUnknown])
    );
    assert!(stderr.contains("outcome unknown"), "{stderr}");
}

#[test]
fn a_rate_limited_run_says_so_and_continues() {
    let script = "[[reply]]\nerror = { kind = 'rate_limited', detail = 'slow down', retry_after = '1ms' }\n\
                  [[reply]]\ntext = 'Hi.'\n";
    let world = RunWorld::new(script);
    let output = world.run_plain(&["hello"]);
    let shown = to_text(&output.stdout) + &to_text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("rate limited, retrying in 1 s"), "{shown}");
    assert!(shown.contains("Hi."), "{shown}");
    let once = world.run_plain(&["hello", "--no-retry"]);
    assert_eq!(once.status.code(), Some(1));
}

#[test]
fn a_server_of_this_machine_that_does_not_run_gets_a_hint() {
    let mut world = RunWorld::new("");
    world.set_model("ollama:llama3");
    // A port that was just free: nothing listens there.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    world.set_variable("OLLAMA_HOST", &address);
    let output = world.run_plain(&["hello", "--no-retry"]);
    let shown = to_text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("is Ollama running?"), "{shown}");
}
