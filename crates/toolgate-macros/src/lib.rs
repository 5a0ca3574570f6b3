//! The `#[tool]` attribute: an async function becomes a tool that a model can call.
//!
//! Use it through the `toolgate` crate, which the generated code refers to.
//!
//! ```
//! use toolgate::{Arguments, Call, Registry, Stack, ToolError, tool, tool::{Context}};
//!
//! /// Greets a person by name.
//! #[tool(kind = "think", side_effect = "none", idempotent)]
//! async fn greet(
//!     /// The person to greet.
//!     name: String,
//!     /// The number of greetings; 1 if not given.
//!     times: Option<usize>,
//!     cx: &Context,
//! ) -> Result<String, ToolError> {
//!     if cx.is_cancelled() {
//!         return Err(ToolError::cancelled());
//!     }
//!     Ok(format!("Hello, {name}! ").repeat(times.unwrap_or(1)).trim_end().to_owned())
//! }
//!
//! # futures::executor::block_on(async {
//! let registry = Registry::new();
//! registry.register(greet)?;
//! let stack = Stack::over(registry).build()?;
//! let outcome = stack.run(Call::detached("greet", Arguments::parse(r#"{ "name": "Ann" }"#)?)).await;
//! assert_eq!(outcome.settled().unwrap().model_text(), "Hello, Ann!");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

use proc_macro::TokenStream;

mod expand;
mod function;
mod options;
mod parameter;
mod returns;
mod words;

/// Turns an async function into a tool.
///
/// The function's name becomes a unit struct that implements `Tool` and can be registered. The function
/// itself is still there as `name::call(...)`, for code and tests.
///
/// - The doc comment is the description the model reads. Docs on parameters go into the schema.
/// - Parameters are the arguments. An `Option` may be omitted, an unknown argument is rejected, and
///   `#[serde(...)]` and `#[schemars(...)]` work as on a struct field.
/// - A parameter of type `&Context` or `Context` is not shown to the model; the runtime fills it in.
/// - A parameter `State(db): State<Db>` is not shown to the model either. Such a tool is registered
///   with its state, `registry.register(name.with_state(db))`, and each call receives a clone of it.
/// - A parameter with `#[host]` is filled by the program and not by the model: it is not in the schema
///   that the model is shown, and `registry.register(name.fill("parameter", |call| …))` fills it.
///   Without that the tool cannot be registered.
/// - A returned `Result` may hold any error that converts into `ToolError`. Any other value is
///   serialized, except a `ToolOutput`, which is returned unchanged. The macro sees only the written
///   name of the type, so a result must be called `Result`.
/// - Where the tool is in scope, no variable or parameter can have its name, as with any unit struct.
///
/// # Options
///
/// | Option | Meaning |
/// |---|---|
/// | `name = "..."` | the tool's name for the model, if it differs from the function's name |
/// | `description = "..."` | the description, in place of the doc comment |
/// | `kind = "..."` | `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch` or `other` |
/// | `side_effect = "..."` | `none`, `read_only`, `workspace_write`, `process_exec` or `network` |
/// | `read_only`, `destructive`, `idempotent`, `open_world` | sets the hint to true |
/// | `resource = "parameter"` | the parameter is a path for which two calls can conflict; may be repeated |
/// | `resource_name = "parameter"` | the same for a name of any other kind |
/// | `timeout = "30s"` | the time limit of one attempt, in `ms`, `s` or `m` |
/// | `long_running = "label"` | the tool takes long; the label is for a progress display |
/// | `cost = 0.5` | the cost of one call |
/// | `output` | adds the schema of the returned value to the spec |
/// | `crate = "path"` | the path of Toolgate, if it is not `::toolgate` |
///
/// A tool that declares no effects is treated as if it could do anything.
///
/// # Example
///
/// ```
/// use toolgate::{Tool, ToolError, tool};
///
/// /// Reads a text file.
/// #[tool(kind = "read", side_effect = "read_only", idempotent, resource = "path", timeout = "5s")]
/// pub async fn read_file(
///     /// The file to read.
///     path: String,
/// ) -> Result<String, ToolError> {
///     Ok(std::fs::read_to_string(path)?)
/// }
///
/// let spec = read_file.spec();
/// assert_eq!(spec.name.as_str(), "read_file");
/// assert_eq!(spec.description, "Reads a text file.");
/// assert!(!spec.annotations.may_write());
/// # futures::executor::block_on(async {
/// assert!(read_file::call("no such file".to_owned()).await.is_err());
/// # });
/// ```
///
/// A tool that needs state cannot be registered without it:
///
/// ```compile_fail,E0277
/// use toolgate::{Registry, tool, tool::State};
///
/// /// Counts.
/// #[tool]
/// async fn count(State(start): State<u32>, by: u32) -> u32 {
///     start + by
/// }
///
/// let _ = Registry::new().register(count);
/// ```
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = options::MacroOptions::parse(options.into()).and_then(|options| {
        expand::expand_tool(&options, &function::ToolFunction::parse(item.into())?)
    });
    expanded
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
