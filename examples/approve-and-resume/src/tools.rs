//! Two tools: one that only reads, and one that sends something and cannot be undone.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
};

use toolgate::{prelude::*, tool::State};

/// Looks up a customer.
#[tool(read_only, idempotent, kind = "search")]
pub(crate) async fn look_up(
    /// The customer.
    customer: String,
) -> String {
    format!("{customer} pays within 30 days")
}

/// Sends an invoice. Sent invoices are appended to the file `outbox`.
#[tool(side_effect = "network")]
pub(crate) async fn send_invoice(
    State(outbox): State<PathBuf>,
    /// The customer.
    customer: String,
    /// The amount in euros.
    amount: u32,
) -> Result<String, ToolError> {
    let line = format!("{amount} euros to {customer}");
    append_to_outbox(&outbox, &line)?;
    Ok(format!("sent an invoice of {line}"))
}

fn append_to_outbox(outbox: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(outbox)?;
    writeln!(file, "{line}")?;
    file.sync_all()
}
