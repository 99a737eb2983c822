//! `dot_general`: sums of products over any axes, batched over any axes.

use crate::call::{Addends, Call, Gemm, Matrix};
use crate::interpret::Regions;
use crate::op::ConvertElementType;
use crate::op::batch::to_front;
use crate::op::prelude::*;

attributes! {
    /// `dot_general %a, %b {batch=[[…],[…]], contract=[[…],[…]]}`: the result has the batch axes,
    /// then the free axes of `a`, then those of `b`, each in order:
    /// `c[n…, i…, j…] = Σ a[n…, i…, k…] · b[n…, j…, k…]` over k. Bilinear: `ā = Σ c̄ · b` over j,
    /// and `b̄ = Σ c̄ · a` over i.
    DotGeneral {
        /// Axes of `a` and of `b` over which products are summed, pairwise.
        contract: (Vec<usize>, Vec<usize>),
        /// Batch axes of `a` and of `b`, pairwise. They remain in the result.
        batch: (Vec<usize>, Vec<usize>) = (vec![], vec![]),
        /// Dtype of the result, lax' `preferred_element_type`. The operands are converted to it
        /// first. It is by default the operands' dtype and is never narrower: for floats a float,
        /// for signed integers a signed integer or a float, for unsigned integers and bools any
        /// number. Halves are accumulated in f32 or wider.
        result: Option<DType> = None,
    }
}

impl DotGeneral {
    /// Matrix product of the last axis of `a` with the first of `b`.
    pub fn matmul(lhs_rank: usize) -> Self {
        DotGeneral {
            contract: (vec![lhs_rank - 1], vec![0]),
            batch: (vec![], vec![]),
            result: None,
        }
    }

    /// Axes that are neither contracted nor batched.
    fn free(contract: &[usize], batch: &[usize], rank: usize) -> Vec<usize> {
        (0..rank).filter(|a| !contract.contains(a) && !batch.contains(a)).collect()
    }
}

/// The stride between neighbours if `axes` of a dense tensor, in this order, are merged into one;
/// `None` if there is no single stride.
fn merged_stride(extents: &[usize], axes: &[usize]) -> Option<usize> {
    let stride = |axis: usize| extents[axis + 1..].iter().product::<usize>();
    let wide: Vec<usize> = axes.iter().copied().filter(|a| extents[*a] != 1).collect();
    for pair in wide.windows(2) {
        if stride(pair[0]) != stride(pair[1]) * extents[pair[1]] {
            return None;
        }
    }
    Some(wide.last().map_or(1, |a| stride(*a)))
}

/// Checks lax' `preferred_element_type`.
pub(super) fn check_result(operand: DType, result: DType) -> Result<()> {
    let fits = match operand {
        DType::Bool => true,
        _ if operand.is_float() => result.is_float(),
        _ if operand.is_signed_integer() => result.is_signed_integer() || result.is_float(),
        _ => result.is_integer() || result.is_float(),
    };
    if fits && result.size() >= operand.size() {
        return Ok(());
    }
    Err(Diagnostic::new(format!("a product of {operand} cannot give {result}")).help(
        "a result is not narrower than its operands: floats give floats, signed integers signed \
         ones or floats, unsigned integers and bools any number; convert the operands, or the \
         result, with `convert_element_type`",
    ))
}

/// An operand in the dtype of multiplication: integers and bools become floats if the result is a
/// float.
pub(super) fn factor<R: Real>(x: &Array<R>, result: DType) -> Result<Array<R>> {
    if x.dtype.is_float() || !result.is_float() {
        return Ok(x.clone());
    }
    let ty = x.ty().with_dtype(result);
    let (operands, results) = (std::slice::from_ref(x), std::slice::from_ref(&ty));
    let e = Evaluation { operands, results, regions: Regions::of(&[]) };
    let converted = ConvertElementType { dtype: result }.evaluate(&e)?;
    Ok(converted.into_iter().next().expect("a conversion has one result"))
}

