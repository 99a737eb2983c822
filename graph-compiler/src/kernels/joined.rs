//! A product and the nest that follows it.
//!
//! A product is made tile by tile. A nest that needs of it, for each of its rows, one element at the row's own place
//! ([`nest::follows`]) runs on each tile while it is in the cache, so it does not read the product from memory, and where nobody else needs the product
//! the nest's result may take its bytes. The two are one kernel: they run at one time, so whatever either of them reads is not overwritten by the other.
//!
//! In a plan they are two steps, one behind the other, which is what they mean; that their parts take turns is the executor's affair.

use super::{BufferId, Kernel};
use wengert_core::call::Call;
use wengert_core::id::Id;
use wengert_core::nest::{self, Nest};
use wengert_core::{Diagnostic, Result};

/// A call with one result, and a nest that follows it.
///
/// Its kernel reads the call's operands, then what else the nest reads, in the order of its In parameters; it writes the call's result, then those of
/// the nest.
#[derive(Clone, PartialEq, Debug)]
pub struct Joined {
    /// The call.
    pub call: Call,
    /// The nest.
    pub nest: Nest,
    /// The nest's parameter that is the call's result.
    pub operand: usize,
}

/// The buffers of a joined kernel by what they are to its parts.
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

impl Joined {
    /// The buffers of its kernel, which has passed [`verify`](Self::verify).
    pub(crate) fn split<'k>(&self, kernel: &'k Kernel) -> Parts<'k> {
        let (operands, rest) = kernel.reads.split_at(self.call.operands().len());
        let (result, writes) = kernel.writes.split_at(1);
        Parts { operands, result, reads: self.reads(rest, &result[0]), writes }
    }

    /// What is given for the nest's In parameters: `rest`, with the call's result at its place.
    pub(crate) fn reads<T: Clone>(&self, rest: &[T], result: &T) -> Vec<T> {
        let mut reads = rest.to_vec();
        reads.insert(self.operand, result.clone());
        reads
    }

    /// Checks what [`split`](Self::split) relies on, and that the nest follows.
    pub(super) fn verify(&self, kernel: &Kernel) -> Result<()> {
        let operands = self.call.operands().len();
        let counts = self.call.results().len() == 1
            && kernel.reads.len() >= operands + self.operand
            && !kernel.writes.is_empty();
        if !counts || !nest::follows(&self.nest, nest::BufferId::new(self.operand)) {
            return Err(Diagnostic::new(format!(
                "nest @{} does not follow the `{}` it is joined with",
                self.nest.name,
                self.call.name()
            )));
        }
        Ok(())
    }
}
