use toolgate::*;

/// Speaks.
#[tool(output)]
async fn speak() -> Result<ToolOutput, ToolError> {
    Ok("hello".into())
}

/// Prints.
#[tool(output)]
async fn print() -> std::fmt::Result {
    Ok(())
}

fn main() {}
