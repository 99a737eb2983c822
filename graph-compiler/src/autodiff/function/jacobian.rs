//! Matrices of derivatives, and products with them.

use super::choose::{Need, differentiated, independent, select};
use super::maker::Making;
use super::{Derived, Hessian, Jacobian};
use crate::autodiff::jacobian::{columns, hessian_of_body, hvp_of_body, rows};
use crate::autodiff::jvp::zeros;
use crate::autodiff::linearize;
use wengert_core::graph::Function;
use wengert_core::{Diagnostic, Result, Tensor};

pub(super) fn jacobian_of(function: &Function, request: &Jacobian<'_>) -> Result<Derived> {
    let of = differentiated(function, request.of, Need::Any)?;
    let wrt = select(function, request.wrt)?;
    let output = &function.outputs[of];
    let mut making = Making::new(function, of);
    if request.value {
        making.value();
    }
    let mut warnings = Vec::new();
    let tensors = making.maker.scope.clone().enter(|| -> Result<Vec<Tensor>> {
        let linearized = linearize(&making.closure, &making.maker.primals, &wrt, &[true])?;
        let mut tensors = if request.value { linearized.outputs } else { vec![] };
        let depends = linearized.linear.depends();
        let blocks = match request.forward {
            true => columns(&linearized.linear)?,
            false => rows(&linearized.linear)?,
        };
        for i in (0..wrt.len()).filter(|i| wrt[*i]) {
            let input = &function.inputs[i];
            if !depends[i] {
                warnings.push(independent(function, &output.name, input));
            }
            tensors.push(blocks[0][i].clone());
            making.name(format!("d_{}", input.name), "d_");
        }
        Ok(tensors)
    })?;
    let name = format!("{}_{}", function.name, if request.forward { "jacfwd" } else { "jacrev" });
    making.finish(name, &tensors, warnings)
}

pub(super) fn hessian_of(function: &Function, request: &Hessian<'_>) -> Result<Derived> {
    let of = differentiated(function, request.of, Need::Scalar("hessian"))?;
    let wrt = select(function, request.wrt)?;
    let mut making = Making::new(function, of);
    let selected: Vec<usize> = (0..wrt.len()).filter(|i| wrt[*i]).collect();
    let tensors = making.maker.scope.clone().enter(|| -> Result<Vec<Tensor>> {
        let (value, gradient, rows) =
            hessian_of_body(&making.closure, &making.maker.primals, &wrt)?;
        let mut tensors = Vec::new();
        if request.value {
            making.value();
            tensors.push(value);
            for i in &selected {
                making.name(format!("d_{}", function.inputs[*i].name), "d_");
                tensors.push(gradient[*i].clone());
            }
        }
        for i in &selected {
            for j in &selected {
                let (x, y) = (&function.inputs[*i].name, &function.inputs[*j].name);
                making.name(format!("d_{x}_d_{y}"), "d_");
                tensors.push(rows[*i][*j].clone());
            }
        }
        Ok(tensors)
    })?;
    making.finish(format!("{}_hessian", function.name), &tensors, vec![])
}

pub(super) fn hvp_of(function: &Function, request: &Hessian<'_>) -> Result<Derived> {
    let of = differentiated(function, request.of, Need::Scalar("hvp"))?;
    let wrt = select(function, request.wrt)?;
    let mut making = Making::new(function, of);
    let selected: Vec<usize> = (0..wrt.len()).filter(|i| wrt[*i]).collect();
    let mut tangents = vec![None; wrt.len()];
    for i in &selected {
        let (ty, name) =
            (function.input_type(*i).clone(), format!("t_{}", function.inputs[*i].name));
        tangents[*i] = Some(making.maker.input(name, ty, Some(*i)));
    }
    let mut warnings = Vec::new();
    let tensors = making.maker.scope.clone().enter(|| -> Result<Vec<Tensor>> {
        let primals = &making.maker.primals;
        let (value, gradient, products) = hvp_of_body(&making.closure, primals, &wrt, &tangents)?;
        let mut tensors = Vec::new();
        if request.value {
            making.value();
            tensors.push(value);
            for i in &selected {
                making.name(format!("d_{}", function.inputs[*i].name), "d_");
                tensors.push(gradient[*i].clone());
            }
        }
        if selected.iter().all(|i| products[*i].is_none()) {
            let name = &function.outputs[of].name;
            warnings.push(Diagnostic::new(format!(
                "the gradient of `{name}` does not depend on the inputs that vary: its derivative \
                 is zero"
            )));
        }
        for i in &selected {
            making.name(format!("t_d_{}", function.inputs[*i].name), "t_");
            tensors.push(products[*i].clone().map_or_else(|| zeros(function.input_type(*i)), Ok)?);
        }
        Ok(tensors)
    })?;
    making.finish(format!("{}_hvp", function.name), &tensors, warnings)
}
