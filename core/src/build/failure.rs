//! Methods that refuse their operands: poisoned tensors whose errors name the user's line.

use super::Scope;
use super::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::location::Location;

impl Tensor {
    /// A poisoned tensor whose error names its place. The function's builder records the error.
    /// If the tensor is already poisoned, its error is kept.
    #[track_caller]
    pub(crate) fn fail(&self, error: Diagnostic) -> Tensor {
        Tensor::fail_of(&[self], error)
    }

    /// The result of a library operation that refuses its operands: a poisoned tensor whose error
    /// names the places of the operation and of the operands. The function's builder records the
    /// error. If operands are already poisoned, the first error is kept.
    #[track_caller]
    pub fn fail_of(operands: &[&Tensor], error: Diagnostic) -> Tensor {
        if let Some(poisoned) = operands.iter().find(|t| t.error().is_some()) {
            return (*poisoned).clone();
        }
        let mut error = error.at(Location::caller(), "");
        for operand in operands {
            error = error.operand(operand.defined_at(), operand.ty());
        }
        let scope = operands.iter().find_map(|t| t.scope()).cloned().or_else(Scope::current);
        if let Some(scope) = scope {
            scope.fail(&error);
        }
        Tensor::poisoned(error)
    }

    /// The error of operation `name` for an axis that the tensor does not have.
    #[track_caller]
    pub(crate) fn no_axis(&self, name: &str, axis: usize) -> Tensor {
        let error = Diagnostic::new(format!("{name}: {} has no axis {axis}", self.ty()));
        self.fail(error.help(crate::op::axes_of(self.rank())))
    }
}

/// The result of a method that is composed of several ops: that of `compose`, whose equations all
/// belong to the user's line. If `compose` refuses the operands, the result is poisoned by its
/// error, which is prefixed with the method's name. Poisoned operands are not composed.
#[track_caller]
pub(super) fn composed(
    name: &str,
    operands: &[&Tensor],
    compose: impl FnOnce() -> Result<Tensor>,
) -> Tensor {
    composed_many(name, operands, || compose().map(|result| vec![result])).swap_remove(0)
}

/// [`composed`] of several results. On an error there is one, which is poisoned.
#[track_caller]
pub(super) fn composed_many(
    name: &str,
    operands: &[&Tensor],
    compose: impl FnOnce() -> Result<Vec<Tensor>>,
) -> Vec<Tensor> {
    let user = Location::caller();
    if let Some(poisoned) = operands.iter().find(|t| t.error().is_some()) {
        return vec![(*poisoned).clone()];
    }
    match user.attribute(compose) {
        Ok(results) => results,
        Err(error) => {
            vec![user.attribute(|| Tensor::fail_of(operands, error.context(name)))]
        }
    }
}
