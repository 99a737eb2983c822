//! The axes of the mesh over which an op's results vary ([`crate::mesh`]).

use super::{Op, Varies};
use crate::diagnostic::{Diagnostic, Result};
use crate::mesh::Varying;
use crate::ty::{TensorType, listed};

/// The types of an op's results, from those of its operands. `infer` is the op's own rule, which
/// sees types without axes of a mesh if the op acts on each rank alone.
pub(super) fn infer(
    op: &Op,
    operands: &[TensorType],
    infer: impl Fn(&[TensorType]) -> Result<Vec<TensorType>>,
) -> Result<Vec<TensorType>> {
    let is_alike = op.varies() == Varies::Alike;
    let Some(first) = operands.first().filter(|_| is_alike) else { return infer(operands) };
    if let Some(other) = operands.iter().find(|ty| ty.varying != first.varying) {
        return Err(Diagnostic::new(format!(
            "operands vary over different axes of the mesh: they have types {first} and {other}"
        ))
        .help("make them vary over the same axes by `pvary`"));
    }
    if first.varying.is_empty() {
        return infer(operands);
    }
    let alone: Vec<TensorType> = operands.iter().map(TensorType::invariant).collect();
    let results = infer(&alone)?;
    Ok(results.into_iter().map(|ty| ty.with_varying(first.varying.clone())).collect())
}

/// Checks that values vary over all axes over which the condition of a branch or loop does:
/// what goes in, so that its cotangent is added up outside, and what comes out.
pub(super) fn vary_as(condition: &Varying, what: &str, types: &[TensorType]) -> Result<()> {
    match types.iter().find(|ty| !ty.varying.covers(condition)) {
        None => Ok(()),
        Some(ty) => Err(Diagnostic::new(format!(
            "{what} ({}) do not vary over all axes over which its condition does, {condition}: \
             one has type {ty}",
            listed(types)
        ))
        .help("make it vary by `pvary`")),
    }
}

impl Op {
    /// Whether the op is a collective whose result on a rank needs the operands of others.
    pub fn exchanges(&self) -> bool {
        self.collective().is_some_and(|collective| collective.exchanges)
    }
}
