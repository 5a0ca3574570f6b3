//! Runs a target on one input, and says what is wrong with it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, Once, PoisonError},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::{FuzzTarget, InputTrace, harness::allocator::measure_peak};

/// The time for one input above which it counts as slow.
pub(super) const SOFT_LIMIT: Duration = Duration::from_millis(100);

/// The time for one input above which it is a failure. It is the processor's time and not the
/// clock's, and far above the soft limit: a busy machine must not fail a run.
const HARD_LIMIT: Duration = Duration::from_secs(10);

/// What an input cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutionCost {
    pub(super) trace: InputTrace,
    pub(super) time: Duration,
    pub(super) peak_bytes: usize,
}

/// Runs the target, and returns the cost of the input or the property that does not hold.
pub(super) fn execute(target: &FuzzTarget, input: &[u8]) -> Result<ExecutionCost, String> {
    install_panic_hook();
    let start = processor_time();
    let (result, peak_bytes) =
        measure_peak(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    let time = processor_time().saturating_sub(start);
    let trace = result.map_err(|_| take_panic_message())?;
    let limit = target.memory.limit_for(input.len());
    if peak_bytes > limit {
        let length = input.len();
        return Err(format!(
            "an input of {length} bytes used {peak_bytes} bytes of memory; the limit is {limit}"
        ));
    }
    if time > HARD_LIMIT {
        return Err(format!(
            "an input took {time:?}; the limit is {HARD_LIMIT:?}"
        ));
    }
    Ok(ExecutionCost {
        trace,
        time,
        peak_bytes,
    })
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps the message of a panic instead of printing it: shrinking an input panics a thousand times.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
        }));
    });
}

fn take_panic_message() -> String {
    std::mem::take(&mut LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBound;

    fn target(run: fn(&[u8]) -> InputTrace) -> FuzzTarget {
        FuzzTarget::new("test", run, &[])
    }

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        let failing = target(|input| {
            assert!(input.is_empty(), "the input is {} bytes long", input.len());
            InputTrace::NOTHING
        });
        assert!(execute(&failing, b"").is_ok());
        let problem = execute(&failing, b"abc").expect_err("fails");
        assert!(problem.contains("the input is 3 bytes long"), "{problem}");
    }

    #[test]
    fn memory_beyond_the_limit_is_a_failure() {
        let greedy = target(|input| {
            std::hint::black_box(vec![1_u8; 100_000 * input.len()]);
            InputTrace::NOTHING
        })
        .with_memory(MemoryBound {
            // Tests of other threads count too.
            base: 20 << 20,
            per_byte: 1_000,
        });
        assert!(execute(&greedy, b"abc").is_ok());
        let problem = execute(&greedy, &[0; 500]).expect_err("fails");
        assert!(problem.contains("bytes of memory"), "{problem}");
    }
}
