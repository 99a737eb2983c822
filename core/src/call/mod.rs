//! Calls: kernels that are not generated from a nest. The list is closed. Each call is a contract
//! over dense buffers, which a back end claims or not ([`crate::target::Target`]). An op that
//! yields a call has a decomposition in graph ops as its oracle.
//!
//! Each call has one file: its description, its text, its requirements, and its reference on
//! literals ([`reference`](Call::reference)). All extents and strides count elements. Arguments
//! of a call are its operands, then its results.
//!
//! In text and files a call is its name and a map of attributes, like an op:
//!
//! ```text
//! gemm {accumulate=f32, k=64, lhs=[0,64,1], m=8, n=10, operand=f32, result=f32, rhs=[0,10,1]}
//! ```

mod attention;
mod convolution;
mod gemm;
mod kind;
pub mod reference;
mod scatter;
mod sort;
mod top_k;

pub use attention::{Attention, Heads};
pub use convolution::{Convolution, Direction, Window};
pub use gemm::{Addends, Gemm, Matrix};
pub use kind::CallKind;
pub use reference::Reference;
pub use scatter::{Scatter, ScatterKind};
pub use sort::{Sort, compare};
pub use top_k::TopK;

use crate::diagnostic::{Diagnostic, Result};
use crate::literal::Literal;
use crate::op::attribute::{Attribute, AttributeStruct, Attributes};
use crate::ty::TensorType;
use std::collections::BTreeMap;

/// A call.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// Matrix product, with addends.
    Gemm(Gemm),
    /// Convolution, in one of three directions.
    Convolution(Convolution),
    /// Combination of windows with a tensor, at positions from data.
    Scatter(Scatter),
    /// The permutation that sorts.
    Sort(Sort),
    /// Indices of the greatest elements.
    TopK(TopK),
    /// Attention, forward or backward.
    Attention(Attention),
}

impl Call {
    /// Types of the operands, in order. The buffers of a GEMM's lhs and rhs may be larger.
    pub fn operands(&self) -> Vec<TensorType> {
        match self {
            Call::Gemm(g) => g.operands(),
            Call::Convolution(c) => {
                let computed = c.direction.computed();
                c.tensors()
                    .into_iter()
                    .enumerate()
                    .filter(|(i, _)| *i != computed)
                    .map(|(_, t)| t)
                    .collect()
            }
            Call::Scatter(s) => s.operands(),
            Call::Sort(s) => s.operands(),
            Call::TopK(t) => t.operands(),
            Call::Attention(a) => a.operands(),
        }
    }

    /// Types of the results, in order. All calls but attention have one.
    pub fn results(&self) -> Vec<TensorType> {
        let one = match self {
            Call::Gemm(g) => g.result_type(),
            Call::Convolution(c) => c.tensors().swap_remove(c.direction.computed()),
            Call::Scatter(s) => s.result_type(),
            Call::Sort(s) => s.result_type(),
            Call::TopK(t) => t.result_type(),
            Call::Attention(a) => return a.results(),
        };
        vec![one]
    }

