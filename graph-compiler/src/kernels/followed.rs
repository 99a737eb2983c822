//! A product and its follower: a nest that consumes it.
//!
//! A product is computed tile by tile. If each row of a nest needs only one element of it, at the
//! row's own position ([`nest::follows`]), the nest runs on each tile while the tile is in the
//! cache. So it does not read the product from memory, and its result may reuse the product's
//! bytes if there is no other reader. The two are one kernel, because they run at the same time:
//! neither may overwrite operands of the other.
//!
//! In a plan they are two consecutive steps, which define the result. An executor may interleave
//! them ([`wengert_core::plan::follower`]).

use super::{BufferId, Kernel};
use wengert_core::call::Call;
use wengert_core::id::Id;
use wengert_core::nest::{self, Nest};
use wengert_core::{Diagnostic, Result, Verified};

/// A product and its follower.
///
/// Its kernel reads the call's operands, then the nest's other operands, in the order of its In
/// parameters. It writes the call's result, then those of the nest.
#[derive(Clone, PartialEq, Debug)]
pub struct Followed {
    /// The product: a call that [has tiles](wengert_core::call::Contract::has_tiles).
    pub call: Call,
    /// The nest.
    pub follower: Verified<Nest>,
    /// The nest's parameter that is the product.
    pub tile: usize,
}

/// The buffers of a followed product by their roles.
pub(crate) struct Parts<'k> {
    /// The call's operands.
    pub operands: &'k [BufferId],
    /// The call's result.
    pub result: &'k [BufferId],
    /// The nest's In parameters, the call's result among them.
    pub reads: Vec<BufferId>,
    /// The nest's Out parameters.
    pub writes: &'k [BufferId],
}

impl Followed {
    /// The buffers of its kernel, which has passed [`verify`](Self::verify).
    pub(crate) fn split<'k>(&self, kernel: &'k Kernel) -> Parts<'k> {
        let (operands, rest) = kernel.reads.split_at(self.call.operands().len());
        let (result, writes) = kernel.writes.split_at(1);
        Parts { operands, result, reads: self.reads(rest, &result[0]), writes }
    }

    /// The arguments of the nest's In parameters: `rest`, with the call's result inserted at its
    /// position.
    pub(crate) fn reads<T: Clone>(&self, rest: &[T], result: &T) -> Vec<T> {
        let mut reads = rest.to_vec();
        reads.insert(self.tile, result.clone());
        reads
    }

    /// Checks the preconditions of [`split`](Self::split), and that the nest follows the call.
    pub(super) fn verify(&self, kernel: &Kernel) -> Result<()> {
        let operands = self.call.operands().len();
        let counts = self.call.has_tiles()
            && kernel.reads.len() >= operands + self.tile
            && !kernel.writes.is_empty();
        if !counts || !nest::follows(&self.follower, nest::BufferId::new(self.tile)) {
            return Err(Diagnostic::new(format!(
                "nest @{} does not follow `{}`",
                self.follower.name,
                self.call.name()
            )));
        }
        Ok(())
    }
}
