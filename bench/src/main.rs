//! The cost sheet: what a call costs, beside floors written in the same program.
//!
//! `cargo run --release -p toolgate-bench -- cost` prints a table, with `--json` an array of
//! `{"name", "value", "unit", "floor", "ratio"}`. `--rounds N` measures longer. Where `valgrind` is installed,
//! instructions are counted as well (`--no-instructions` leaves that out). `--only PART` measures one part. `--write
//! FILE` writes the table into a page, with the machine and the date; that is how `docs/reference/cost.md` is made.
//!
//! `cargo run --release -p toolgate-bench -- store` measures what being durable costs, beside raw commits and syncs on
//! the same disk, with the same options; its table is a section of its own in the same page. PostgreSQL is measured on the
//! server that `TOOLGATE_TEST_POSTGRES` names, if it is set.
//!
//! `cargo run --release -p toolgate-bench -- loop` measures whole runs with a model that answers at once, in the shapes
//! by which other loops are measured; a section of its own as well.
//!
//! `cargo run --release -p toolgate-bench -- tui` measures frames of the terminal UI over a long session.
//!
//! `cargo run --release -p toolgate-bench -- search` measures how good and how fast search is; see `search/mod.rs`.

mod allocations;
mod floors;
mod instructions;
mod layers;
mod measure;
mod ours;
mod page;
mod program;
mod search;
mod shapes;
mod store;
mod store_floors;
mod tui;
mod used;

use std::{hint::black_box, process::ExitCode};

use measure::{BenchClock, Contest, CostRow, of, print};
use tower::ServiceExt;
use tower_service::Service;

/// The allocator of the program `toolgate`, for floors and gate alike.
#[global_allocator]
static ALLOCATOR: allocations::CountedAllocator = allocations::CountedAllocator;

const USAGE: &str = "usage: toolgate-bench cost [--json] [--rounds N] [--no-instructions] [--only PART] [--write FILE]
       toolgate-bench store [--json] [--rounds N] [--only PART] [--write FILE]
       toolgate-bench loop [--json] [--rounds N] [--no-instructions] [--only PART] [--write FILE]
       toolgate-bench tui [--json] [--rounds N] [--only PART] [--write FILE]
       toolgate-bench search [--json] [--rounds N] [--messages N] [--directory DIR] [--only PART] [--write FILE]";
/// Calls per round of the small contests.
const CALLS: usize = 2_000;
const FAN: usize = 1_000;

/// The options of the command line.
struct BenchOptions {
    json: bool,
    rounds: usize,
    instructions: bool,
    write: Option<String>,
    only: Option<String>,
}

impl BenchOptions {
    /// Checks whether a part of the sheet is selected, and announces that it is being measured.
    fn wants(&self, part: &str) -> bool {
        let wanted = self.only.as_deref().is_none_or(|only| only == part);
        if wanted && !self.json {
            eprintln!("measuring {part} …");
        }
        wanted
    }
}

/// The parts of the sheet.
const PARTS: [&str; 5] = ["stacks", "dispatch", "fan-out", "layers", "instructions"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let result = match words.as_slice() {
        ["cost", rest @ ..] => {
            options(rest, &PARTS).and_then(|options| runtime.block_on(cost(&options)))
        }
        ["store", rest @ ..] => {
            options(rest, &store::PARTS).and_then(|options| runtime.block_on(durable(&options)))
        }
        ["loop", rest @ ..] => {
            options(rest, &shapes::PARTS).and_then(|options| runtime.block_on(whole_loop(&options)))
        }
        ["tui", rest @ ..] => options(rest, &tui::PARTS).and_then(|options| screens(&options)),
        ["search", rest @ ..] => search::CorpusOptions::parse(rest).and_then(|(corpus, rest)| {
            let options = options(&rest, &search::PARTS)?;
            runtime.block_on(search::run(&options, &corpus))
        }),
        // For counting instructions: a contender by name, a number of times.
        ["count", name, times] => {
            let times = times.parse().map_err(|_| USAGE.to_owned());
            times.and_then(|times| runtime.block_on(instructions::contender(name, times)))
        }
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(2)
        }
    }
}

