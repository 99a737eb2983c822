//! Operands that vary over different axes of the mesh, made alike.
//!
//! An op on each rank alone takes operands that vary over the same axes ([`crate::mesh`]). Where
//! they differ, `pvary` makes each vary over the axes of all. This is done where an equation is
//! emitted, so it holds for methods, derivative rules and every driver. A construct with regions
//! may vary by its regions, too:
//!
//! - what goes into a branch or loop, and what comes out, varies at least as its condition does;
//! - a carry varies before a step as after it, and so does an output of all branches.
//!
//! A region whose inputs have to vary more is emitted again on inputs of these types. Each round
//! adds an axis to some carry, so this ends.

use super::Scope;
use super::inline::inline;
use super::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::location::Location;
use crate::mesh::Varying;
use crate::op::control::RegionInput;
use crate::op::{Control, Op, PVary, Scan, Varies, While};
use crate::ty::TensorType;

/// Whether an equation has a value that varies. If it has none, nothing is to be done.
pub(super) fn concerns(operands: &[Tensor], regions: &[Region]) -> bool {
    let varies = |region: &Region| {
        region
            .outputs
            .iter()
            .any(|v| region.values.get(*v).is_some_and(|ty| !ty.varying.is_empty()))
    };
    operands.iter().any(|t| !t.ty().varying.is_empty()) || regions.iter().any(varies)
}

/// Operands and regions that vary as the op requires.
pub(super) fn promoted(
    op: &Op,
    operands: &[Tensor],
    regions: Vec<Region>,
    caller: &Location,
) -> Result<(Vec<Tensor>, Vec<Region>)> {
    let at = Promotion { caller };
    match (op.varies(), op.control()) {
        (Varies::Own, _) => Ok((operands.to_vec(), regions)),
        (Varies::Alike, _) => {
            let all = operands.iter().fold(Varying::default(), |all, t| all.union(varying(t)));
            Ok((at.widened_all(operands, &all)?, regions))
        }
        (Varies::ByRegions, Some(Control::Branch)) => at.branch(operands, regions),
        (Varies::ByRegions, Some(Control::Scan(scan))) => at.scan(scan, operands, regions),
        (Varies::ByRegions, Some(Control::While(op))) => at.while_loop(op, operands, regions),
        (Varies::ByRegions, None) => at.function(op, operands, regions),
    }
}

fn varying(tensor: &Tensor) -> &Varying {
    &tensor.ty().varying
}

/// The axes over which each output of a region varies.
fn given(region: &Region) -> Vec<Varying> {
    region.outputs.iter().map(|v| region.ty(*v).varying.clone()).collect()
}

struct Promotion<'a> {
    /// The location of the equation.
    caller: &'a Location,
}

