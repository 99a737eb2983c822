//! The contract of a call: everything that other code may ask about one.
//!
//! Each call's type implements [`Contract`] in its own file. A property that most calls lack has a
//! default, so a new call states only what is particular to it. [`Call`](super::Call)
//! dereferences to its contract. Verifiers, planners and passes ask the contract, and never which
//! call it is.

use super::reference::Reference;
use super::{Call, Collective};
use crate::diagnostic::{Diagnostic, Result};
use crate::literal::Literal;
use crate::op::attribute::{Attribute, Attributes};
use crate::pitch::PaddedRows;
use crate::target::Target;
use crate::ty::TensorType;
use std::collections::BTreeMap;

/// The contract of a call over buffers, dense unless it says otherwise. All extents, strides and
/// pitches count elements.
pub trait Contract {
    /// The names of the calls of this type. Targets claim calls by name.
    fn names() -> &'static [&'static str]
    where
        Self: Sized;

    /// The call of that name with these attributes, which are taken out of the map.
    fn parse(name: &str, attributes: &mut BTreeMap<String, Attribute>) -> Result<Self>
    where
        Self: Sized;

    /// Name in text and files.
    fn name(&self) -> &'static str;

    /// All attributes except the name, for text and files.
    fn attributes(&self) -> Attributes;

    /// Types of the operands, in order.
    fn operands(&self) -> Vec<TensorType>;

    /// Types of the results, in order.
    fn results(&self) -> Vec<TensorType>;

    /// Operands (by position) whose buffer may be larger than [`operands`](Self::operands) says.
    fn may_be_larger(&self, _operand: usize) -> bool {
        false
    }

    /// Operands (by position) that may share the buffer of the only result.
    fn in_place(&self) -> Vec<usize> {
        vec![]
    }

    /// The [pitch](crate::pitch) of the result; `None` if it is dense. Only the memory has it: the
    /// type, and the [reference](Self::evaluate), are those of the dense result.
    fn pitch(&self) -> Option<usize> {
        None
    }

    /// Whether the elements that the call reads of an operand (by position) lie in such rows of its
    /// buffer, never in the padding between them. If not, the buffer must be dense.
    fn stays_in_rows(&self, _operand: usize, _rows: PaddedRows) -> bool {
        false
    }

    /// The call with padding between the rows of one of its arguments; operands come before
    /// results. The rows are along the last axis of the argument's buffer.
    ///
    /// `None` if the call does not take such rows.
    fn padded(&self, _argument: usize, _rows: PaddedRows) -> Option<Call> {
        None
    }

    /// Checks extents, dtypes and overflow: every product that [`operands`](Self::operands) forms
    /// fits.
    fn verify(&self) -> Result<()>;

    /// The meaning, in plain loops, with the error bound for a back end. The call is verified, and
    /// the operands have its types; [`Call::references`](super::Call::references) checks both.
    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference>;

    /// The product of the extents of its loops, each counted as at least `least`; saturates.
    fn count(&self, least: usize) -> u64;

    /// Multiplications and additions; saturates.
    fn flops(&self) -> u64 {
        self.count(0)
    }

    /// A bound of the iterations of loops over all extents of the call, where an empty extent
    /// counts as 1; saturates. It may be large even if [`flops`](Self::flops) is 0.
    fn iterations(&self) -> u64 {
        self.count(1)
    }

    /// Upper bound of the number of passes over the operands.
    fn passes(&self) -> u64 {
        1
    }

    /// The call as a collective, if the ranks of a mesh run it together.
    fn collective(&self) -> Option<&Collective> {
        None
    }

    /// True if its result is computed tile by tile, each element once and in one place. A nest may
    /// [follow](crate::nest::follows) it.
    fn has_tiles(&self) -> bool {
        false
    }

    /// Whether a target that claims the name executes the call with these extents and dtypes.
    fn claimed_by(&self, _target: &Target) -> bool {
        true
    }

    /// The call and its extents, for measurements.
    fn description(&self) -> String {
        self.name().into()
    }
}

/// The text of a call with one name, whose attributes are those of its struct.
macro_rules! named {
    ($name:literal) => {
        fn names() -> &'static [&'static str] {
            &[$name]
        }

        fn parse(
            _: &str,
            attributes: &mut std::collections::BTreeMap<String, $crate::op::attribute::Attribute>,
        ) -> $crate::Result<Self> {
            $crate::op::attribute::AttributeStruct::from_attributes((), attributes)
        }

        fn name(&self) -> &'static str {
            $name
        }

        fn attributes(&self) -> $crate::op::attribute::Attributes {
            $crate::op::attribute::AttributeStruct::to_attributes(self)
        }
    };
}
pub(super) use named;

/// Fails if the product of extents does not fit in memory. Empty extents count as 1, so the
/// product of any subset of the extents fits too, and back ends form such products.
pub(super) fn fits(what: &str, extents: &[usize]) -> Result<()> {
    extents
        .iter()
        .try_fold(1usize, |n, e| n.checked_mul((*e).max(1)))
        .filter(|n| *n <= isize::MAX as usize / 16)
        .map(|_| ())
        .ok_or_else(|| Diagnostic::new(format!("{what}: extents {extents:?} overflow")))
}

/// The product of extents, each counted as at least `least`; saturates.
pub(super) fn product(least: usize, extents: &[usize]) -> u64 {
    extents.iter().fold(1u64, |n, e| n.saturating_mul((*e).max(least) as u64))
}
