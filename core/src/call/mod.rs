//! Calls: kernels that are not generated from a nest. The list is closed. Each call is a contract
//! over buffers, which a back end claims or not ([`crate::target::Target`]). An op that
//! yields a call has a decomposition in graph ops as its oracle.
//!
//! Each call has one file: its description and an implementation of [`Contract`], with its text,
//! its requirements, its cost, and its reference on literals. `calls!` has the list. All extents
//! and strides count elements. Arguments of a call are its operands, then its results.
//!
//! In text and files a call is its name and a map of attributes, like an op:
//!
//! ```text
//! gemm {accumulate=f32, k=64, lhs=[0,64,1], m=8, n=10, operand=f32, result=f32, rhs=[0,10,1]}
//! ```

mod attention;
mod collective;
mod contract;
mod convolution;
mod gemm;
pub mod reference;
mod scatter;
mod segment_sum;
mod sort;
mod top_k;

pub use attention::{Attention, Heads};
pub use collective::{Collective, CollectiveKind};
pub use contract::Contract;
pub use convolution::{Convolution, Direction, Window};
pub use gemm::{Addends, Gemm, Matrix, Scale, Scales};
pub use reference::Reference;
pub use scatter::{Scatter, ScatterKind};
pub use segment_sum::{SegmentSum, first_row};
pub use sort::{Sort, compare};
pub use top_k::TopK;

use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::literal::Literal;
use crate::op::attribute::Attribute;
use std::collections::BTreeMap;
use std::ops::Deref;

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident,)*) => {
        /// A call. It dereferences to its [`Contract`].
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Call {
            $($(#[$doc])* $call($call),)*
        }

        $(impl From<$call> for Call {
            fn from(call: $call) -> Call {
                Call::$call(call)
            }
        })*

        impl Deref for Call {
            type Target = dyn Contract;

            fn deref(&self) -> &Self::Target {
                match self { $(Call::$call(call) => call,)* }
            }
        }

        impl Call {
            /// The names of all calls.
            pub fn names() -> Vec<&'static str> {
                [$($call::names()),*].concat()
            }

            /// The call of that name, with attributes taken out of the map; `None` if there is no
            /// such call.
            fn parse(
                name: &str,
                attributes: &mut BTreeMap<String, Attribute>,
            ) -> Option<Result<Call>> {
                $(if $call::names().contains(&name) {
                    return Some($call::parse(name, attributes).map(Call::$call));
                })*
                None
            }
        }
    };
}

calls! {
    /// Matrix product, with addends.
    Gemm,
    /// Convolution, in one of three directions.
    Convolution,
    /// Combination of windows with a tensor, at positions from data.
    Scatter,
    /// Sums of rows with equal, sorted ids.
    SegmentSum,
    /// The permutation that sorts.
    Sort,
    /// Indices of the greatest elements.
    TopK,
    /// Attention, forward or backward.
    Attention,
    /// Exchange between the ranks of a mesh.
    Collective,
}

impl Call {
    /// Checks [the contract](Contract::verify), and that no argument is of 8-bit floats: calls
    /// that move or multiply them have their bits, u8.
    pub fn verify(&self) -> Result<()> {
        (**self).verify()?;
        let arguments = self.operands().into_iter().chain(self.results());
        for ty in arguments {
            ensure!(!ty.dtype.is_float8(), "`{}` of {ty}", self.name();
                help "kernels have the bits of 8-bit floats, u8");
        }
        Ok(())
    }

    /// Splits the arguments of the call into those of its operands and those of its results.
    pub fn split<'a, T>(&self, arguments: &'a [T]) -> (&'a [T], &'a [T]) {
        arguments.split_at(self.operands().len().min(arguments.len()))
    }

    /// The reference results of the call on these operands, computed in plain loops, with the
    /// error bound for a back end. A buffer that is larger than the operand, or of another shape,
    /// is read from its beginning.
    pub fn references(&self, operands: &[Literal]) -> Result<Vec<Reference>> {
        self.verify()?;
        ensure!(
            self.collective().is_none(),
            "`{}` needs the other ranks of the mesh", self.description();
            help "interpret the function on all its ranks, by `interpret::run_ranks`"
        );
        let types = self.operands();
        ensure!(
            operands.len() == types.len(),
            "`{}` has {} operands, {} are given",
            self.name(),
            types.len(),
            operands.len()
        );
        for (n, (literal, ty)) in operands.iter().zip(&types).enumerate() {
            let elements = ty.elements().expect("verified extents fit");
            let enough =
                literal.len() == elements || (literal.len() > elements && self.may_be_larger(n));
            ensure!(
                literal.dtype() == ty.dtype && enough,
                "operand {n} is {ty}, {} is given",
                literal.ty()
            );
        }
        Ok(self.evaluate(operands))
    }

    /// [`Call::references`] of a call with one result.
    ///
    /// # Panics
    ///
    /// If it has more.
    pub fn reference(&self, operands: &[Literal]) -> Result<Reference> {
        let mut references = self.references(operands)?;
        assert_eq!(references.len(), 1, "`{}` has several results", self.name());
        Ok(references.swap_remove(0))
    }

    /// The call with that name and attributes. An error names the attribute that is unknown,
    /// missing or malformed; [`Contract::verify`] checks the rest.
    pub fn from_attributes(
        name: &str,
        mut attributes: BTreeMap<String, Attribute>,
    ) -> Result<Call> {
        let call = Call::parse(name, &mut attributes).unwrap_or_else(|| {
            Err(Diagnostic::new(format!("unknown call `{name}`"))
                .help(format!("calls are {}", Call::names().join(", "))))
        })?;
        match attributes.into_keys().next() {
            Some(extra) => Err(Diagnostic::new(format!("`{name}` has no attribute `{extra}`"))),
            None => Ok(call),
        }
    }
}

#[cfg(test)]
mod tests;
