//! Spans arrive at a collector in a separate process, and a collector that is down affects no call.
#![cfg(feature = "otlp")]

use std::{collections::BTreeMap, net::TcpListener, process::Stdio, time::Duration};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value},
};
use prost::Message;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};
use toolgate_core::{
    Band, Call, Failure, LayerExt, Next, Outcome, Refusal, Stack, StackBuilder, Status, around,
    from_fn,
};
use toolgate_layers::{OtlpSettings, OtlpSpans, Telemetry, TelemetryCounters};
use toolgate_testkit::{FakeExecutor, TestClock, call, echo, env_at, run_twice, seed};

const PLAYS_RECEIVER: &str = "TOOLGATE_TEST_PLAYS_OTLP_RECEIVER";
const PATIENCE: Duration = Duration::from_secs(30);

fn start_telemetry(settings: OtlpSettings) -> Telemetry {
    let counters = TelemetryCounters::default();
    let sink = OtlpSpans::start(settings, counters.clone()).expect("starts");
    Telemetry::to(sink).counting(counters)
}

fn settings_for(port: u16, timeout: Duration) -> OtlpSettings {
    OtlpSettings {
        endpoint: Some(format!("http://127.0.0.1:{port}/v1/traces")),
        timeout,
        ..OtlpSettings::default()
    }
}

/// Flushes on a blocking thread, because waiting for a collector blocks.
async fn flush_blocking(telemetry: &Telemetry) {
    let telemetry = telemetry.clone();
    let flushed = tokio::task::spawn_blocking(move || telemetry.flush(PATIENCE))
        .await
        .expect("no panic");
    assert_eq!(flushed, Ok(()));
}

