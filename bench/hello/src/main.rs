//! A program that starts, makes one call and ends, as a user of the library would write it: it has what
//! it uses, and neither the command line nor the other shapes of the bench.
//!
//! It prints the processor time that it has used, in nanoseconds, and the most memory that it had, in
//! KiB. `toolgate-bench-hello nothing` makes no call: the floor.
//!
//! A process says this of itself, because what the system reports about a child that has ended is
//! different: the memory of its parent counts until the child's own program is loaded.

use futures::stream::BoxStream;
use mimalloc::MiMalloc;
use nix::time::{ClockId, clock_gettime};
use toolgate::{
    Annotations, Message, Model, Registry, RunEnd, Session, ToolError,
    layers::{Config, Resources},
    model::{Delta, MessagePart, ModelError, ModelName, ModelRequest, PartContent, Reply, Role},
    stack::ToolRequest,
    tool_fn,
};

/// The allocator of the program `toolgate`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A model that asks for one call and then says that it is done.
struct OneCall(ModelName);

impl Model for OneCall {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let message = if request.messages.len() == 1 {
            let call = ToolRequest::from_text("c0", "echo", r#"{"text":"hello"}"#);
            let part = MessagePart::from(PartContent::Call(call));
            Message::new(Role::Assistant, vec![part])
        } else {
            Message::assistant("done")
        };
        let done = Delta::Done(Box::new(Reply::new(message)));
        Box::pin(futures::stream::iter([Ok(done)]))
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct EchoInput {
    text: String,
}

/// Runs a session of one call through the default stack.
async fn make_one_call() {
    let registry = Registry::new();
    let echo = tool_fn(
        "echo",
        "Says it again.",
        |input: EchoInput, _cx| async move { Ok::<_, ToolError>(input.text) },
    );
    registry
        .register(echo.with_annotations(Annotations::read_only()))
        .expect("the name is free");
    let config = Config::parse("").expect("is valid");
    let stack = config.build(registry.clone(), &Resources::new());
    let model = OneCall(ModelName::new("stub", "script"));
    let session = Session::ungated(model, registry).stack(stack.expect("is in order"));
    let session = session.build().await.expect("opens");
    let report = session.run("go").await.expect("runs");
    assert_eq!(report.end, RunEnd::Completed);
    assert_eq!(report.text, "done");
}

/// Returns the processor time that this process has used, in nanoseconds.
fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("there is such a clock");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// Returns the most resident memory that this process had, in KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be made");
    if std::env::args().nth(1).is_none() {
        runtime.block_on(make_one_call());
    }
    drop(runtime);
    println!("{} {}", cpu_ns(), peak_kib().unwrap_or_default());
}
