//! The transposed convolutions, which are convolutions again.
//!
//! Along one axis, in dilated positions, `y[o] = Σ_k x̂[o·s + k·r − low] · w[k]` for x̂ = x with
//! holes of `d`. A position p of x meets output o under tap k if `p·d = o·s + k·r − low`. With
//! the taps in reverse, `k = K − 1 − k'`, that is `o·s = p·d + k'·r − ((K − 1)·r − low)`: x's
//! cotangent is y's cotangent with holes of `s`, convolved in steps of `d` with the reversed
//! filter, whose holes are `r`, and padded by `(K − 1)·r − low` before. For a tap k, the filter's
//! cotangent is `Σ_o x̂[k·r + o·s − low] · ct[o]`: x with holes of `d` convolved in steps of `r`
//! with y's cotangent as the filter, whose holes are `s`, and padded by `low` before; batch and
//! features change places. The padding after is chosen so that the extents match.
//!
//! Groups of features are groups of features of x's transposed convolution, and groups of the
//! batch in the filter's. Groups of the batch are groups of features in both; x's features are
//! then split into the batch.

use crate::op::conv_general_dilated::{ConvGeneralDilated, dilated, regroup};
use crate::op::prelude::*;

/// The layout with batch and feature swapped.
pub(super) fn swapped(spec: &[usize]) -> Vec<usize> {
    [&spec[1..2], &spec[..1], &spec[2..]].concat()
}

/// The padding after with which a convolution's result has extent `output`: the rest up to
/// `(output − 1)·step + window`.
fn behind(output: &Dim, step: usize, window: &Dim, input: &Dim, before: &Dim) -> Option<Dim> {
    dilated(output, step)?
        .checked_add(window)?
        .checked_add(&Dim::constant(-1))?
        .checked_sub(input)?
        .checked_sub(before)
}

pub(super) fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::ConvGeneralDilated(op) = t.op else { unreachable!("the rule of conv_general_dilated") };
    let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
    // If the result or an operand is empty, all cotangents are zero.
    let empty = |shape: &[Dim]| shape.iter().any(|d| d.as_constant() == Some(0));
    if empty(ct.shape()) || t.operands.iter().any(|o| empty(&o.ty().shape)) {
        return vec![None, None];
    }
    let overflow = || ct.fail(Diagnostic::new("the extents of a transposed convolution overflow"));
    // A wider result has a wider cotangent: widen the known operand, narrow the operand's
    // cotangent.
    let (dtype, wide) = (t.operands[0].ty().dtype, ct.dtype());
    let lhs = |w: &Tensor| {
        let found = op.transpose_lhs(ct, &w.convert(wide), &t.operands[0].ty().shape);
        found.unwrap_or_else(overflow).convert(dtype)
    };
    let rhs = |x: &Tensor| {
        let found = op.transpose_rhs(ct, &x.convert(wide), &t.operands[1].ty().shape);
        found.unwrap_or_else(overflow).convert(dtype)
    };
    vec![
        t.operands[0].is_linear().then(|| lhs(t.operands[1].known())),
        t.operands[1].is_linear().then(|| rhs(t.operands[0].known())),
    ]
}

impl ConvGeneralDilated {
    fn dilations(&self) -> (Vec<usize>, Vec<usize>) {
        let n = self.spatial();
        (
            (0..n).map(|i| self.lhs_dilation(i)).collect(),
            (0..n).map(|i| self.rhs_dilation(i)).collect(),
        )
    }

    fn transpose_lhs(&self, ct: &Tensor, w: &Tensor, x: &[Dim]) -> Option<Tensor> {
        let (specs, (lhs_dilation, rhs_dilation)) = (self.specs(), self.dilations());
        let mut padding = Vec::new();
        for i in 0..self.spatial() {
            let window = dilated(&w.shape()[specs.rhs[2 + i]], rhs_dilation[i])?;
            let before = window.checked_add(&Dim::constant(-1))?.checked_sub(&self.padding[i].0)?;
            let input = dilated(&ct.shape()[specs.out[2 + i]], self.stride[i])?;
            let after = behind(&x[specs.lhs[2 + i]], lhs_dilation[i], &window, &input, &before)?;
            padding.push((before, after));
        }
        let (groups, one) = (self.groups().clone(), Dim::constant(1));
        let mut w = w.reverse(&specs.rhs[2..]);
        if groups != one {
            w = regroup(&w, specs.rhs[0], specs.rhs[1], &groups);
        }
        let conv = ConvGeneralDilated {
            stride: lhs_dilation,
            padding,
            lhs_dilation: self.stride.clone(),
            rhs_dilation,
            feature_group_count: groups,
            batch_group_count: one.clone(),
            lhs_spec: specs.out,
            rhs_spec: swapped(&specs.rhs),
            out_spec: specs.lhs.clone(),
            result: None,
        };
        let result = Tensor::apply(conv, &[ct, &w]);
        Some(match self.batch_group_count == one {
            true => result,
            false => regroup(&result, specs.lhs[1], specs.lhs[0], &self.batch_group_count),
        })
    }

    fn transpose_rhs(&self, ct: &Tensor, x: &Tensor, w: &[Dim]) -> Option<Tensor> {
        let (specs, (lhs_dilation, rhs_dilation)) = (self.specs(), self.dilations());
        let mut padding = Vec::new();
        for i in 0..self.spatial() {
            let window = dilated(&ct.shape()[specs.out[2 + i]], self.stride[i])?;
            let before = self.padding[i].0.clone();
            let input = dilated(&x.shape()[specs.lhs[2 + i]], lhs_dilation[i])?;
            let after = behind(&w[specs.rhs[2 + i]], rhs_dilation[i], &window, &input, &before)?;
            padding.push((before, after));
        }
        let conv = ConvGeneralDilated {
            stride: rhs_dilation,
            padding,
            lhs_dilation,
            rhs_dilation: self.stride.clone(),
            feature_group_count: self.batch_group_count.clone(),
            batch_group_count: self.feature_group_count.clone(),
            lhs_spec: swapped(&specs.lhs),
            rhs_spec: swapped(&specs.out),
            out_spec: swapped(&specs.rhs),
            result: None,
        };
        Some(Tensor::apply(conv, &[x, ct]))
    }
}