impl Promotion<'_> {
    /// `x`, varying over at least these axes.
    fn widened(&self, x: &Tensor, axes: &Varying) -> Result<Tensor> {
        let missing = axes.without(varying(x));
        if missing.is_empty() {
            return Ok(x.clone());
        }
        let op = PVary { over: missing.names() };
        let operand = std::slice::from_ref(x);
        Ok(Scope::emit(op.into(), operand, vec![], self.caller.clone())?.swap_remove(0))
    }

    fn widened_all(&self, tensors: &[Tensor], axes: &Varying) -> Result<Vec<Tensor>> {
        tensors.iter().map(|t| self.widened(t, axes)).collect()
    }

    /// The region on inputs of these types, which differ in the axes over which they vary, with
    /// outputs that vary at least over the `wanted` axes.
    fn remade(
        &self,
        region: &Region,
        types: &[TensorType],
        wanted: Option<&[Varying]>,
    ) -> Result<Region> {
        let taken = region.types(&region.inputs);
        let fit = |(a, b): (&TensorType, &TensorType)| a.has_elements_of(b);
        let same_elements = taken.len() == types.len() && taken.iter().zip(types).all(fit);
        let enough =
            |wanted: &[Varying]| given(region).iter().zip(wanted).all(|(g, w)| g.covers(w));
        // The op's own rule reports what does not fit.
        if !same_elements || (taken == types && wanted.is_none_or(enough)) {
            return Ok(region.clone());
        }
        let scope = Scope::current()
            .ok_or_else(|| Diagnostic::new("there is no function to put a region in"))?
            .region();
        let inputs: Vec<Tensor> =
            types.iter().map(|ty| scope.input_at(ty.clone(), Location::Unknown)).collect();
        let outputs = scope.enter(|| {
            let outputs = inline(region, &inputs)?;
            let Some(wanted) = wanted else { return Ok(outputs) };
            let each = outputs.iter().zip(wanted);
            each.map(|(t, axes)| self.widened(t, axes)).collect::<Result<Vec<_>>>()
        })?;
        let closure = scope.close(&outputs)?;
        assert!(closure.captures.is_empty(), "a region uses its inputs only");
        Ok(closure.body.into())
    }

    fn branch(
        &self,
        operands: &[Tensor],
        regions: Vec<Region>,
    ) -> Result<(Vec<Tensor>, Vec<Region>)> {
        let Some((chooses, taken)) = operands.split_first() else {
            return Ok((operands.to_vec(), regions));
        };
        let condition = varying(chooses);
        let taken = self.widened_all(taken, condition)?;
        let types: Vec<TensorType> = taken.iter().map(|t| t.ty().clone()).collect();
        let remade = |region: &Region| self.remade(region, &types, None);
        let regions = regions.iter().map(remade).collect::<Result<Vec<_>>>()?;
        let mut wanted = regions.first().map(given).unwrap_or_default();
        for region in &regions {
            let each = wanted.iter_mut().zip(given(region));
            each.for_each(|(w, g)| *w = w.union(&g).union(condition));
        }
        let remade = |region: &Region| self.remade(region, &types, Some(&wanted));
        let regions = regions.iter().map(remade).collect::<Result<Vec<_>>>()?;
        Ok((std::iter::once(chooses.clone()).chain(taken).collect(), regions))
    }

    fn scan(
        &self,
        scan: &Scan,
        operands: &[Tensor],
        mut regions: Vec<Region>,
    ) -> Result<(Vec<Tensor>, Vec<Region>)> {
        let count = scan.parts(operands)?.count.cloned();
        let condition = count.as_ref().map(|t| varying(t).clone()).unwrap_or_default();
        let first = usize::from(scan.counted);
        let mut all = self.widened_all(&operands[first..], &condition)?;
        let Some(step) = regions.first().cloned() else { return Ok((operands.to_vec(), regions)) };
        let region = loop {
            let sliced = all.len() - scan.captures;
            let part = |(i, t): (usize, &Tensor)| match (scan.carries..sliced).contains(&i) {
                true => t.ty().with_shape(t.shape().get(1..).unwrap_or_default().to_vec()),
                false => t.ty().clone(),
            };
            let types: Vec<TensorType> = all.iter().enumerate().map(part).collect();
            let region = self.remade(&step, &types, None)?;
            let mut wanted = given(&region);
            if !self.carries_grow(&mut all, scan.carries, &mut wanted, &condition)? {
                break self.remade(&region, &types, Some(&wanted))?;
            }
        };
        regions[0] = region;
        Ok((count.into_iter().chain(all).collect(), regions))
    }

    fn while_loop(
        &self,
        op: &While,
        operands: &[Tensor],
        regions: Vec<Region>,
    ) -> Result<(Vec<Tensor>, Vec<Region>)> {
        let carries = op.parts(operands)?.carries.len();
        let mut all = operands.to_vec();
        let [condition, step] = regions.as_slice() else { return Ok((all, regions)) };
        loop {
            let types: Vec<TensorType> = all.iter().map(|t| t.ty().clone()).collect();
            let goes_on = self.remade(condition, &types, None)?;
            let axes = given(&goes_on).into_iter().next().unwrap_or_default();
            if all.iter().any(|t| !varying(t).covers(&axes)) {
                all = self.widened_all(&all, &axes)?;
                continue;
            }
            let region = self.remade(step, &types, None)?;
            let mut wanted = given(&region);
            if !self.carries_grow(&mut all, carries, &mut wanted, &axes)? {
                return Ok((all, vec![goes_on, self.remade(&region, &types, Some(&wanted))?]));
            }
        }
    }

    /// Makes the carries, the first of the operands, vary as after a step. Returns whether that
    /// changed one; if not, `wanted` are the axes over which the outputs of a step have to vary.
    fn carries_grow(
        &self,
        operands: &mut [Tensor],
        carries: usize,
        wanted: &mut [Varying],
        condition: &Varying,
    ) -> Result<bool> {
        let mut grows = false;
        wanted.iter_mut().for_each(|axes| *axes = axes.union(condition));
        for (carry, axes) in operands.iter_mut().zip(wanted.iter_mut()).take(carries) {
            let before = varying(carry).clone();
            *carry = self.widened(carry, axes)?;
            grows |= *varying(carry) != before;
            *axes = varying(carry).clone();
        }
        Ok(grows)
    }

    /// An op that runs a function. Operands vary at least as its inputs. A plain function is
    /// emitted again for operands that vary over more axes; a derivative rule of the user's is
    /// written for its types.
    fn function(
        &self,
        op: &Op,
        operands: &[Tensor],
        mut regions: Vec<Region>,
    ) -> Result<(Vec<Tensor>, Vec<Region>)> {
        let Some(region) = regions.first().cloned() else {
            return Ok((operands.to_vec(), regions));
        };
        let takes = |i: usize| match op {
            Op::FunctionCall(_) => true,
            Op::CustomLinearSolve(_) => region.inputs.len() == operands.len(),
            _ => op.region_input(operands.len(), 0, i) == Some(RegionInput::Operand(i)),
        };
        let widened = |(i, t): (usize, &Tensor)| match region.inputs.get(i).filter(|_| takes(i)) {
            Some(input) => self.widened(t, &region.ty(*input).varying),
            None => Ok(t.clone()),
        };
        let operands = operands.iter().enumerate().map(widened).collect::<Result<Vec<_>>>()?;
        if matches!(op, Op::FunctionCall(_) | Op::Checkpoint(_)) {
            let types: Vec<TensorType> = operands.iter().map(|t| t.ty().clone()).collect();
            regions[0] = self.remade(&region, &types, None)?;
        }
        Ok((operands, regions))
    }
}
