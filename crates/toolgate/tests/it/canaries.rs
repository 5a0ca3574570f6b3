//! Plants secrets of every known kind wherever a tool can put one, and searches every surface for
//! them.

use std::sync::{Arc, Mutex};

use serde_json::json;
use toolgate::{
    Config, Resources, View, default_stack,
    event::BusDelivery,
    layers::{
        MemoryReceipts, ProgressManager, Redact, SharedRedactor, SharedSpanSink, ToastManager,
        ToolSpan, redact_fn, span_fn,
    },
    prelude::*,
    session::{Dispatcher, TurnReport, TurnRequest},
    stack::{LogLevel, Progress, RedactionError, Redactor, ToolRequest},
    tool::Context,
    value::Json,
};

/// Fake secrets, each with a text around it.
const CANARIES: &[(&str, &str)] = &[
    ("AKIAQ3EGRIHT4NOTREAL", "id {} here"),
    (
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "aws_secret_access_key = {}",
    ),
    ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "clone with {}"),
    (
        "github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789abcd",
        "PAT {}",
    ),
    ("glpat-x1Y2z3A4b5C6d7E8f9G0", "PRIVATE-TOKEN {}"),
    ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "npm {}"),
    ("xoxb-123456789012-abcdefABCDEF", "slack {}"),
    (
        "hooks.slack.com/services/T0000AAAA/B0000BBBB/abcdefghijklmnopqrstuvwx",
        "https://{}",
    ),
    ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "stripe {}"),
    ("whsec_abcdefghijABCDEFGHIJ0123456789", "hook {}"),
    ("sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3n4", "openai {}"),
    ("sk-ant-api03-aaaaBBBBcccc1111dddd2222eeee", "anthropic {}"),
    ("AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q", "maps?key={}&z=1"),
    (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJuIjoxfQ.c2lnbmF0dXJlMTIz",
        "jwt {}",
    ),
    (
        "MIIEowIBAAKCAQEAx0Zm9vYmFy",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    ),
    ("hunter2hunter2", "postgres://ann:{}@db.internal:5432/app"),
    ("c2VjcmV0LXRva2VuLTEyMw", "Authorization: Bearer {}"),
    ("YW5uOmh1bnRlcjI5OTk5", "Proxy: Basic {}"),
    ("sid=s%3Aabc123def456", "Cookie: {}\nAccept: */*"),
    ("corr3ct-h0rse", "password: {}"),
    ("tr0ub4dor&3", "{\"db_password\": \"{}\"}"),
    ("9f8e7d6c5b4a39281706f5e4d3c2b1a0", "DEPLOY_TOKEN={} make"),
    (
        "SG.aaaaBBBBccccDDDD1111.eeeeFFFFggggHHHH2222iiiiJJJJ",
        "mail {}",
    ),
    ("hf_abcdefghijABCDEFGHIJabcdefghij1234", "HF {}"),
    ("hvs.CAESIabcdefghijklmnopqrst", "vault {}"),
];

/// The inputs of the tool.
static RECEIVED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Leaks its input through every channel that a tool has.
#[tool(read_only, idempotent, long_running = "Leaking")]
async fn leak(
    /// Where to put it.
    place: String,
    /// What to put there.
    text: String,
    cx: &Context,
) -> Result<serde_json::Value, ToolError> {
    RECEIVED.lock().expect("whole").push(text.clone());
    cx.report_progress(Progress::busy().with_message(text.clone()));
    cx.write_log(LogLevel::Warn, &text);
    match place.as_str() {
        "panic" => panic!("{text}"),
        "error" => Err(ToolError::new(format!("cannot: {text}")).with_operator_detail(text)),
        "field" => Ok(json!({ "note": [{ "deep": text }] })),
        _ => Ok(json!(text)),
    }
}

/// Everything that can be read after a turn.
struct Surfaces {
    spans: Arc<Mutex<Vec<Arc<ToolSpan>>>>,
    shown: Arc<Mutex<Vec<String>>>,
    parts: Resources,
    dispatcher: Dispatcher,
    view: View,
    _attached: toolgate::event::AttachedConsumer,
}

const CONFIG: &str = "
[layers.receipts]
sink = 'memory'
[layers.telemetry]
capture_content = true
[layers.idempotency]
[layers.toasts]
on_success = true
[layers.require_reason]
";