    /// Splits the arguments of the call into those of its operands and those of its results.
    pub fn split<'a, T>(&self, arguments: &'a [T]) -> (&'a [T], &'a [T]) {
        arguments.split_at(self.operands().len().min(arguments.len()))
    }

    /// Operands (by position) whose buffer may be larger than [`Call::operands`] says.
    pub fn may_be_larger(&self, operand: usize) -> bool {
        matches!(self, Call::Gemm(_)) && operand < 2
    }

    /// True if its result is computed tile by tile, each element once and in one place. A nest may
    /// [follow](crate::nest::follows) it.
    pub fn has_tiles(&self) -> bool {
        matches!(self, Call::Gemm(_))
    }

    /// Operands (by position) that may share the buffer of the only result.
    pub fn in_place(&self) -> Vec<usize> {
        match self {
            Call::Gemm(g) if g.addends.residual => vec![2 + g.addends.bias as usize],
            Call::Scatter(_) => vec![0],
            _ => vec![],
        }
    }

    /// Multiplications and additions; saturates.
    pub fn flops(&self) -> u64 {
        match self {
            // Comparisons and copies do not count.
            Call::Scatter(s) if !matches!(s.kind, ScatterKind::Add | ScatterKind::Mul) => 0,
            Call::Sort(_) | Call::TopK(_) => 0,
            _ => self.count(0),
        }
    }

    /// A bound of the iterations of loops over all extents of the call, where an empty extent
    /// counts as 1; saturates. It may be large even if [`Call::flops`] is 0.
    pub fn iterations(&self) -> u64 {
        self.count(1)
    }

    /// The product of the extents of its loops, each counted as at least `least`.
    fn count(&self, least: usize) -> u64 {
        let product = |extents: &[usize]| {
            extents.iter().fold(1u64, |n, e| n.saturating_mul((*e).max(least) as u64))
        };
        match self {
            Call::Gemm(g) => product(&[2, g.batch, g.m, g.n, g.k]),
            Call::Convolution(c) => {
                let window = c.window.iter().map(|w| product(&[w.filter, w.output]));
                let channels =
                    product(&[2, c.batch, c.groups, c.input_channels, c.output_channels]);
                window.fold(channels, u64::saturating_mul)
            }
            Call::Scatter(s) => product(&s.updates),
            Call::Sort(s) => product(&[s.outer, s.length, s.inner]),
            Call::TopK(t) => product(&[t.outer, t.length]),
            Call::Attention(a) => a.flops(),
        }
    }

    /// Checks extents, dtypes and overflow: every product that [`Call::operands`] forms fits.
    pub fn verify(&self) -> Result<()> {
        match self {
            Call::Gemm(g) => g.verify(),
            Call::Convolution(c) => c.verify(),
            Call::Scatter(s) => s.verify(),
            Call::Sort(s) => s.verify(),
            Call::TopK(t) => t.verify(),
            Call::Attention(a) => a.verify(),
        }
    }

    /// The reference results of the call on these operands, computed in plain loops, with the
    /// error bound for a back end. A buffer that is larger than the operand, or of another shape,
    /// is read from its beginning.
    pub fn references(&self, operands: &[Literal]) -> Result<Vec<Reference>> {
        self.verify()?;
        let types = self.operands();
        if operands.len() != types.len() {
            return Err(Diagnostic::new(format!(
                "`{}` has {} operands, {} are given",
                CallKind::of(self).name(),
                types.len(),
                operands.len()
            )));
        }
        for (n, (literal, ty)) in operands.iter().zip(&types).enumerate() {
            let elements = ty.elements().expect("verified extents fit");
            let enough =
                literal.len() == elements || (literal.len() > elements && self.may_be_larger(n));
            if literal.dtype() != ty.dtype || !enough {
                return Err(Diagnostic::new(format!(
                    "operand {n} is {ty}, {} is given",
                    literal.ty()
                )));
            }
        }
        let one = match self {
            Call::Gemm(g) => g.reference(operands),
            Call::Convolution(c) => c.reference(operands),
            Call::Scatter(s) => s.reference(operands),
            Call::Sort(s) => s.reference(operands),
            Call::TopK(t) => t.reference(operands),
            Call::Attention(a) => return Ok(a.reference(operands)),
        };
        Ok(vec![one])
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

    /// Name in text and files.
    pub fn name(&self) -> &'static str {
        CallKind::of(self).name()
    }

    /// All attributes except the name, for text and files.
    pub fn attributes(&self) -> Attributes {
        match self {
            Call::Gemm(g) => g.to_attributes(),
            Call::Convolution(c) => c.to_attributes(),
            Call::Scatter(s) => s.attributes_but_kind(),
            Call::Sort(s) => s.to_attributes(),
            Call::TopK(t) => t.to_attributes(),
            Call::Attention(a) => a.to_attributes(),
        }
    }

    /// The call with that name and attributes. An error names the attribute that is unknown,
    /// missing or malformed; [`Call::verify`] checks the rest.
    pub fn from_attributes(
        name: &str,
        mut attributes: BTreeMap<String, Attribute>,
    ) -> Result<Call> {
        let Some(kind) = CallKind::ALL.into_iter().find(|k| k.name() == name) else {
            let names: Vec<_> = CallKind::ALL.iter().map(|k| k.name()).collect();
            return Err(Diagnostic::new(format!("unknown call `{name}`"))
                .help(format!("calls are {}", names.join(", "))));
        };
        // The name of a product's addends in older plans.
        if kind == CallKind::Gemm
            && !attributes.contains_key("addends")
            && let Some(addends) = attributes.remove("epilogue")
        {
            attributes.insert("addends".into(), addends);
        }
        let map = &mut attributes;
        let call = match kind {
            CallKind::Gemm => Call::Gemm(Gemm::from_attributes(map)?),
            CallKind::Convolution => Call::Convolution(Convolution::from_attributes(map)?),
            CallKind::Scatter(kind) => Call::Scatter(Scatter::of_kind(kind, map)?),
            CallKind::Sort => Call::Sort(Sort::from_attributes(map)?),
            CallKind::TopK => Call::TopK(TopK::from_attributes(map)?),
            CallKind::Attention => Call::Attention(Attention::from_attributes(map)?),
        };
        match attributes.into_keys().next() {
            Some(extra) => Err(Diagnostic::new(format!("`{name}` has no attribute `{extra}`"))),
            None => Ok(call),
        }
    }
}

/// Fails if the product of extents does not fit in memory. Empty extents count as 1, so the
/// product of any subset of the extents fits too, and back ends form such products.
fn fits(what: &str, extents: &[usize]) -> Result<()> {
    extents
        .iter()
        .try_fold(1usize, |n, e| n.checked_mul((*e).max(1)))
        .filter(|n| *n <= isize::MAX as usize / 16)
        .map(|_| ())
        .ok_or_else(|| Diagnostic::new(format!("{what}: extents {extents:?} overflow")))
}

/// A list of strings.
fn texts<'a>(items: impl Iterator<Item = &'a str>) -> Attribute {
    Attribute::List(items.map(|t| Attribute::Text(t.into())).collect())
}

#[cfg(test)]
mod tests;
