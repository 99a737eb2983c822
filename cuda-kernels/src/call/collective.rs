//! The workspace of collectives. Their kernels depend on the mesh of the plan, so
//! [`crate::lowered`] makes them (`lowered/collective.rs`).

use super::{Kernels, Terms};
use crate::stage::Compiled;
use wengert_core::call::{Collective, CollectiveKind};
use wengert_core::{Diagnostic, Result};

/// A reduction of at most so many bytes, those of all ranks together, is one exchange.
pub(crate) const SMALL: u64 = 1 << 14;

/// Most ranks that a reduction combines. A kernel reads the operands of all ranks by instructions
/// of their own, and the workspace is reserved for so many.
pub(crate) const MOST_RANKS: usize = 1 << 10;

/// Alignment of the parts of a workspace.
pub(crate) const ALIGNMENT: u64 = 256;

impl Kernels for Collective {
    fn compile(&self, _: &Terms<'_>) -> Result<Compiled> {
        Err(Diagnostic::new("the kernels of a collective depend on the mesh of its plan")
            .help("lower the plan by `LoweredPlan::new`"))
    }

    /// A reduction stores the operands of all ranks, or its shares of them and the combined share
    /// ([`SMALL`], [`MOST_RANKS`]). Parts that are not neighbours are packed before an exchange,
    /// and put in place after it.
    fn workspace(&self) -> u64 {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        let element = self.dtype.size() as u64;
        let times = |a: u64, b: usize| a.saturating_mul(b as u64);
        let part = times(times(element, self.outer), self.inner);
        let all = times(part, self.parts).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        let packed = if self.outer > 1 { all } else { 0 };
        match self.kind {
            Sum | Max | Min => {
                let dealt = part.saturating_add(element * (MOST_RANKS as u64 - 1));
                let dealt = dealt.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
                SMALL.max(dealt.saturating_add(part / 2 + element))
            }
            SumScatter => packed.saturating_add(all),
            AllGather => packed,
            AllToAll => packed.saturating_add(if self.rows > 1 { all } else { 0 }),
            Permute | AxisIndex => 0,
        }
    }
}