/// The transpose rule. The cotangent of an operand is the product of the result's cotangent and
/// the other operand, permuted to the operand's axes.
fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::DotGeneral(op) = t.op else { unreachable!("the rule of dot_general") };
    let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
    let side = |this: usize| -> Option<Tensor> {
        if !t.operands[this].is_linear() {
            return None;
        }
        let pick = |pair: &(Vec<usize>, Vec<usize>), i: usize| {
            if i == 0 { pair.0.clone() } else { pair.1.clone() }
        };
        let other = 1 - this;
        let (x, y) = (t.operands[this].ty(), t.operands[other].known());
        let (contract, batch) = (pick(&op.contract, this), pick(&op.batch, this));
        let (contract_y, batch_y) = (pick(&op.contract, other), pick(&op.batch, other));
        let free = DotGeneral::free(&contract, &batch, x.rank());
        let free_y = DotGeneral::free(&contract_y, &batch_y, y.rank());
        // The axes of the cotangent are batch, then free of lhs, then free of rhs.
        let free_ct = |count: usize, skip: usize| {
            (batch.len() + skip..batch.len() + skip + count).collect::<Vec<_>>()
        };
        let ct_y =
            if this == 0 { free_ct(free_y.len(), free.len()) } else { free_ct(free_y.len(), 0) };
        let ct_batch: Vec<usize> = (0..batch.len()).collect();
        let dot = DotGeneral {
            contract: (ct_y, free_y),
            batch: (ct_batch, batch_y.clone()),
            result: None,
        };
        // A wider result has a wider cotangent: widen the known operand, narrow the product.
        let y = y.convert(ct.dtype());
        let product = Tensor::apply(dot, &[ct, &y]);
        // Axes of the product: batch, free of x, then contracted axes in the order of y's.
        let mut sorted: Vec<(usize, usize)> =
            contract_y.iter().copied().zip(contract.iter().copied()).collect();
        sorted.sort();
        let axes: Vec<usize> = batch
            .iter()
            .chain(&free)
            .copied()
            .chain(sorted.into_iter().map(|(_, axis)| axis))
            .collect();
        let mut permutation = vec![0; axes.len()];
        axes.iter().enumerate().for_each(|(i, axis)| permutation[*axis] = i);
        Some(product.permute(&permutation).convert(x.dtype))
    };
    vec![side(0), side(1)]
}