fn stack_under(telemetry: &Telemetry, script: FakeExecutor) -> StackBuilder {
    let again = around(async |call: Call, next: Next| {
        let first = next.clone().run(call.clone()).await;
        if first.is_ok() {
            first
        } else {
            next.run(call).await
        }
    });
    let plain = around(async |call: Call, next: Next| next.run(call).await);
    Stack::over(script)
        .layer(telemetry.clone())
        .layer(again.named("again").in_band(Band::Repeat))
        .layer(plain.named("limit").in_band(Band::Bound))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_arrives_as_a_span_with_children_per_layer_and_attempt() {
    let mut receiver = CollectorProcess::start().await;
    let headers = BTreeMap::from([("x-tenant".to_owned(), "blue".to_owned())]);
    let service_name = Some("my-agent".to_owned());
    let telemetry = start_telemetry(OtlpSettings {
        headers,
        service_name,
        ..settings_for(receiver.port, PATIENCE)
    });
    let script = FakeExecutor::new().then(Outcome::failed_with(Failure::ExecutorError, "busy"));
    assert!(
        stack_under(&telemetry, script)
            .build()
            .expect("in order")
            .run(call("read_file"))
            .await
            .is_ok()
    );
    flush_blocking(&telemetry).await;
    assert_eq!(
        (telemetry.counters().exported(), telemetry.dropped()),
        (1, 0)
    );

    let request = receiver.next_request().await;
    assert_eq!(
        (&request["path"], &request["tenant"]),
        (&json!("/v1/traces"), &json!("blue"))
    );
    assert_eq!(request["service"], "my-agent");
    let spans = request["spans"].as_array().expect("spans");
    let root = &spans[0];
    assert_eq!(
        (&root["name"], &root["parent"]),
        (&json!("execute_tool read_file"), &json!(""))
    );
    assert_eq!(
        root["trace"], "00000000000000000000000000000002",
        "the turn"
    );
    assert_eq!(root["attributes"]["gen_ai.tool.call.id"], "call_1");
    assert_eq!(root["attributes"]["toolgate.attempts"], 2);
    assert_eq!(root["events"], json!(["dispatched", "result"]));
    let names: Vec<_> = spans[1..]
        .iter()
        .map(|span| span["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        names,
        [
            "attempt 1",
            "attempt 2",
            "layer again",
            "layer limit",
            "layer limit"
        ]
    );
    for child in &spans[1..] {
        assert_eq!(
            (&child["parent"], &child["trace"]),
            (&root["span"], &root["trace"])
        );
    }
    assert_eq!(
        (&spans[1]["failed"], &spans[2]["failed"]),
        (&json!(true), &json!(false))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_and_suspended_calls_arrive_too_and_are_linked() {
    let mut receiver = CollectorProcess::start().await;
    let telemetry = start_telemetry(settings_for(receiver.port, PATIENCE));
    let refusing = from_fn(async |_, _| Outcome::refused(Refusal::OutOfScope, "no"));
    let gate = refusing.named("scope").in_band(Band::Decide);
    let stack = Stack::over(echo())
        .layer(telemetry.clone())
        .layer(gate)
        .build()
        .expect("in order");
    assert_eq!(
        stack.run(call("t")).await.status(),
        Some(Status::OutOfScope)
    );
    flush_blocking(&telemetry).await;
    let request = receiver.next_request().await;
    let root = &request["spans"][0];
    assert_eq!(
        (&root["failed"], &root["attributes"]["error.type"]),
        (&json!(true), &json!("refused"))
    );
    assert_eq!(request["spans"][1]["name"], "layer scope");

    run_twice(telemetry.clone(), seed("t", json!({})))
        .await
        .assert_replays();
    flush_blocking(&telemetry).await;
    // A slow machine may send them in two requests.
    let mut roots = Vec::new();
    while roots.len() < 2 {
        let request = receiver.next_request().await;
        let spans = request["spans"].as_array().expect("spans");
        roots.extend(
            spans
                .iter()
                .filter(|span| span["name"] == "execute_tool t")
                .cloned(),
        );
    }
    assert_eq!(roots[0]["attributes"]["toolgate.status"], "suspended");
    assert_eq!(roots[1]["links"], json!([roots[0]["span"]]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_are_those_of_the_calls_clock() {
    let mut receiver = CollectorProcess::start().await;
    let telemetry = start_telemetry(settings_for(receiver.port, PATIENCE));
    let call = Call::new(toolgate_core::CallSeed {
        env: env_at(&TestClock::new()),
        ..seed("t", json!({}))
    });
    Stack::over(echo())
        .layer(telemetry.clone())
        .build()
        .expect("in order")
        .run(call)
        .await;
    flush_blocking(&telemetry).await;
    assert_eq!(
        receiver.next_request().await["spans"][0]["started"],
        1_767_225_600_000_000_000_u64
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_collector_changes_no_outcome_and_the_drops_are_counted() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address")
        .port();
    let telemetry = start_telemetry(settings_for(closed, PATIENCE));
    let stack = Stack::over(echo())
        .layer(telemetry.clone())
        .build()
        .expect("in order");
    for _ in 0..3 {
        assert!(stack.run(call("t")).await.is_ok());
    }
    flush_blocking(&telemetry).await;
    assert_eq!(
        (telemetry.counters().exported(), telemetry.dropped()),
        (0, 3)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_never_responds_blocks_no_call_and_every_span_is_counted() {
    // It listens, so that connections are made, but never accepts them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let telemetry = start_telemetry(settings_for(port, Duration::from_millis(100)));
    let stack = Stack::over(echo())
        .layer(telemetry.clone())
        .build()
        .expect("in order");
    // More than fit into the queue.
    for _ in 0..4_000 {
        assert!(stack.run(call("t")).await.is_ok());
    }
    let waiting = telemetry.clone();
    let flushed = tokio::task::spawn_blocking(move || waiting.flush(Duration::from_millis(1)))
        .await
        .expect("no panic");
    assert!(flushed.is_err(), "waiting has a limit");
    flush_blocking(&telemetry).await;
    assert_eq!(
        (telemetry.counters().exported(), telemetry.dropped()),
        (0, 4_000)
    );
}

/// A collector in a separate process: this test binary, running [`receiver`].
struct CollectorProcess {
    port: u16,
    lines: Lines<BufReader<ChildStdout>>,
    // Killed when dropped.
    _process: Child,
}

impl CollectorProcess {
    async fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "--exact",
                "telemetry_otlp::receiver",
                "--ignored",
                "--nocapture",
            ])
            .env(PLAYS_RECEIVER, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a second process");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut receiver = Self {
            port: 0,
            lines,
            _process: process,
        };
        receiver.port = receiver.next_line("PORT ").await.parse().expect("a port");
        receiver
    }

    /// Returns the next request that it has received.
    async fn next_request(&mut self) -> Value {
        serde_json::from_str(&self.next_line("GOT ").await).expect("JSON")
    }

    async fn next_line(&mut self, word: &str) -> String {
        let find = async {
            // The test harness of the other process writes its own lines.
            while let Some(line) = self.lines.next_line().await.expect("readable") {
                if let Some((_, rest)) = line.split_once(word) {
                    return rest.to_owned();
                }
            }
            panic!("the receiver has ended")
        };
        tokio::time::timeout(PATIENCE, find)
            .await
            .expect("the receiver writes a line")
    }
}

#[tokio::test]
#[ignore = "run by a process that the other tests start"]
async fn receiver() {
    if std::env::var_os(PLAYS_RECEIVER).is_none() {
        return;
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    println!(
        "\nPORT {}",
        listener.local_addr().expect("an address").port()
    );
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(serve_connection(stream));
    }
}

/// Answers the requests of one connection, one after the other.
async fn serve_connection(mut stream: tokio::net::TcpStream) {
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if read.read_line(&mut line).await.expect("readable") == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let header = |name: &str| {
            let named = |line: &&String| line.to_ascii_lowercase().starts_with(&format!("{name}:"));
            head.iter()
                .find(named)
                .and_then(|line| line.split_once(": "))
                .map(|(_, value)| value.to_owned())
        };
        let length = header("content-length")
            .and_then(|length| length.parse().ok())
            .expect("a length");
        let mut body = vec![0; length];
        read.read_exact(&mut body).await.expect("a body");
        let request = ExportTraceServiceRequest::decode(&body[..]).expect("protobuf");
        let path = head[0].split(' ').nth(1).expect("a path");
        println!(
            "\nGOT {}",
            describe_request(path, header("x-tenant"), &request)
        );
        write
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .expect("writable");
    }
}

fn describe_request(
    path: &str,
    tenant: Option<String>,
    request: &ExportTraceServiceRequest,
) -> Value {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let spans: Vec<_> = request
        .resource_spans
        .iter()
        .flat_map(|r| &r.scope_spans)
        .flat_map(|s| &s.spans)
        .collect();
    let resource = request.resource_spans[0]
        .resource
        .as_ref()
        .expect("a resource");
    let spans: Vec<_> = spans
        .iter()
        .map(|span| {
            json!({
                "name": span.name,
                "trace": hex(&span.trace_id),
                "span": hex(&span.span_id),
                "parent": hex(&span.parent_span_id),
                "started": span.start_time_unix_nano,
                "failed": span.status.as_ref().is_some_and(|status| status.code == 2),
                "attributes": plain_values(&span.attributes),
                "events": span.events.iter().map(|event| &event.name).collect::<Vec<_>>(),
                "links": span.links.iter().map(|link| hex(&link.span_id)).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "path": path, "tenant": tenant, "service": plain_values(&resource.attributes)["service.name"], "spans": spans })
}

fn plain_values(attributes: &[KeyValue]) -> Value {
    let value = |attribute: &KeyValue| match attribute
        .value
        .as_ref()
        .and_then(|value| value.value.as_ref())
    {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::BoolValue(flag)) => json!(flag),
        _ => Value::Null,
    };
    attributes
        .iter()
        .map(|attribute| (attribute.key.clone(), value(attribute)))
        .collect()
}