impl Surfaces {
    async fn open() -> Self {
        Self::open_with(Resources::new()).await
    }

    /// Opens a stack with services of the program.
    async fn open_with(parts: Resources) -> Self {
        let registry = Registry::new();
        registry.register(leak).expect("free");
        let spans = Arc::<Mutex<Vec<Arc<ToolSpan>>>>::default();
        let shown = Arc::<Mutex<Vec<String>>>::default();
        let seen = spans.clone();
        let sink = span_fn(move |span: &Arc<ToolSpan>| {
            seen.lock().expect("whole").push(span.clone());
            Ok(())
        });
        let parts = parts.with(SharedSpanSink::new(sink));
        let layers = Config::parse(CONFIG)
            .and_then(|config| default_stack(&config, &parts))
            .expect("valid");
        let stack = Stack::over(registry.clone())
            .any_layers(layers)
            .build()
            .expect("in order");
        let view = View::for_stack(&registry, &stack).expect("additive");
        let redactor = parts.get::<SharedRedactor>().expect("the stack redacts");
        let dispatcher = Dispatcher::builder(stack)
            .redactor(redactor)
            .max_concurrent(1)
            .build()
            .await
            .expect("opens");
        let toasts = shown.clone();
        let progress = shown.clone();
        let toasted = ToastManager::new();
        toasted.on_change(move |all| toasts.lock().expect("whole").push(format!("{all:?}")));
        let watched = ProgressManager::new();
        watched.on_change(move |all| progress.lock().expect("whole").push(format!("{all:?}")));
        let attached = dispatcher.bus().attach(move |delivery| match delivery {
            BusDelivery::Event(event) => {
                toasted.apply_event(&event);
                watched.apply_event(&event);
            }
            BusDelivery::Piece(_) | BusDelivery::Lagged(_) => {}
        });
        Self {
            spans,
            shown,
            parts,
            dispatcher,
            view,
            _attached: attached,
        }
    }

    /// Returns everything that can be read, by surface.
    async fn read_all(&self, report: &TurnReport) -> Vec<(&'static str, String)> {
        let session = self.dispatcher.session();
        let events = self
            .dispatcher
            .store()
            .events(session, 0, 100_000)
            .await
            .expect("reads");
        let told: Vec<_> = report
            .results
            .iter()
            .map(|result| result.model_text())
            .collect();
        let outcomes: Vec<_> = report
            .results
            .iter()
            .map(|result| result.outcome.clone())
            .collect();
        vec![
            ("events", json!(events).to_string()),
            ("model text", format!("{told:?}")),
            ("outcomes", json!(outcomes).to_string()),
            (
                "spans",
                json!(*self.spans.lock().expect("whole")).to_string(),
            ),
            (
                "receipts",
                json!(self.parts.get_or_default::<MemoryReceipts>().receipts()).to_string(),
            ),
            (
                "toasts and progress",
                self.shown.lock().expect("whole").join("\n"),
            ),
        ]
    }
}

#[tokio::test]
async fn no_planted_secret_appears_anywhere() {
    assert!(CANARIES.len() >= 24);
    let surfaces = Surfaces::open().await;
    let mut marks = 0;
    for (secret, around) in CANARIES {
        let text = around.replace("{}", secret);
        let request = |n: usize, place: &str| {
            let arguments =
                json!({ "place": place, "text": text, "reason": format!("because of {text}") });
            ToolRequest::from_json(&format!("call_{n}"), "leak", arguments)
        };
        // The last one is a cached result.
        let places = ["panic", "error", "field", "text", "text"];
        let requests = places
            .iter()
            .enumerate()
            .map(|(n, place)| request(n, place))
            .collect();
        let turn = surfaces
            .dispatcher
            .open_turn(TurnRequest::new(surfaces.view.clone(), requests))
            .await
            .expect("opens");
        let report = turn.run().await.expect("runs");
        let statuses: Vec<_> = report
            .results
            .iter()
            .map(|result| result.status().expect("settled"))
            .collect();
        assert_eq!(
            statuses,
            [
                Status::Exception,
                Status::ExecutorError,
                Status::Ok,
                Status::Ok,
                Status::Ok
            ],
            "{secret}"
        );
        assert!(report.results[4].outcome.as_ref().expect("settled").cached);
        assert!(
            RECEIVED
                .lock()
                .expect("whole")
                .iter()
                .any(|seen| seen.contains(secret)),
            "the tool receives the original input"
        );
        for (surface, read) in surfaces.read_all(&report).await {
            assert!(
                !read.contains(secret),
                "{secret} is among the {surface}: …{}…",
                text_around(&read, secret)
            );
            marks += read.matches("[redacted:").count();
        }
    }
    println!(
        "{} secrets in 5 places each; {marks} marks in their stead",
        CANARIES.len()
    );
    assert!(marks > CANARIES.len() * 10);
}

