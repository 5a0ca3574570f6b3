//! The generated code uses no name of the user's module, and Toolgate may have another path.

#![deny(warnings)]
#![allow(dead_code)]

mod gate {
    pub use toolgate::*;
}

mod tools {
    use crate::gate::{ToolError, tool, tool::Context};

    // Everything a careless macro would pick up.
    pub struct Option;
    pub struct Ok;
    pub struct Some;
    pub struct String;
    pub struct Tool;
    pub struct ToolSpec;
    pub struct Schema;
    pub struct Deserialize;
    pub struct JsonSchema;
    pub type Result<T> = std::result::Result<T, ToolError>;
    pub mod toolgate {}

    /// Counts.
    #[tool(
        crate = "crate::gate",
        kind = "think",
        resource_name = "input",
        timeout = "500ms",
        long_running = "x"
    )]
    pub async fn arguments(input: std::string::String, output: u8, cx: &Context) -> Result<usize> {
        std::result::Result::Ok(input.len() + usize::from(output) + cx.tool.as_str().len())
    }

    /// Has a name that careless generated code would use for a variable.
    #[tool(crate = "crate::gate")]
    pub async fn context(cx: &Context) -> bool {
        cx.is_cancelled()
    }
}

fn main() {
    let registry = toolgate::Registry::new();
    registry.register(tools::arguments).expect("free");
    registry.register(tools::context).expect("free");
}
