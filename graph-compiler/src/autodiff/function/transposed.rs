//! Transposes of linear functions.

use super::Derived;
use super::choose::{independent, select};
use super::maker::{Maker, fresh};
use crate::autodiff::jvp::zeros;
use crate::autodiff::transpose::{transpose, verify_linear};
use wengert_core::graph::{Function, Output, OutputRole};
use wengert_core::{Diagnostic, Result, Tensor};

pub(super) fn transpose_of(function: &Function, wrt: &[&str]) -> Result<Derived> {
    let wrt = select(function, wrt)?;
    let (linear, known): (Vec<usize>, Vec<usize>) = (0..wrt.len()).partition(|i| wrt[*i]);
    // The linear inputs come first, the known ones after them.
    let mut body = function.body.clone();
    body.inputs = linear.iter().chain(&known).map(|i| function.body.inputs[*i]).collect();
    if let Some(i) =
        (0..function.outputs.len()).find(|i| !function.output_type(*i).dtype.is_float())
    {
        let (name, ty) = (&function.outputs[i].name, function.output_type(i));
        return Err(Diagnostic::new(format!(
            "output `{name}` has type {ty}, which is not linear in anything"
        ))
        .help("transpose a function with outputs of floats only"));
    }
    verify_linear(&body, linear.len(), |id| function.locations.origin(id).clone())?;

    let mut maker = Maker::new(function);
    maker.only_read();
    let known_values: Vec<Tensor> = known.iter().map(|i| maker.primals[*i].clone()).collect();
    let mut cotangents = Vec::new();
    for (i, output) in function.outputs.iter().enumerate() {
        cotangents.push(Some(maker.input(
            format!("ct_{}", output.name),
            function.output_type(i).clone(),
            None,
        )));
    }
    let (mut names, mut warnings): (Vec<Output>, _) = (vec![], vec![]);
    let tensors = maker.scope.clone().enter(|| -> Result<Vec<Tensor>> {
        let results = transpose(&body, linear.len(), &known_values, &cotangents)?;
        let mut tensors = Vec::new();
        for (i, result) in linear.iter().zip(results) {
            let input = &function.inputs[*i];
            if result.is_none() {
                warnings.push(independent(function, &function.outputs[0].name, input));
            }
            tensors.push(result.map_or_else(|| zeros(function.input_type(*i)), Ok)?);
            let name =
                fresh(format!("ct_{}", input.name), "ct_", |n| names.iter().any(|o| o.name == n));
            names.push(Output { name, role: OutputRole::Output });
        }
        Ok(tensors)
    })?;
    // The transpose depends only on the types of the linear inputs.
    let mut body = maker.close(&tensors)?;
    for i in linear.iter().rev() {
        maker.inputs.remove(*i);
        body.inputs.remove(*i);
    }
    let function = maker.function(format!("{}_transpose", function.name), names, body)?;
    Ok(Derived { function, warnings })
}
