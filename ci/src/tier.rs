//! The two tiers of checks: those of every change (`.ci/run`), and those that precede a release (`ci/deep`).
//!
//! A test with more cases than a change can wait for takes a share of them, and all of them where `WENGERT_DEEP` is set.

/// True before a release.
pub fn is_deep() -> bool {
    std::env::var_os("WENGERT_DEEP").is_some()
}

/// With which of `all` case number `n` is checked: before a release with each, else with one of them in turn.
pub fn share<T: Clone>(all: &[T], n: usize) -> Vec<T> {
    match is_deep() || all.is_empty() {
        true => all.to_vec(),
        false => vec![all[n % all.len()].clone()],
    }
}
