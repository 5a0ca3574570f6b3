//! Keys that a provider repeats, and secrets in the text of a model, are shown by no output.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::json;

use crate::run::world::{RunWorld, to_text};

/// A key without the shape of any provider's keys.
const KEY: &str = "plain-CANARY-value-42";

/// Serves replies that repeat the key of the request, as text or as an error.
fn start_echo(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    // It ends with the process of the test.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = echo_key(stream, status);
        }
    });
    format!("http://{address}/v1")
}

fn echo_key(stream: TcpStream, status: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut key = String::new();
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "authorization" => key = value.trim().replace("Bearer ", ""),
            _ => {}
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])?;
    let stream = reader.get_mut();
    if status != "200 OK" {
        let body = json!({ "error": { "message": format!("bad key {key}"), "type": "auth" } });
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n");
        return write!(
            stream,
            "{head}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    )?;
    let (first, rest) = key.split_at(key.len() / 2);
    for text in ["Your key is ", first, rest, ", keep it."] {
        let choice = json!({ "index": 0, "delta": { "content": text } });
        let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice] });
        write!(stream, "data: {chunk}\n\n")?;
    }
    let end = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    write!(stream, "data: {end}\n\ndata: [DONE]\n\n")
}

#[test]
fn a_key_that_a_provider_repeats_is_in_no_output() {
    for status in ["200 OK", "401 Unauthorized"] {
        for options in [&["--json"][..], &["--json", "--pieces"], &["--quiet"], &[]] {
            let mut world = RunWorld::new("");
            world.set_model("compatible:m");
            world.set_variable("COMPATIBLE_BASE_URL", &start_echo(status));
            world.set_variable("COMPATIBLE_API_KEY", KEY);
            let output = world.run_plain(&[&["hello"], options].concat());
            let shown = to_text(&output.stdout) + &to_text(&output.stderr);
            assert!(!shown.contains(KEY), "{status} {options:?}: {shown}");
            let half = &KEY[..KEY.len() / 2 + 4];
            assert!(!shown.contains(half), "{status} {options:?}: {shown}");
            let said = status == "200 OK" && shown.contains("Your key is ");
            assert!(said || status != "200 OK", "{options:?}: {shown}");
        }
    }
}

#[test]
fn the_text_of_a_model_is_redacted_in_the_report_too() {
    let token = ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
    let world = RunWorld::new(&format!("[[reply]]\ntext = \"use {token} now\"\n"));
    for options in [
        &["--json"][..],
        &["--json", "--pieces"],
        &["--quiet"],
        &[],
        &["--json", "--quiet"],
    ] {
        let output = world.run_plain(&[&["hello"], options].concat());
        let shown = to_text(&output.stdout) + &to_text(&output.stderr);
        assert!(!shown.contains(&token), "{options:?}: {shown}");
        assert!(shown.contains("use [redacted"), "{options:?}: {shown}");
    }
}