#[tokio::test]
async fn a_word_that_only_a_closure_knows_appears_nowhere() {
    const WORD: &str = "plumtree";
    let rules = redact_fn(|value: &Json| {
        let text = value.to_string().replace(WORD, "[name]");
        text.parse().map(Some).map_err(|_| RedactionError)
    });
    let surfaces = Surfaces::open_with(Resources::new().with(SharedRedactor::new(rules))).await;
    let places = ["panic", "error", "field", "text"];
    let request = |(n, place): (usize, &&str)| {
        let arguments = json!({ "place": place, "text": WORD, "reason": format!("for {WORD}") });
        ToolRequest::from_json(&format!("call_{n}"), "leak", arguments)
    };
    let requests = places.iter().enumerate().map(request).collect();
    let request = TurnRequest::new(surfaces.view.clone(), requests);
    let turn = surfaces.dispatcher.open_turn(request).await.expect("opens");
    let report = turn.run().await.expect("runs");
    let received = RECEIVED
        .lock()
        .expect("whole")
        .iter()
        .any(|seen| seen.contains(WORD));
    assert!(received, "the tool receives the original input");
    for (surface, read) in surfaces.read_all(&report).await {
        assert!(
            !read.contains(WORD),
            "it is among the {surface}: …{}…",
            text_around(&read, WORD)
        );
        assert!(
            read.contains("[name]") || surface == "toasts and progress",
            "{surface}"
        );
    }
}

/// Returns the text around the first occurrence of `secret`.
fn text_around<'a>(text: &'a str, secret: &str) -> &'a str {
    let at = text.find(secret).unwrap_or_default();
    let begin = text.floor_char_boundary(at.saturating_sub(200));
    &text[begin..text.ceil_char_boundary((at + 60).min(text.len()))]
}

#[tokio::test]
async fn a_failing_redactor_leaks_nothing_and_changes_no_file() {
    let folder = std::env::temp_dir().join(format!("toolgate-canary-{}", std::process::id()));
    let path = folder.clone();
    let write = tool_fn("write", "Writes.", move |_: serde_json::Value, _cx| {
        let path = path.clone();
        async move { Ok::<_, ToolError>(std::fs::write(path, "changed")?) }
    });
    let registry = Registry::new();
    registry.register(write).expect("free");
    let throws = Redact::with(SharedRedactor::new(redact_fn(|value| panic!("{value}"))));
    let stack = Stack::over(registry.clone())
        .layer(throws)
        .build()
        .expect("in order");
    let dispatcher = Dispatcher::builder(stack)
        .redactor(SharedRedactor::new(FailingRedactor))
        .build()
        .await
        .expect("opens");
    let request = ToolRequest::from_text("call_1", "write", r#"{"password":"hunter2hunter2"}"#);
    let turn = dispatcher
        .open_turn(TurnRequest::new(
            toolgate_testkit::plain_view(&registry),
            vec![request],
        ))
        .await
        .expect("opens");
    let report = turn.run().await.expect("runs");
    assert_eq!(report.results[0].status(), Some(Status::Redacted));
    let events = dispatcher
        .store()
        .events(dispatcher.session(), 0, 1000)
        .await
        .expect("reads");
    let read = format!("{} {:?}", json!(events), report.results[0].model_text());
    assert!(!read.contains("hunter2"), "{read}");
    assert!(!folder.exists());
}

struct FailingRedactor;

impl Redactor for FailingRedactor {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        panic!("{value}")
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        panic!("{text}")
    }
}
