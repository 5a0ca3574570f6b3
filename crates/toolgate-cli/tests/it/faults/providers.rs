//! Bad providers: each ends a run with its own message, within the patience that is set, and the run
//! can be resumed with a good one.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::Mutex,
    thread,
    time::Duration,
};

use super::{exit_code, finish, start};
use crate::run::world::{RunWorld, to_text};

/// The patience that is set for servers that fall silent, in seconds.
const PATIENCE: &str = "0.3";

/// What a provider does with the connection after it has read the request.
type Behaviour = fn(&mut TcpStream) -> std::io::Result<()>;

/// A kind of bad provider and a part of the message about it.
struct BadProvider(&'static str, Behaviour, &'static str);

fn respond(
    stream: &mut TcpStream,
    status: &str,
    headers: &str,
    body: &[u8],
) -> std::io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

fn fail(stream: &mut TcpStream, status: &str, headers: &str) -> std::io::Result<()> {
    let body = br#"{"error":{"message":"not now","type":"server_error"}}"#;
    let headers = format!("content-type: application/json\r\n{headers}");
    respond(stream, status, &headers, body)
}

/// Begins a stream of events without a length.
fn begin_stream(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
    )
}

fn chunk(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// Waits until the client gives up.
fn hang(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.read_to_end(&mut Vec::new()).map(drop)
}

fn stream_then(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<()> {
    begin_stream(stream)?;
    stream.write_all(chunk(r#"{"role":"assistant","content":"Hello"}"#, "null").as_bytes())?;
    stream.write_all(text)
}

fn endless(stream: &mut TcpStream, piece: &str) -> std::io::Result<()> {
    begin_stream(stream)?;
    for _ in 0..50_000_000 / piece.len() {
        stream.write_all(piece.as_bytes())?;
    }
    stream.write_all(b"data: [DONE]\n\n")
}

/// 1 MiB of zeros, compressed with gzip many times over.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

fn bad_providers() -> Vec<BadProvider> {
    let kinds: [(&'static str, Behaviour, &'static str); 26] = [
        (
            "429",
            |s| fail(s, "429 Too Many Requests", ""),
            "too many requests",
        ),
        (
            "429 with retry-after",
            |s| fail(s, "429 Too Many Requests", "retry-after: 7\r\n"),
            "too many requests",
        ),
        (
            "500",
            |s| fail(s, "500 Internal Server Error", ""),
            "the provider failed",
        ),
        (
            "502 as a page",
            |s| {
                respond(
                    s,
                    "502 Bad Gateway",
                    "content-type: text/html\r\n",
                    b"<html>bad</html>",
                )
            },
            "the provider failed",
        ),
        (
            "503",
            |s| fail(s, "503 Service Unavailable", ""),
            "overloaded",
        ),
        ("529", |s| fail(s, "529 Overloaded", ""), "overloaded"),
        (
            "400",
            |s| fail(s, "400 Bad Request", ""),
            "rejected the request",
        ),
        (
            "401",
            |s| fail(s, "401 Unauthorized", ""),
            "the key was not accepted",
        ),
        ("404", |s| fail(s, "404 Not Found", ""), "no such model"),
        ("413", |s| fail(s, "413 Payload Too Large", ""), "too long"),
        (
            "redirect",
            |s| respond(s, "302 Found", "location: /v1/chat/completions\r\n", b""),
            "redirect",
        ),
        ("closed at once", |_| Ok(()), "connection"),
        ("hangs before headers", hang, "did not begin"),
        (
            "slow headers",
            |s| {
                for byte in b"HTTP/1.1 200 OK\r\nx: ".iter().cycle().take(400) {
                    s.write_all(&[*byte])?;
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            },
            "did not begin",
        ),
        (
            "hangs in the middle",
            |s| {
                stream_then(s, b"")?;
                hang(s)
            },
            "stopped sending",
        ),
        (
            "cut off",
            |s| stream_then(s, b""),
            "before the reply was complete",
        ),
        (
            "cut off in an event",
            |s| stream_then(s, b"data: {\"id\":"),
            "before the reply was complete",
        ),
        (
            "invalid JSON",
            |s| stream_then(s, b"data: {not json}\n\n"),
            "could not be parsed",
        ),
        (
            "invalid UTF-8",
            |s| stream_then(s, b"data: \xff\xfe\n\n"),
            "",
        ),
        (
            "plain JSON",
            |s| {
                respond(
                    s,
                    "200 OK",
                    "content-type: application/json\r\n",
                    b"{\"error\":{\"message\":\"no stream\"}}",
                )
            },
            "no stream",
        ),
        (
            "HTML",
            |s| {
                respond(
                    s,
                    "200 OK",
                    "content-type: text/html\r\n",
                    b"<html>log in</html>",
                )
            },
            "",
        ),
        (
            "an error in the stream",
            |s| {
                stream_then(
                    s,
                    b"data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n",
                )
            },
            "overloaded",
        ),
        (
            "empty body",
            |s| respond(s, "200 OK", "content-type: text/event-stream\r\n", b""),
            "before the reply was complete",
        ),
        ("a huge line", |s| endless(s, "data: x"), "larger than"),
        (
            "a reply of 50 MB",
            |s| {
                let text = "y".repeat(16_000);
                endless(s, &chunk(&format!("{{\"content\":\"{text}\"}}"), "null"))
            },
            "larger than",
        ),
        (
            "compressed although not asked",
            |s| {
                respond(
                    s,
                    "200 OK",
                    "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n",
                    &GZIP_HEAD.repeat(20_000),
                )
            },
            "",
        ),
    ];
    kinds
        .map(|(name, behaviour, message)| BadProvider(name, behaviour, message))
        .into()
}

/// Serves one behaviour. Returns the address.
fn serve(behaviour: Behaviour) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    // It ends with the process of the test.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve_request(stream, behaviour));
        }
    });
    format!("http://{address}/v1")
}

fn serve_request(stream: TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])?;
    behaviour(reader.get_mut())
}

