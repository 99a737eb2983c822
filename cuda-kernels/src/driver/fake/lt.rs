//! A fake of cuBLASLt.

/// What was made and not destroyed.
#[derive(Default)]
pub(super) struct LtState {}

impl LtState {
    pub(super) fn is_empty(&self) -> bool {
        true
    }
}