fn options(words: &[&str], parts: &[&str]) -> Result<BenchOptions, String> {
    let mut options = BenchOptions {
        json: false,
        rounds: 15,
        instructions: true,
        write: None,
        only: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--json" => options.json = true,
            "--no-instructions" => options.instructions = false,
            "--only" => {
                let part = words.next().filter(|part| parts.contains(*part));
                let unknown = || format!("--only takes one of {}", parts.join(", "));
                options.only = Some((*part.ok_or_else(unknown)?).to_owned());
            }
            "--write" => {
                options.write =
                    Some((*words.next().ok_or("--write takes the name of a file")?).to_owned())
            }
            "--rounds" => {
                let rounds = words
                    .next()
                    .and_then(|text| text.parse().ok())
                    .filter(|rounds| *rounds > 0);
                options.rounds = rounds.ok_or("--rounds takes a whole number above 0")?;
            }
            other => return Err(format!("{other} is not an option\n{USAGE}")),
        }
    }
    Ok(options)
}

async fn cost(options: &BenchOptions) -> Result<(), String> {
    let wanted = |part: &str| options.wants(part);
    let rounds = options.rounds;
    let mut rows = Vec::new();
    if wanted("stacks") {
        rows.extend(stacks(rounds).await);
    }
    if wanted("dispatch") {
        rows.extend(dispatch(rounds).await);
    }
    if wanted("fan-out") {
        rows.extend(fan_out(rounds).await);
    }
    if wanted("layers") {
        rows.extend(layers::each(rounds).await);
        rows.extend(layers::whole(rounds).await);
    }
    if options.instructions && wanted("instructions") {
        rows.extend(instructions::rows());
    }
    show(&rows, options, page::with_cost)
}

async fn durable(options: &BenchOptions) -> Result<(), String> {
    show(&store::rows(options).await?, options, page::with_store)
}

async fn whole_loop(options: &BenchOptions) -> Result<(), String> {
    show(&shapes::rows(options).await, options, page::with_loop)
}

fn screens(options: &BenchOptions) -> Result<(), String> {
    let mut rows = tui::rows(options);
    rows.extend(program::rows(options)?);
    show(&rows, options, page::with_tui)
}

/// Prints rows and, if requested, writes them into their section of a page.
fn show(
    rows: &[CostRow],
    options: &BenchOptions,
    page: fn(&str, &[CostRow]) -> String,
) -> Result<(), String> {
    if let Some(file) = &options.write {
        let before = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            other => other,
        };
        let written = before.and_then(|before| std::fs::write(file, page(&before, rows)));
        written.map_err(|error| format!("{file}: {error}"))?;
        eprintln!("wrote {file}");
    }
    print(rows, options.json).map_err(|error| error.to_string())
}