/// Returns the option that turns retries off: the test is about single answers.
fn no_retry() -> &'static [&'static str] {
    let help = Command::new(env!("CARGO_BIN_EXE_toolgate"))
        .args(["run", "--help"])
        .output();
    let help = to_text(&help.expect("runs").stdout);
    if help.contains("--no-retry") {
        &["--no-retry"]
    } else {
        &[]
    }
}

/// Returns what is wrong with the end of a run with the provider, if anything.
fn check_provider(
    BadProvider(name, behaviour, message): &BadProvider,
    options: &[&str],
) -> Result<(), String> {
    let mut world = RunWorld::new("");
    world.set_model("openai-chat:stub");
    let mut command = world.command(&[&["hello", "--json"], options].concat());
    command
        .env("OPENAI_BASE_URL", serve(*behaviour))
        .env("OPENAI_API_KEY", "sk-unused")
        .env("TOOLGATE_MODEL_START_TIMEOUT", PATIENCE)
        .env("TOOLGATE_MODEL_IDLE_TIMEOUT", PATIENCE);
    let output = finish(start(&mut command));
    let stdout = to_text(&output.stdout);
    let stderr = to_text(&output.stderr);
    let code = exit_code(output.status);
    let report: serde_json::Value =
        serde_json::from_str(stdout.lines().last().unwrap_or_default()).unwrap_or_default();
    let error = report["error"].as_str().unwrap_or_default();
    if code != 1 || error.is_empty() || !error.to_lowercase().contains(&message.to_lowercase()) {
        return Err(format!("{name}: exit {code}, {error:?} {stderr}"));
    }
    if stdout.contains("sk-unused") || stderr.contains("sk-unused") {
        return Err(format!("{name}: the key is shown"));
    }
    // Nothing is lost: a good provider continues.
    world.set_script("[[reply]]\nrepeat = 'always'\ntext = 'Here I am.'");
    let output = world.run_plain(&["--resume", "-q"]);
    if to_text(&output.stdout) != "Here I am.\n" {
        return Err(format!("{name}: {}", to_text(&output.stderr)));
    }
    Ok(())
}

#[test]
fn every_bad_provider_has_its_own_message_and_loses_nothing() {
    let options = no_retry();
    let left = Mutex::new(bad_providers());
    let wrong = Mutex::new(Vec::new());
    let work = || {
        while let Some(provider) = { left.lock().expect("no panic").pop() } {
            let checked = check_provider(&provider, options);
            wrong.lock().expect("no panic").extend(checked.err());
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_refused_connection_is_named_once_with_the_address_and_a_hint() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    drop(listener);
    let mut world = RunWorld::new("");
    world.set_model("openai-chat:stub");
    let mut command = world.command(&[&["hello"], no_retry()].concat());
    command
        .env("OPENAI_BASE_URL", &url)
        .env("OPENAI_API_KEY", "sk-unused");
    let output = finish(start(&mut command));
    let stderr = to_text(&output.stderr);
    assert_eq!(exit_code(output.status), 1, "{stderr}");
    let expected = format!("nothing listens at {}", url.trim_end_matches("/v1"));
    assert_eq!(stderr.matches(&expected).count(), 1, "{stderr}");
    assert_eq!(stderr.matches("did not reply").count(), 1, "{stderr}");
    assert!(stderr.contains("is the server of openai-chat"), "{stderr}");
}
