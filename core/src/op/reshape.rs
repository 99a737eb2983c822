//! `reshape`: the same elements in row-major order under another shape.

use crate::op::prelude::*;

attributes! {
    /// `reshape %x {shape=[…]}`: the elements in row-major order (the last axis runs fastest), in
    /// another shape of as many. Linear: a cotangent is reshaped back.
    Reshape {
        /// Shape of the result, with the same number of elements.
        shape: Vec<Dim>,
    }
}

/// True if both shapes have the same number of elements for all values of the variables. Equal
/// dimensions cancel; the products of the remaining ones must agree.
fn same_elements(a: &[Dim], b: &[Dim]) -> bool {
    let empty = |dims: &[Dim]| dims.iter().any(|d| d.as_constant() == Some(0));
    if empty(a) && empty(b) {
        return true;
    }
    let mut rest: Vec<Option<&Dim>> = b.iter().map(Some).collect();
    let mut left = Vec::new();
    for dim in a {
        match rest.iter().position(|d| *d == Some(dim)) {
            Some(i) => rest[i] = None,
            None => left.push(dim),
        }
    }
    let product = |dims: &[&Dim]| dims.iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d));
    let right: Vec<&Dim> = rest.into_iter().flatten().collect();
    match (product(&left), product(&right)) {
        (Some(l), Some(r)) => l == r,
        _ => false,
    }
}

/// The smallest groups of consecutive axes with equal numbers of elements, as (axes of `a`, axes
/// of `b`).
fn groups(a: &[usize], b: &[usize]) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (mut i, mut j) = (0, 0);
    let mut groups = Vec::new();
    while i < a.len() || j < b.len() {
        let (i0, j0) = (i, j);
        let (mut n, mut m) = (1usize, 1usize);
        loop {
            if n == m && (i > i0 || j > j0) {
                break;
            }
            // Products of extents never exceed the number of elements, which fits.
            if (n <= m && i < a.len()) || j == b.len() {
                n *= a[i];
                i += 1;
            } else {
                m *= b[j];
                j += 1;
            }
        }
        groups.push((i0..i, j0..j));
    }
    groups
}

impl Operation for Reshape {
    named!("reshape", "The elements of x in row-major order, in another shape.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        let result = x.with_shape(self.shape.clone());
        crate::graph::verify::types::well_formed(&result)?;
        if !same_elements(&x.shape, &self.shape) {
            return Err(match (x.elements(), result.elements()) {
                (Some(from), Some(to)) => {
                    Diagnostic::new(format!("{x} has {from} elements, {result} has {to}"))
                        .help("a reshape keeps the number of elements")
                }
                _ => Diagnostic::new(format!(
                    "{x} and {result} do not have the same number of elements whatever their \
                     variables are"
                ))
                .help("a reshape keeps the number of elements"),
            });
        }
        Ok(vec![result])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let shape = e.extents();
        Ok(vec![Array { dtype: e.operands[0].dtype, shape, cells: e.operands[0].cells.clone() }])
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let from = l.extents(0);
        let to = l.result_extents();
        let empty = from.contains(&0);
        Compute::element(move |c, index| {
            if empty {
                // The operand has no elements; any index of the right rank is valid.
                return c.operand(0, &vec![Affine::constant(0); from.len()]);
            }
            let mut at = vec![Affine::constant(0); from.len()];
            for (source, target) in groups(&from, &to) {
                let flat = target.clone().fold(Affine::constant(0), |flat, axis| {
                    if to[axis] == 1 { flat } else { flat.scale(to[axis] as i64).add(&index[axis]) }
                });
                let mut stride = 1i64;
                let wide: Vec<usize> = source.filter(|axis| from[*axis] != 1).collect();
                for (i, axis) in wide.iter().enumerate().rev() {
                    let quotient = flat.floor_div(stride);
                    // The outermost axis of a group needs no remainder: the quotient is
                    // within its extent.
                    at[*axis] = if i == 0 { quotient } else { quotient.modulo(from[*axis] as i64) };
                    stride *= from[*axis] as i64;
                }
            }
            c.operand(0, &at)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        vec![t.cotangents[0].as_ref().map(|ct| ct.reshape(t.operands[0].ty().shape.clone()))]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Reshape { shape: b.shape(&self.shape) })
    }

    const TRAITS: Traits = Traits::movement(Cost::Free);
}
