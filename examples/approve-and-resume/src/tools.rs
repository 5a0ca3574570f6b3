//! Two tools: one that only looks, and one that sends something and cannot take it back.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
};

use toolgate::{RegisterError, prelude::*};

/// What is known about a customer.
#[tool(read_only, idempotent, kind = "search")]
async fn look_up(
    /// Who.
    customer: String,
) -> String {
    format!("{customer} pays within 30 days")
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Invoice {
    /// To whom.
    customer: String,
    /// How much, in euros.
    amount: u32,
}

/// The registry. What is sent ends up in the file `outbox`.
pub(crate) fn tools(outbox: PathBuf) -> Result<Registry, RegisterError> {
    let registry = Registry::new();
    registry.register(look_up)?;
    registry.register(tool_fn(
        "send_invoice",
        "Sends an invoice.",
        move |invoice: Invoice, _| {
            let outbox = outbox.clone();
            async move {
                let line = format!("{} euros to {}", invoice.amount, invoice.customer);
                send(&outbox, &line)?;
                Ok::<_, ToolError>(format!("sent an invoice of {line}"))
            }
        },
    ))?;
    Ok(registry)
}

fn send(outbox: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(outbox)?;
    writeln!(file, "{line}")?;
    file.sync_all()
}
