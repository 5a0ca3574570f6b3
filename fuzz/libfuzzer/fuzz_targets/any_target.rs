//! The target that `TOOLGATE_FUZZ_TARGET` names, under libFuzzer.

#![no_main]

use std::sync::LazyLock;

use toolgate_fuzz::{FuzzTarget, find_target};

static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("TOOLGATE_FUZZ_TARGET").unwrap_or_default();
    find_target(&name).expect("TOOLGATE_FUZZ_TARGET names a target")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (TARGET.run)(data);
});
