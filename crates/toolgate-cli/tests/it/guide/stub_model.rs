//! A server on the loopback interface that answers every model request with "Done.".

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};

/// Starts the server and returns its address. It ends with the process of the test.
pub(super) fn start_stub_model() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that closes the connection must not stop the server.
            let _ = answer_request(stream);
        }
    });
    address
}

fn answer_request(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request_line = String::new();
    reader.read_line(&mut request_line)?;
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
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
    let events = if request_line.contains("/messages") {
        messages_reply()
    } else {
        chat_reply()
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    reader
        .get_mut()
        .write_all((head.to_owned() + &events).as_bytes())
}

/// The reply in the messages API of Anthropic.
fn messages_reply() -> String {
    let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
    let message = json!({
        "id": "m", "type": "message", "role": "assistant", "content": [], "model": "stub",
        "stop_reason": null, "usage": usage,
    });
    let events = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "Done." } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 2 } }),
        json!({ "type": "message_stop" }),
    ];
    let event = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or_default()
        )
    };
    events.iter().map(event).collect()
}

/// The reply in the chat completions API of OpenAI, which Ollama has too.
fn chat_reply() -> String {
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "stub", "choices": [choice] })
    };
    let first = chunk(json!({ "role": "assistant", "content": "Done." }), None);
    let last = chunk(json!({}), Some("stop"));
    format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n")
}
