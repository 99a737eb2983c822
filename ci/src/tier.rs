//! The two tiers of checks: those of every change (`.ci/run`), and those before a release
//! (`ci/deep`).
//!
//! A test with too many cases for every change runs a share of them, and all of them if
//! `WENGERT_DEEP` is set.

/// True before a release.
pub fn is_deep() -> bool {
    std::env::var_os("WENGERT_DEEP").is_some()
}

/// The elements of `all` that case number `n` is checked with: before a release all, else one of
/// them in rotation.
pub fn share<T: Clone>(all: &[T], n: usize) -> Vec<T> {
    match is_deep() || all.is_empty() {
        true => all.to_vec(),
        false => vec![all[n % all.len()].clone()],
    }
}
