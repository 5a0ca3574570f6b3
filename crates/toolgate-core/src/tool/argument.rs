//! What the type of a `#[tool]` parameter needs, with errors that say how to get it.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// A type whose schema the model can be shown. Every `JsonSchema` type is one.
///
/// Generated code asserts it, so that the error names the derive instead of a generated struct.
#[diagnostic::on_unimplemented(
    message = "the model cannot be told what `{Self}` looks like",
    label = "this type has no JSON schema",
    note = "derive JsonSchema (schemars) for this type"
)]
pub trait SchemaArgument {}

// Otherwise the compiler names the missing `JsonSchema` and not this trait with its advice.
#[diagnostic::do_not_recommend]
impl<T: JsonSchema> SchemaArgument for T {}

/// A type that is read from the model's arguments. Every owned `Deserialize` type is one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from the model's arguments",
    label = "this type cannot be deserialized",
    note = "derive Deserialize (serde) for this type"
)]
pub trait ReadArgument {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> ReadArgument for T {}

/// Does nothing; it compiles only for a type that can be an argument.
pub const fn assert_argument<T: SchemaArgument + ReadArgument>() {}
