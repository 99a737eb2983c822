//! Residuals: the values of a function's run that its derivative reads.
//!
//! A linear program captures them ([`super::linearize()`]); reverse mode keeps them until the
//! cotangents are available. The table of residuals lists, by source line, which values are kept,
//! how large they are, and which rules read them. So the savings of a
//! [`checkpoint`](super::rules::checkpoint) are known before a run.

use super::values::{Traced, enter_scope_of};
use super::{Linear, current_scope, linearize};
use std::collections::BTreeSet;
use std::fmt;
use wengert_core::{
    Diagnostic, Differentiable, Dim, Location, LocationId, LocationTable, Result, Tensor,
    TensorType,
};

/// The values that the second half of a derivative reads from the first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Residuals(pub Vec<Residual>);

/// A value of the forward run that the derivative reads.
#[derive(Clone, PartialEq, Debug)]
pub struct Residual {
    /// The source from which the second half reads it.
    pub kind: ResidualKind,
    /// Dtype and shape.
    pub ty: TensorType,
    /// The source line of the user's program that computes it.
    pub location: Location,
    /// The rules that read it, e.g. `jvp(tanh)`, sorted.
    pub readers: Vec<String>,
}

/// The source of a residual.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResidualKind {
    /// Computed by the forward half, and kept under this name.
    Stored(String),
    /// An input of this name, which the second half takes as well.
    Input(String),
    /// A value from outside of the closure, which exists anyway.
    Captured,
}

impl Residual {
    /// Its size in bytes, if that is a linear expression of the dimension variables.
    pub fn bytes(&self) -> Option<Dim> {
        let size = Dim::constant(self.ty.dtype.size() as i64);
        self.ty.shape.iter().try_fold(size, |n, d| n.checked_mul(d))
    }
}

impl Residuals {
    /// The residuals that are kept only for the derivative.
    pub fn stored(&self) -> impl Iterator<Item = &Residual> {
        self.0.iter().filter(|r| matches!(r.kind, ResidualKind::Stored(_)))
    }

    /// The total bytes of the [stored](Self::stored) residuals, if that is a linear expression of
    /// the dimension variables.
    pub fn stored_bytes(&self) -> Option<Dim> {
        self.stored().try_fold(Dim::constant(0), |sum, r| sum.checked_add(&r.bytes()?))
    }
}

impl fmt::Display for Residuals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 5]> = self.0.iter().map(Residual::row).collect();
        let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
        for row in &rows {
            let mut line = String::from(" ");
            for (i, cell) in row.iter().enumerate() {
                let space = if i + 1 < row.len() { width(i) - cell.chars().count() + 2 } else { 0 };
                line += &format!(" {cell}{}", " ".repeat(space.saturating_sub(1)));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl Residual {
    fn row(&self) -> [String; 5] {
        let name = match &self.kind {
            ResidualKind::Stored(name) => format!("%{name}"),
            ResidualKind::Input(name) => format!("%{name} (input)"),
            ResidualKind::Captured => "(captured)".into(),
        };
        let bytes = self.bytes().map_or_else(|| "? bytes".into(), |n| format!("{n} bytes"));
        let readers = if self.readers.is_empty() {
            String::new()
        } else {
            format!("read by {}", self.readers.join(", "))
        };
        [name, self.ty.to_string(), bytes, self.location.to_string(), readers]
    }
}

/// The residuals that reverse mode would keep of a closure at a point: each value with its bytes,
/// its source line, and the rules that read it. The function that is being built does not change.
///
/// A loop's residuals are stacked: one value for all of its steps. Residuals of a function that
/// is called by name are results of the call.
///
/// ```
/// # use wengert_core::{DType, TensorType, build::FunctionBuilder};
/// # use wengert_core::op::Checkpoint;
/// # use wengert_compiler::autodiff::{residuals::saved_residuals, rules::checkpoint};
/// FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::new(DType::F32, [1000usize]));
///     let layer = |x: &wengert_core::Tensor| x.sin().exp();
///     // cos x and the result; or nothing but x.
///     let all = saved_residuals(&x, layer).unwrap();
///     assert_eq!(all.stored_bytes().unwrap().to_string(), "8000");
///     let few = saved_residuals(&x, |x| checkpoint(Checkpoint::nothing(), x, layer)).unwrap();
///     assert_eq!(few.stored_bytes().unwrap().to_string(), "0");
/// })?;
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
///
/// Errors: those of the closure and of its derivative.
#[track_caller]
pub fn saved_residuals<M: Differentiable, O: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> Result<Residuals> {
    let caller = Location::caller();
    let _entered = enter_scope_of(at);
    // Equations emitted for the table go to a region that is discarded.
    let scope = current_scope()?.region();
    scope
        .enter(|| of_closure(at, f))
        .map_err(|d: Diagnostic| d.at(caller, "its residuals are asked for here"))
}

fn of_closure<M: Differentiable, O: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> Result<Residuals> {
    let scope = current_scope()?;
    let paths: Vec<String> = at.tensors().iter().map(|(path, _)| path.to_string()).collect();
    let traced = Traced::of(at, f);
    let closure = traced.closure.as_ref().map_err(Clone::clone)?;
    let inputs: Vec<Tensor> = traced
        .primals
        .iter()
        .map(|t| scope.input_at(t.ty().clone(), t.defined_at().unwrap_or_default()))
        .collect();
    let active = traced.floats();
    let wanted: Vec<bool> =
        closure.body.outputs.iter().map(|v| closure.body.ty(*v).dtype.is_float()).collect();
    let linear = linearize(closure, &inputs, &active, &wanted)?.linear;
    let locations = scope.locations();
    let made: Vec<Location> =
        linear.residuals.iter().map(|t| t.defined_at().unwrap_or_default()).collect();
    let closed = scope.close(&linear.residuals)?;
    let (own, captured) = closed.body.inputs.split_at(inputs.len());
    let mut residuals = Residuals::default();
    for ((i, value), location) in closed.body.outputs.iter().enumerate().zip(made) {
        let kind = match own.iter().position(|v| v == value) {
            Some(input) if paths[input].is_empty() => ResidualKind::Input("x".into()),
            Some(input) => ResidualKind::Input(paths[input].clone()),
            None if captured.contains(value) => ResidualKind::Captured,
            None => ResidualKind::Stored(format!("r_{}", residuals.stored().count())),
        };
        let readers = readers(&linear, i, &locations);
        residuals.0.push(Residual { kind, ty: closed.body.ty(*value).clone(), location, readers });
    }
    Ok(residuals)
}

/// The rules whose equations read a residual of the linear program.
pub(super) fn readers(linear: &Linear, residual: usize, locations: &LocationTable) -> Vec<String> {
    let first = linear.body.inputs.len() - linear.residuals.len();
    let value = linear.body.inputs[first + residual];
    let reads = linear.body.equations.iter().filter(|e| e.operands.contains(&value));
    let rule = |id: LocationId| match locations.get(id) {
        Location::Derived { rule, .. } => Some(rule.to_string()),
        _ => None,
    };
    let rules: BTreeSet<String> =
        reads.map(|e| rule(e.location).unwrap_or_else(|| e.op.name().into())).collect();
    rules.into_iter().collect()
}
