//! Contains panics of tools and layers: text and stack go to the operator and nowhere else.

use std::{
    any::Any,
    backtrace::Backtrace,
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, PanicHookInfo},
    pin::Pin,
    sync::Once,
};

use futures::FutureExt;

thread_local! {
    /// How many contained polls are on this thread's stack.
    static CONTAINED: Cell<u32> = const { Cell::new(0) };
    /// Where the last contained panic happened.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The most text kept of one panic.
const MOST: usize = 16 * 1024;

/// What is known about a panic; for the operator only.
#[derive(Debug)]
pub(crate) struct PanicReport(pub(crate) String);

/// Runs `f` so that a panic inside it is caught quietly, without the default hook printing it: a message on the
/// terminal would tear a screen that is being drawn.
pub(crate) fn quietly<T>(f: impl FnOnce() -> T) -> T {
    install_hook();
    let _mark = Mark::enter();
    f()
}

/// Polls `future` in the same way.
pub(crate) async fn poll_quietly<F: Future + Unpin>(mut future: F) -> F::Output {
    poll_fn(|cx| quietly(|| Pin::new(&mut future).poll(cx))).await
}

/// Runs `future` and turns a panic into a report.
// Not an `async fn`, which would hold the future twice: once as an argument, once while it runs.
pub(crate) fn contain<F: Future>(
    future: F,
) -> impl Future<Output = Result<F::Output, PanicReport>> {
    AssertUnwindSafe(future)
        .catch_unwind()
        .map(|done| done.map_err(report))
}

/// Runs somebody else's code so that a panic in it is an error, told to nobody but the caller.
///
/// The error is bounded and may hold anything the code knew: it is for the operator.
pub async fn contained<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let future = std::pin::pin!(contain(future));
    poll_quietly(future)
        .await
        .map_err(|PanicReport(report)| report)
}

/// The same for code that does not wait.
pub fn contained_sync<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    quietly(|| contain_sync(f)).map_err(|PanicReport(report)| report)
}

/// Runs `f` and turns a panic into a report.
pub(crate) fn contain_sync<T>(f: impl FnOnce() -> T) -> Result<T, PanicReport> {
    std::panic::catch_unwind(AssertUnwindSafe(f)).map_err(report)
}

struct Mark;

impl Mark {
    fn enter() -> Self {
        CONTAINED.set(CONTAINED.get() + 1);
        Self
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        CONTAINED.set(CONTAINED.get() - 1);
    }
}

/// Puts our hook in front of whatever hook is set, once. Panics elsewhere reach the other hook unchanged.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let other = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if CONTAINED.get() == 0 {
                return other(info);
            }
            let place = info
                .location()
                .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
            let text = format!("at {place}\n{}", Backtrace::force_capture());
            LAST.with(|last| drop(last.replace(Some(text))));
        }));
    });
}

fn report(payload: Box<dyn Any + Send>) -> PanicReport {
    let message = match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without a message".to_owned(),
    };
    // Dropping a payload may panic in turn; leaking one is better than losing the thread.
    std::mem::forget(payload);
    let place = LAST.with(RefCell::take).unwrap_or_default();
    let half = MOST / 2;
    PanicReport(format!(
        "{} {}",
        bounded(&message, half),
        bounded(&place, half)
    ))
}

/// Cuts text at a character boundary.
fn bounded(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_report_has_the_message_and_the_place_and_is_bounded() {
        let report = poll_quietly(Box::pin(contain(async {
            panic!("{}", "x".repeat(1 << 20))
        })))
        .await
        .map(|(): ()| ());
        let Err(PanicReport(text)) = report else {
            panic!("not caught")
        };
        assert!(text.len() <= MOST + 1);
        assert!(text.starts_with("xxx") && text.contains("panic.rs"));
        assert_eq!(CONTAINED.get(), 0);
    }

    #[tokio::test]
    async fn a_payload_that_is_no_text_is_contained_too() {
        let report = poll_quietly(Box::pin(contain(async { std::panic::panic_any(7_u8) })))
            .await
            .map(|(): ()| ());
        assert!(report.is_err());
    }
}
