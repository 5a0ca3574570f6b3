//! Two tools: one that only reads, and one that sends something and cannot be undone.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
};

use toolgate::{prelude::*, tool::RegisterError};

/// Looks up a customer.
#[tool(read_only, idempotent, kind = "search")]
async fn look_up(
    /// The customer.
    customer: String,
) -> String {
    format!("{customer} pays within 30 days")
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Invoice {
    /// The customer.
    customer: String,
    /// The amount in euros.
    amount: u32,
}

/// Builds the registry. Sent invoices are appended to the file `outbox`.
pub(crate) fn build_registry(outbox: PathBuf) -> Result<Registry, RegisterError> {
    let registry = Registry::new();
    registry.register(look_up)?;
    registry.register(tool_fn(
        "send_invoice",
        "Sends an invoice.",
        move |invoice: Invoice, _| {
            let outbox = outbox.clone();
            async move {
                let line = format!("{} euros to {}", invoice.amount, invoice.customer);
                append_to_outbox(&outbox, &line)?;
                Ok::<_, ToolError>(format!("sent an invoice of {line}"))
            }
        },
    ))?;
    Ok(registry)
}

fn append_to_outbox(outbox: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(outbox)?;
    writeln!(file, "{line}")?;
    file.sync_all()
}
