//! Forward mode, and Taylor mode.

use super::choose::select;
use super::maker::{Maker, fresh};
use super::{Derived, Jet, Jvp};
use crate::autodiff::jvp as jvp_of_body;
use crate::autodiff::jvp::zeros;
use crate::autodiff::series::{Series, series};
use wengert_core::graph::{Function, Output, OutputRole};
use wengert_core::{Diagnostic, Result, Tensor};

pub(super) fn jvp_of(function: &Function, request: &Jvp<'_>) -> Result<Derived> {
    let wrt = select(function, request.wrt)?;
    let mut maker = Maker::new(function);
    let mut tangents = vec![None; wrt.len()];
    for i in (0..wrt.len()).filter(|i| wrt[*i]) {
        let (ty, name) = (function.input_type(i).clone(), format!("t_{}", function.inputs[i].name));
        tangents[i] = Some(maker.input(name, ty, Some(i)));
    }
    let wanted: Vec<bool> =
        (0..function.outputs.len()).map(|i| function.output_type(i).dtype.is_float()).collect();
    let mut names = function.outputs.clone();
    let mut warnings = Vec::new();
    let tensors = maker.scope.clone().enter(|| -> Result<_> {
        let (mut tensors, results) =
            jvp_of_body(&function.body, &maker.primals, &tangents, &wanted)?;
        for (i, tangent) in results.into_iter().enumerate().filter(|(i, _)| wanted[*i]) {
            let output = &function.outputs[i];
            tensors.push(match tangent {
                Some(tangent) => tangent,
                None => {
                    warnings.push(still(&output.name));
                    zeros(function.output_type(i))?
                }
            });
            let name = fresh(format!("t_{}", output.name), "t_", |name| {
                names.iter().any(|o| o.name == name)
            });
            names.push(Output { name, role: OutputRole::Output });
        }
        Ok(tensors)
    })?;
    let function = maker.finish(format!("{}_jvp", function.name), names, &tensors)?;
    Ok(Derived { function, warnings })
}

pub(super) fn jet_of(function: &Function, request: &Jet<'_>) -> Result<Derived> {
    let wrt = select(function, request.wrt)?;
    if request.order == 0 {
        return Err(Diagnostic::new("a jet of order 0 is the function itself")
            .help("give an order of at least 1"));
    }
    let mut maker = Maker::new(function);
    let mut curves: Vec<Series> = vec![vec![]; wrt.len()];
    // All first derivatives, then all second ones, in the order in which a caller of `jet` passes
    // them.
    for k in 1..=request.order {
        for i in (0..wrt.len()).filter(|i| wrt[*i]) {
            let (ty, name) =
                (function.input_type(i).clone(), format!("t{k}_{}", function.inputs[i].name));
            curves[i].push(Some(maker.input(name, ty, Some(i))));
        }
    }
    let mut names = function.outputs.clone();
    let mut warnings = Vec::new();
    let tensors = maker.scope.clone().enter(|| -> Result<Vec<Tensor>> {
        let (mut tensors, results) =
            series(&function.body, &maker.primals, &curves, request.order)?;
        for k in 1..=request.order {
            for (i, result) in results.iter().enumerate() {
                let (output, ty) = (&function.outputs[i], function.output_type(i));
                if !ty.dtype.is_float() {
                    continue;
                }
                if k == 1 && result.iter().all(Option::is_none) {
                    warnings.push(still(&output.name));
                }
                tensors.push(result[k - 1].clone().map_or_else(|| zeros(ty), Ok)?);
                let taken = |name: &str| names.iter().any(|o| o.name == name);
                let name = fresh(format!("t{k}_{}", output.name), "t_", taken);
                names.push(Output { name, role: OutputRole::Output });
            }
        }
        Ok(tensors)
    })?;
    let function = maker.finish(format!("{}_jet", function.name), names, &tensors)?;
    Ok(Derived { function, warnings })
}

/// The warning for a derivative that is zero.
fn still(output: &str) -> Diagnostic {
    Diagnostic::new(format!(
        "`{output}` does not depend on the inputs that vary: its derivative is zero"
    ))
}
