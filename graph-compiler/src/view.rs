//! A bound body with the facets of its ops. Fusion and lowering use it instead of the ops.

use wengert_core::call::Call;
use wengert_core::graph::{Body, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::nest::Affine;
use wengert_core::op::{Compute, Cost};
use wengert_core::{DType, Diagnostic, Literal, Op, Result};

/// How an equation is computed.
pub(crate) enum Work<'a> {
    /// A constant whose elements differ, so they are stored in memory.
    Literal(&'a Literal),
    /// A loop nest: the op's `compute` facet.
    Compute(Compute<'a>),
    /// A call.
    Call(Call),
    /// Control flow: regions, which are compiled separately.
    Control,
    /// Part of a later equation's call, which alone uses its result.
    Covered,
}

/// A body without dimension variables and composites, and the facets of its equations.
pub(crate) struct View<'a> {
    /// The body.
    pub body: &'a Body,
    /// The equation that defines a value.
    pub definitions: IdVec<ValueId, Option<usize>>,
    /// Extents of every value.
    pub extents: IdVec<ValueId, Vec<usize>>,
    /// Parallel to the equations.
    pub work: Vec<Work<'a>>,
    /// The operands of each equation, or those of its call with its addends.
    pub operands: Vec<Vec<ValueId>>,
    /// The equations that each equation's call covers besides itself.
    pub covers: Vec<Vec<usize>>,
    /// Cost of one element, parallel to the equations.
    pub cost: Vec<Cost>,
    /// Whether operands are accessed at the result's index, parallel to the equations.
    pub elementwise: Vec<bool>,
}

impl<'a> View<'a> {
    /// Computes the facets of every op.
    pub fn new(function: &'a Function) -> Result<View<'a>> {
        let body = &function.body;
        let extents = body
            .values
            .iter()
            .map(|(_, ty)| {
                ty.extents().ok_or_else(|| {
                    Diagnostic::new(format!("@{}: a value has type {ty}", function.name))
                        .help("give its dimension variables numbers before compiling")
                })
            })
            .collect::<Result<_>>()?;
        let mut work = Vec::with_capacity(body.equations.len());
        for equation in &body.equations {
            work.push(match &equation.op {
                Op::Constant(c) if !c.value.is_empty() && c.value.splat().is_none() => {
                    Work::Literal(&c.value)
                }
                op => match op.compute(
                    &body.types(&equation.operands),
                    &body.types(&equation.results),
                    &equation.regions,
                ) {
                    Compute::Call(call) | Compute::CallOrDecompose(call, _) => Work::Call(call),
                    Compute::Control => Work::Control,
                    compute => Work::Compute(compute),
                },
            });
        }
        let covers = vec![Vec::new(); body.equations.len()];
        let operands = body.equations.iter().map(|e| e.operands.clone()).collect();
        let cost = body.equations.iter().map(|e| e.op.traits().cost).collect();
        let elementwise = body.equations.iter().map(|e| e.op.traits().elementwise).collect();
        Ok(View {
            body,
            definitions: body.definitions(),
            extents,
            work,
            operands,
            covers,
            cost,
            elementwise,
        })
    }

    /// The dtype of a value's elements in kernels.
    pub fn stored(&self, value: ValueId) -> DType {
        self.body.ty(value).dtype.stored()
    }

    /// Number of elements of a value.
    pub fn count(&self, value: ValueId) -> usize {
        self.extents[value].iter().product()
    }

    /// The operand that has the same elements in the same order as a value, if any: that of a
    /// reshape or equivalent op.
    pub fn alias(&self, value: ValueId) -> Option<ValueId> {
        let equation = &self.body.equations[self.definitions[value]?];
        match (&equation.op, equation.operands.as_slice()) {
            (Op::Reshape(_), [operand]) => Some(*operand),
            _ => None,
        }
    }
}

/// Row-major strides.
pub(crate) fn strides(extents: &[usize]) -> Vec<i64> {
    let mut strides = vec![1i64; extents.len()];
    for axis in (1..extents.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(extents[axis] as i64);
    }
    strides
}

/// Position in row-major order.
pub(crate) fn flatten(extents: &[usize], index: &[Affine]) -> Affine {
    index
        .iter()
        .zip(strides(extents))
        .fold(Affine::constant(0), |sum, (i, stride)| sum.add(&i.scale(stride)))
}

/// Converts an index into a dense tensor to an index under another shape with as many elements.
///
/// Handles the smallest groups of axes with equal numbers of elements, so that most axes need no
/// division.
pub(crate) fn reindex(from: &[usize], index: &[Affine], to: &[usize]) -> Vec<Affine> {
    if from == to {
        return index.to_vec();
    }
    let mut result = vec![Affine::constant(0); to.len()];
    if from.contains(&0) {
        // There is no element, so any index of the right rank is valid.
        return result;
    }
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let (i0, j0) = (i, j);
        let (mut n, mut m) = (1usize, 1usize);
        while n != m || (i, j) == (i0, j0) {
            // Products of extents never exceed the number of elements, which fits.
            if (n <= m && i < from.len()) || j == to.len() {
                n *= from[i];
                i += 1;
            } else {
                m *= to[j];
                j += 1;
            }
        }
        let flat = flatten(&from[i0..i], &index[i0..i]);
        let mut stride = 1i64;
        let wide: Vec<usize> = (j0..j).filter(|axis| to[*axis] != 1).collect();
        for (k, axis) in wide.iter().enumerate().rev() {
            let quotient = flat.floor_div(stride);
            // The outermost axis of a group needs no remainder: the quotient is within its extent.
            result[*axis] = if k == 0 { quotient } else { quotient.modulo(to[*axis] as i64) };
            stride *= to[*axis] as i64;
        }
    }
    result
}