impl Operation for DotGeneral {
    named!(
        "dot_general",
        "result[b…, m…, n…] = Σₖ a[b, m, k] · b[b, k, n]. Halves are accumulated in f32. With \
         `result`, operands are converted to it first; integers and bools too, to wider integers \
         or floats. A product of bools with a bool result is ∨ₖ a ∧ b."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [a, b] = t.exactly()?;
        ensure!(a.dtype == b.dtype, "operands have types {a} and {b}";
            help "convert one of them with `convert_element_type`");
        for (what, (left, right)) in [("contract", &self.contract), ("batch", &self.batch)] {
            ensure!(
                left.len() == right.len(),
                "{what} names {} axes of {a} and {} of {b}",
                left.len(),
                right.len()
            );
            for (i, j) in left.iter().zip(right) {
                ensure!(
                    *i < a.rank() && *j < b.rank(),
                    "{what} pairs axis {i} of {a} with axis {j} of {b}"
                );
                ensure!(
                    a.shape[*i] == b.shape[*j],
                    "axis {i} of {a} has extent {}, axis {j} of {b} has {}",
                    a.shape[*i], b.shape[*j];
                    help "extents of paired axes must be equal"
                );
            }
        }
        let join = |p: &[usize], q: &[usize]| p.iter().chain(q).copied().collect::<Vec<_>>();
        distinct_axes(
            "axes of the first operand",
            &join(&self.contract.0, &self.batch.0),
            a.rank(),
        )?;
        distinct_axes(
            "axes of the second operand",
            &join(&self.contract.1, &self.batch.1),
            b.rank(),
        )?;
        let result = self.result.unwrap_or(a.dtype);
        check_result(a.dtype, result)?;
        let free_a = Self::free(&self.contract.0, &self.batch.0, a.rank());
        let free_b = Self::free(&self.contract.1, &self.batch.1, b.rank());
        let shape = (self.batch.0.iter().chain(&free_a).map(|i| a.shape[*i].clone()))
            .chain(free_b.iter().map(|i| b.shape[*i].clone()))
            .collect();
        Ok(vec![TensorType::of(result, shape)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let dtype = e.results[0].dtype;
        let (a, b) = (factor(&e.operands[0], dtype)?, factor(&e.operands[1], dtype)?);
        let free_a = Self::free(&self.contract.0, &self.batch.0, a.shape.len());
        let free_b = Self::free(&self.contract.1, &self.batch.1, b.shape.len());
        let extents: Vec<usize> = self.contract.0.iter().map(|i| a.shape[*i]).collect();
        let count: usize = extents.iter().product();
        let (mut at_a, mut at_b) = (vec![0; a.shape.len()], vec![0; b.shape.len()]);
        e.build(|index| {
            let mut rest = index.iter().copied();
            for (i, j) in self.batch.0.iter().zip(&self.batch.1) {
                let value = rest.next().expect("the result has the batch axes");
                (at_a[*i], at_b[*j]) = (value, value);
            }
            free_a
                .iter()
                .for_each(|i| at_a[*i] = rest.next().expect("the result has the free axes"));
            free_b
                .iter()
                .for_each(|j| at_b[*j] = rest.next().expect("the result has the free axes"));
            let (mut real, mut bits) = (R::from_i64(0), 0i64);
            for k in 0..count {
                let mut k = k;
                for (n, extent) in extents.iter().enumerate().rev() {
                    (at_a[self.contract.0[n]], at_b[self.contract.1[n]]) = (k % extent, k % extent);
                    k /= extent;
                }
                match (a.at(&at_a), b.at(&at_b)) {
                    (Cell::Real(x), Cell::Real(y)) => real = real.add(&x.mul(y)),
                    (x, y) if dtype == DType::Bool => bits |= x.bits() & y.bits(),
                    (x, y) => bits = bits.wrapping_add(x.bits().wrapping_mul(y.bits())),
                }
            }
            if dtype.is_float() { Cell::Real(real) } else { Cell::Bits(wrap(bits, dtype)) }
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (operand, result) = (l.operands[0].dtype, l.results[0].dtype);
        if result == DType::Bool {
            // Whether both elements of any pair are true: count such pairs.
            return Compute::Decompose(Box::new(move |tensors| {
                let [x, y] = [0, 1].map(|i| tensors[i].convert(DType::I32));
                vec![Tensor::apply(DotGeneral { result: None, ..self.clone() }, &[&x, &y]).ne(0)]
            }));
        }
        if result != operand && !(operand.is_half() && result == DType::F32) {
            let wide = result.wide();
            return Compute::Decompose(Box::new(move |tensors| {
                let [x, y] = [0, 1].map(|i| tensors[i].convert(wide));
                vec![
                    Tensor::apply(DotGeneral { result: None, ..self.clone() }, &[&x, &y])
                        .convert(result),
                ]
            }));
        }
        let (a, b) = (l.extents(0), l.extents(1));
        let free_a = Self::free(&self.contract.0, &self.batch.0, a.len());
        let free_b = Self::free(&self.contract.1, &self.batch.1, b.len());
        let matrix = |extents: &[usize], batch: &[usize], row: &[usize], column: &[usize]| {
            Some(Matrix {
                batch: merged_stride(extents, batch)?,
                row: merged_stride(extents, row)?,
                column: merged_stride(extents, column)?,
            })
        };
        let product =
            |extents: &[usize], axes: &[usize]| axes.iter().map(|i| extents[*i]).product::<usize>();
        let lhs = matrix(&a, &self.batch.0, &free_a, &self.contract.0);
        let rhs = matrix(&b, &self.batch.1, &self.contract.1, &free_b);
        if let (Some(lhs), Some(rhs)) = (lhs, rhs) {
            return Compute::Call(Call::Gemm(Gemm {
                batch: product(&a, &self.batch.0),
                m: product(&a, &free_a),
                n: product(&b, &free_b),
                k: product(&a, &self.contract.0),
                lhs,
                rhs,
                operand,
                rhs_operand: None,
                scales: None,
                accumulate: operand.wide(),
                result,
                addends: Addends::default(),
                pitch: None,
            }));
        }
        // Some axes do not merge into one stride. Permute the operands to [batch, free,
        // contracted] and [batch, contracted, free].
        Compute::Decompose(Box::new(move |tensors| {
            let order = |p: &[usize], q: &[usize], r: &[usize]| {
                p.iter().chain(q).chain(r).copied().collect::<Vec<_>>()
            };
            let (nb, nc) = (self.batch.0.len(), self.contract.0.len());
            let x = tensors[0].permute(&order(&self.batch.0, &free_a, &self.contract.0));
            let y = tensors[1].permute(&order(&self.batch.1, &self.contract.1, &free_b));
            let batch: Vec<usize> = (0..nb).collect();
            let dot = DotGeneral {
                contract: (
                    (nb + free_a.len()..nb + free_a.len() + nc).collect(),
                    (nb..nb + nc).collect(),
                ),
                batch: (batch.clone(), batch),
                result: self.result,
            };
            vec![Tensor::apply(dot, &[&x, &y])]
        }))
    }

    const DERIVATIVE: Derivative = Derivative::Multilinear(transpose);

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let (contract, batch) = (&self.contract, &self.batch);
        let on =
            |i: usize, axes: &[usize]| if b.batched[i] { shifted(axes) } else { axes.to_vec() };
        let mut op = DotGeneral {
            contract: (on(0, &contract.0), on(1, &contract.1)),
            batch: (on(0, &batch.0), on(1, &batch.1)),
            result: self.result,
        };
        let operands = [&b.operands[0], &b.operands[1]];
        if b.batched[0] && b.batched[1] {
            op.batch = (in_front(&batch.0), in_front(&batch.1));
            return vec![Tensor::apply(op, &operands)];
        }
        // The batch axis is the first free axis of its operand: more rows, or more columns, of
        // one product.
        let axis = if b.batched[0] { batch.0.len() } else { b.rank(0) - contract.0.len() };
        vec![to_front(&Tensor::apply(op, &operands), axis)]
    }
}
