//! Gradients.

use super::choose::{Need, differentiated, independent, select};
use super::maker::Making;
use super::{Derived, Grad};
use crate::autodiff::jvp::zeros;
use crate::autodiff::linearize;
use wengert_core::graph::Function;
use wengert_core::{Result, Scalar, Tensor};

pub(super) fn grad_of(function: &Function, request: &Grad<'_>) -> Result<Derived> {
    let need = if request.seed { Need::Any } else { Need::Scalar("grad") };
    let of = differentiated(function, request.of, need)?;
    let wrt = select(function, request.wrt)?;
    let name = format!("{}_{}", function.name, if request.seed { "vjp" } else { "grad" });
    let output = &function.outputs[of];

    let mut making = Making::new(function, of);
    let ty = function.output_type(of).clone();
    let seed = match request.seed {
        true => Some(making.maker.input(format!("ct_{}", output.name), ty.clone(), None)),
        false => None,
    };
    if request.value {
        making.value();
    }
    let mut warnings = Vec::new();
    let tensors = making.maker.scope.clone().enter(|| -> Result<_> {
        let linearized = linearize(&making.closure, &making.maker.primals, &wrt, &[true])?;
        let mut tensors = if request.value { linearized.outputs } else { vec![] };
        let seed = seed.unwrap_or_else(|| Tensor::full(&ty, Scalar::one(ty.dtype)));
        let cotangents = linearized.linear.transpose(&[Some(seed)])?;
        for (i, cotangent) in cotangents.into_iter().enumerate().filter(|(i, _)| wrt[*i]) {
            let input = &function.inputs[i];
            tensors.push(match cotangent {
                Some(cotangent) => cotangent,
                None => {
                    warnings.push(independent(function, &output.name, input));
                    zeros(function.input_type(i))?
                }
            });
            making.name(format!("d_{}", input.name), "d_");
        }
        Ok(tensors)
    })?;
    making.finish(name, &tensors, warnings)
}
