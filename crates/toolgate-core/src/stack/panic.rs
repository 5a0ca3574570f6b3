//! Containment of panics in tools and layers: message and backtrace go only to the operator.

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
    /// The number of contained polls on this thread's stack.
    static CONTAINED: Cell<u32> = const { Cell::new(0) };
    /// The location and backtrace of the last contained panic.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The most bytes stored of one panic.
const MAX_REPORT_BYTES: usize = 16 * 1024;

/// The message and location of a panic; for the operator only.
#[derive(Debug)]
pub(crate) struct PanicReport(pub(crate) String);

/// Runs `f` so that a panic inside it is caught quietly, without the default hook printing it: a
/// message on the terminal would tear a screen that is being drawn.
pub(crate) fn run_quietly<T>(f: impl FnOnce() -> T) -> T {
    install_hook();
    let _mark = ContainmentScope::enter();
    f()
}

/// Polls `future` as [`run_quietly`] runs a function.
pub(crate) async fn poll_quietly<F: Future + Unpin>(mut future: F) -> F::Output {
    // Marked for each poll and not for the whole future: between polls the thread runs other tasks,
    // whose panics belong to the usual hook.
    poll_fn(|cx| run_quietly(|| Pin::new(&mut future).poll(cx))).await
}

/// Runs `future` and turns a panic into a report.
// Not an `async fn`, which would hold the future twice: once as an argument, once while it runs.
pub(crate) fn contain_panic<F: Future>(
    future: F,
) -> impl Future<Output = Result<F::Output, PanicReport>> {
    AssertUnwindSafe(future)
        .catch_unwind()
        .map(|done| done.map_err(build_panic_report))
}

/// Runs foreign code and returns a panic in it as an error, without printing it.
///
/// The error text is bounded and may contain anything the code knew: it is for the operator.
///
/// # Errors
///
/// The message and location of the panic.
pub async fn run_contained<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let future = std::pin::pin!(contain_panic(future));
    poll_quietly(future)
        .await
        .map_err(|PanicReport(report)| report)
}

/// Runs synchronous foreign code like [`run_contained`].
///
/// # Errors
///
/// The message and location of the panic.
pub fn run_contained_sync<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    run_quietly(|| contain_panic_sync(f)).map_err(|PanicReport(report)| report)
}

/// Runs `f` and turns a panic into a report.
pub(crate) fn contain_panic_sync<T>(f: impl FnOnce() -> T) -> Result<T, PanicReport> {
    std::panic::catch_unwind(AssertUnwindSafe(f)).map_err(build_panic_report)
}

struct ContainmentScope;

impl ContainmentScope {
    fn enter() -> Self {
        // A counter and not a flag, because contained polls nest.
        CONTAINED.set(CONTAINED.get() + 1);
        Self
    }
}

impl Drop for ContainmentScope {
    fn drop(&mut self) {
        CONTAINED.set(CONTAINED.get() - 1);
    }
}

/// Installs our hook in front of the current hook, once. Panics elsewhere reach that hook
/// unchanged.
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
            // Forced: this report is all that the operator gets, whatever RUST_BACKTRACE says.
            let text = format!("at {place}\n{}", Backtrace::force_capture());
            LAST.with(|last| drop(last.replace(Some(text))));
        }));
    });
}

fn build_panic_report(payload: Box<dyn Any + Send>) -> PanicReport {
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
    let half = MAX_REPORT_BYTES / 2;
    PanicReport(format!(
        "{} {}",
        truncate_text(&message, half),
        truncate_text(&place, half)
    ))
}

/// Truncates text at a character boundary.
fn truncate_text(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_report_has_message_and_location_and_is_bounded() {
        let report = poll_quietly(Box::pin(contain_panic(async {
            panic!("{}", "x".repeat(1 << 20))
        })))
        .await
        .map(|(): ()| ());
        let Err(PanicReport(text)) = report else {
            panic!("not caught")
        };
        assert!(text.len() <= MAX_REPORT_BYTES + 1);
        assert!(text.starts_with("xxx") && text.contains("panic.rs"));
        assert_eq!(CONTAINED.get(), 0);
    }

    #[tokio::test]
    async fn a_panic_without_a_text_payload_is_contained() {
        let report = poll_quietly(Box::pin(contain_panic(async {
            std::panic::panic_any(7_u8)
        })))
        .await
        .map(|(): ()| ());
        assert!(report.is_err());
    }
}
