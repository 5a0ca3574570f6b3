//! The answer to the caller of a write that shared its transaction with others.

use tokio::sync::oneshot;
use toolgate_core::StoreError;

use crate::DatabaseError;

/// Answers the caller of a write. `done` is what the write decided, and `end` whether its transaction
/// was committed.
pub(crate) fn answer_write<T>(
    reply: oneshot::Sender<Result<T, StoreError>>,
    done: Option<Result<T, StoreError>>,
    end: Result<(), &DatabaseError>,
) {
    let answer = match (end, done) {
        (_, Some(Err(rejected))) => Err(rejected),
        (Ok(()), Some(done)) => done,
        (Ok(()), None) => return,
        (Err(error), _) => Err(error.clone().into()),
    };
    // The caller may have dropped its future; then the answer is not needed.
    let _ = reply.send(answer);
}
