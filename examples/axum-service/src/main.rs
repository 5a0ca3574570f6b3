//! An agent behind an HTTP service: a message is posted, the events of its run are streamed, and
//! approvals are listed and decided by other requests.
//!
//! Run it with `cargo run --release -p axum-service`. It needs no key and no network: the model is
//! a script, and the program is its own client, on a free port of this machine.

use std::{convert::Infallible, error::Error, fmt::Display, io, net::SocketAddr, sync::Arc};

use axum::response::sse::{Event, Sse};
use axum::{Json, Router, extract::State, http::StatusCode, routing};
use futures::{StreamExt, future, stream::BoxStream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use toolgate::model::{ScriptLine, ScriptedModel};
use toolgate::{Gate, approval::ApprovalRequest, session::RunUpdate, tool};

/// Sends money back.
#[tool(side_effect = "network")]
async fn refund(customer: String, amount: u32) -> String {
    format!("sent {amount} to {customer}")
}

type Failure = (StatusCode, String);
type EventStream = Sse<BoxStream<'static, Result<Event, Infallible>>>;

fn fail(error: impl Display) -> Failure {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// `POST /messages`: begins a session and streams what happens in it.
async fn post(State(gate): State<Arc<Gate>>, message: String) -> Result<EventStream, Failure> {
    let model = ScriptedModel::new([
        ScriptLine::new().call("refund", json!({ "customer": "Ann", "amount": 20 })),
        ScriptLine::new().say("Ann has her 20 back."),
    ]);
    let builder = gate.session_builder(model).map_err(fail)?;
    // The run waits for decisions instead of suspending, so one stream shows all of it.
    let session = builder.wait_for_answers().build().await.map_err(fail)?;
    // A client that disconnects ends its stream, not the run.
    let updates = session.start(message).updates();
    let events = updates.filter_map(|update| future::ready(to_sse(update).map(Ok)));
    Ok(Sse::new(events.boxed()))
}

fn to_sse(update: RunUpdate) -> Option<Event> {
    let event = Event::default();
    match update {
        RunUpdate::Event(happened) => event.event(happened.name()).json_data(&*happened).ok(),
        RunUpdate::End(report) => {
            let text = report.map_or_else(|error| error.to_string(), |report| report.text);
            Some(event.event("report").data(text))
        }
        RunUpdate::Piece(_) | RunUpdate::Lagged(_) => None,
    }
}

/// `GET /approvals`: lists what is pending, in all sessions.
async fn list(State(gate): State<Arc<Gate>>) -> Result<Json<Vec<Arc<ApprovalRequest>>>, Failure> {
    let approvals = gate.approvals();
    let rows = approvals.list_approvals(Default::default()).await;
    let rows = rows.map_err(fail)?;
    Ok(Json(rows.into_iter().map(|row| row.request).collect()))
}

/// `POST /approvals`: decides. A real service takes `by` from the login, not from the body.
async fn decide(State(gate): State<Arc<Gate>>, body: Json<Value>) -> Result<StatusCode, Failure> {
    let decided = gate.approvals().decide_raw(&body).await;
    decided.map_err(|error| (StatusCode::CONFLICT, error.to_string()))?;
    Ok(StatusCode::NO_CONTENT)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let service = Router::new()
        .route("/messages", routing::post(post))
        .route("/approvals", routing::get(list).post(decide))
        .with_state(Arc::new(Gate::in_memory()?.tool(refund)?));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, service).await });

    // From here on it is the client: it reads the stream, and decides over another connection.
    println!("POST /messages");
    let mut lines = send(address, "POST /messages", "Ann paid twice.").await?;
    let mut last = String::new();
    while let Some(line) = lines.next_line().await? {
        if let Some(name) = line.strip_prefix("event: ") {
            println!("   {name}");
        }
        if line == "event: tool_approval_requested" {
            approve_first(address).await?;
        }
        last = line.strip_prefix("data: ").map_or(last, str::to_owned);
    }
    println!("the agent: {last}");
    assert_eq!(last, "Ann has her 20 back.");
    Ok(())
}

async fn approve_first(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut lines = send(address, "GET /approvals", "").await?;
    let mut body = String::new();
    while let Some(line) = lines.next_line().await? {
        body = line;
    }
    let request = serde_json::from_str::<Value>(&body)?[0].take();
    println!(
        "GET /approvals\n   {}: {}",
        request["tool"], request["arguments"]
    );
    let decision = json!({
        "approval_id": request["approval_id"], "generation": request["generation"],
        "arguments_digest": request["arguments_digest"], "decision": "approve", "by": "carol",
    });
    let mut answer = send(address, "POST /approvals", &decision.to_string()).await?;
    let status = answer.next_line().await?.unwrap_or_default();
    println!("POST /approvals\n   {status}");
    Ok(())
}

/// Sends a request, and returns the lines of the answer as they arrive.
async fn send(to: SocketAddr, what: &str, body: &str) -> io::Result<Lines<BufReader<TcpStream>>> {
    let mut connection = TcpStream::connect(to).await?;
    let head = "content-type: application/json\r\ncontent-length";
    let text = format!("{what} HTTP/1.0\r\n{head}: {}\r\n\r\n{body}", body.len());
    connection.write_all(text.as_bytes()).await?;
    Ok(BufReader::new(connection).lines())
}