/// A stack alone: no events, no digests.
async fn stacks(rounds: usize) -> Vec<CostRow> {
    let plain = floors::plain_call();
    let one = floors::BoxedChain::new(1, None);
    let ten = floors::BoxedChain::new(10, None);
    let registry = ours::registry(None);
    let stacks = [0, 1, 10].map(|layers| ours::stack(&registry, layers));
    let call = ours::call();
    let ours = |stack: &toolgate::Stack| {
        let stack = stack.clone();
        let call = call.clone();
        async move {
            for _ in 0..CALLS {
                black_box(stack.run(black_box(call.clone())).await);
            }
        }
    };
    let floor = |chain: &std::sync::Arc<floors::BoxedChain>| {
        let chain = chain.clone();
        let plain = plain.clone();
        async move {
            for _ in 0..CALLS {
                black_box(chain.run(black_box(&plain)).await);
            }
        }
    };
    let contest = Contest::new(BenchClock::Cpu)
        .add("bare", CALLS, || async {
            for _ in 0..CALLS {
                black_box(floors::bare(black_box(&plain)).await);
            }
        })
        .add("tower10", CALLS, || async {
            let mut service = floors::tower_ten();
            for _ in 0..CALLS {
                let service = service.ready().await.expect("is ready");
                black_box(service.call(black_box(plain.clone())).await).expect("cannot fail");
            }
        })
        .add("boxed1", CALLS, || floor(&one))
        .add("boxed10", CALLS, || floor(&ten))
        .add("ours0", CALLS, || ours(&stacks[0]))
        .add("ours1", CALLS, || ours(&stacks[1]))
        .add("ours10", CALLS, || ours(&stacks[2]));
    let results = contest.run(rounds).await;
    let ns = |name| of(&results, name);
    vec![
        CostRow::new("bare async call", ns("bare"), "ns", None, ""),
        CostRow::new(
            "static tower stack, 10 layers",
            ns("tower10"),
            "ns",
            Some(ns("bare")),
            "bare async call",
        ),
        CostRow::new(
            "hand-written boxed chain, 10 layers",
            ns("boxed10"),
            "ns",
            Some(ns("bare")),
            "bare async call",
        ),
        CostRow::new(
            "stack of 0 layers",
            ns("ours0"),
            "ns",
            Some(ns("bare")),
            "bare async call",
        ),
        CostRow::new(
            "stack of 1 layer",
            ns("ours1"),
            "ns",
            Some(ns("boxed1")),
            "boxed chain of 1",
        ),
        CostRow::new(
            "stack of 10 layers",
            ns("ours10"),
            "ns",
            Some(ns("boxed10")),
            "boxed chain of 10",
        ),
        CostRow::new(
            "one layer more",
            (ns("ours10") - ns("ours0")) / 10.0,
            "ns",
            Some((ns("boxed10") - ns("boxed1")) / 9.0),
            "one boxed layer",
        ),
    ]
}

/// One call per turn through a dispatcher, without a session and a model: parse, validate, events,
/// digests, journal, results.
async fn dispatch(rounds: usize) -> Vec<CostRow> {
    const TURNS: usize = 500;
    let mut rows = Vec::new();
    for layers in [0, 10] {
        let least = floors::BoxedChain::new(layers, None);
        let gate = ours::TurnGate::new(layers, 8, None).await;
        let contest = Contest::new(BenchClock::Cpu)
            .add("least", TURNS, || async {
                for turn in 0..TURNS {
                    let text = |_| floors::arguments_of(turn).to_string();
                    assert_eq!(least.turn(text, 1, 8).await, 1);
                }
            })
            .add("ours", TURNS, || async {
                for turn in 0..TURNS {
                    let text = |_| floors::arguments_of(turn).to_string();
                    assert_eq!(gate.turn(text, 1).await, 1);
                }
            });
        let results = contest.run(rounds).await;
        let us = |name| of(&results, name) / 1e3;
        rows.push(CostRow::new(
            format!("full dispatch, {layers} layers, events and digests"),
            us("ours"),
            "us",
            Some(us("least")),
            "hand-written, the least work",
        ));
    }
    rows
}

/// Many calls in one turn, without a session and a model.
async fn fan_out(rounds: usize) -> Vec<CostRow> {
    let text = |call| floors::arguments_of(call).to_string();
    let least = floors::BoxedChain::new(10, None);
    let gate = ours::TurnGate::new(10, FAN, None).await;
    let contest = Contest::new(BenchClock::Cpu)
        .add("least", FAN, || async {
            assert_eq!(least.turn(text, FAN, FAN).await, FAN)
        })
        .add("ours100", 10 * 100, || async {
            for _ in 0..10 {
                assert_eq!(gate.turn(text, 100).await, 100);
            }
        })
        .add("ours1000", FAN, || async {
            assert_eq!(gate.turn(text, FAN).await, FAN)
        });
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    let row = |floor, note| {
        CostRow::new(
            "fan-out of 1000, per call",
            us("ours1000"),
            "us",
            Some(us(floor)),
            note,
        )
    };
    vec![
        row("least", "hand-written, the least work"),
        row("ours100", "our own fan-out of 100"),
    ]
}
