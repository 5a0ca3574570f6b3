//! How good and how fast search is.
//!
//! `quality` asks the queries of `bench/search` and counts where the documents that answer them stand. `speed` and
//! `postgres` search a generated corpus. `--messages N` sets its size, and `--directory DIR` keeps its files there for the next
//! time.

mod corpus;
mod embedder;
mod erasing;
mod evaluation;
mod floor;
mod log;
mod page;
mod postgres;
mod quality;
mod queries;
mod speed;
mod turns;

use std::{error::Error, path::PathBuf};

use serde::Serialize;

use crate::{
    BenchOptions,
    measure::{self, CostRow},
};
use quality::QualityRow;

/// The parts of the sheet.
pub(crate) const PARTS: [&str; 3] = ["quality", "speed", "postgres"];

/// The number of messages of the generated corpus.
const MESSAGES: usize = 1_000_000;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// The options of search beside those of all sheets.
pub(crate) struct CorpusOptions {
    /// The number of messages.
    messages: usize,
    /// The directory of the databases; a temporary one by default.
    directory: Option<PathBuf>,
}

impl CorpusOptions {
    /// Takes the options of search out of the words of a command line, and returns the other words.
    pub(crate) fn parse<'w>(words: &[&'w str]) -> Result<(Self, Vec<&'w str>), String> {
        let mut options = Self {
            messages: MESSAGES,
            directory: None,
        };
        let mut others = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--messages" => {
                    let number = words.next().and_then(|text| text.parse().ok());
                    let number = number.filter(|number| *number >= corpus::LEAST_MESSAGES);
                    options.messages = number.ok_or_else(|| {
                        let least = corpus::LEAST_MESSAGES;
                        format!("--messages takes a number of at least {least}")
                    })?;
                }
                "--directory" => {
                    let path = words.next().ok_or("--directory takes a directory")?;
                    options.directory = Some(PathBuf::from(path));
                }
                other => others.push(other),
            }
        }
        Ok((options, others))
    }
}

/// All that was measured.
#[derive(Default, Serialize)]
struct SearchSheet {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quality: Vec<QualityRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    speed: Vec<CostRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    postgres: Vec<CostRow>,
}

/// Measures what is selected, prints it and, if requested, writes it into its sections of a page.
pub(crate) async fn run(options: &BenchOptions, corpus: &CorpusOptions) -> Result<(), String> {
    let sheet = measure(options, corpus).await;
    let sheet = sheet.map_err(|error| error.to_string())?;
    print(&sheet, options.json).map_err(|error| error.to_string())?;
    if let Some(file) = &options.write {
        page::write(file, &sheet, corpus.messages).map_err(|error| format!("{file}: {error}"))?;
        eprintln!("wrote {file}");
    }
    Ok(())
}

async fn measure(options: &BenchOptions, corpus: &CorpusOptions) -> Fallible<SearchSheet> {
    let mut sheet = SearchSheet::default();
    // First of all, while the model is not loaded yet.
    let model = embedder::rows(options.rounds).await?;
    if options.wants("quality") {
        sheet.quality = quality::rows().await?;
    }
    if options.wants("speed") {
        sheet.speed = model;
        sheet
            .speed
            .extend(speed::rows(options.rounds, corpus).await?);
    }
    if options.wants("postgres") {
        sheet.postgres = postgres::rows(options.rounds, corpus).await?;
    }
    Ok(sheet)
}

fn print(sheet: &SearchSheet, json: bool) -> Result<(), serde_json::Error> {
    if json {
        println!("{}", serde_json::to_string_pretty(sheet)?);
        return Ok(());
    }
    if !sheet.quality.is_empty() {
        quality::print(&sheet.quality);
    }
    for rows in [&sheet.speed, &sheet.postgres] {
        if !rows.is_empty() {
            println!();
            measure::print(rows, false)?;
        }
    }
    Ok(())
}
