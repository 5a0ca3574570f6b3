//! The state that a program gives a tool, such as a connection pool.

use std::ops::{Deref, DerefMut};

/// The state of a `#[tool]` function, as a parameter that the model does not see.
///
/// The program gives the state when it registers the tool: `registry.register(refund.with_state(db))`.
/// Each call receives a clone, so the state is cheap to clone: a pool, a handle or an `Arc`.
///
/// ```ignore
/// /// Sends money back.
/// #[tool]
/// async fn refund(State(db): State<Database>, amount: u32) -> Result<String, ToolError> { db.send(amount).await }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State<S>(pub S);

impl<S> Deref for State<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S> DerefMut for State<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0
    }
}
