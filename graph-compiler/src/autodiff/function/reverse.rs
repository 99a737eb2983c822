//! Gradients.

use super::choose::{Need, differentiated, independent, select};
use super::maker::{Maker, fresh};
use super::{Derived, Grad};
use crate::autodiff::jvp::zeros;
use crate::autodiff::linearize;
use wengert_core::build::Closure;
use wengert_core::graph::{Function, Output, OutputRole};
use wengert_core::{Literal, Result, Scalar, Tensor};

pub(super) fn grad_of(function: &Function, request: &Grad<'_>) -> Result<Derived> {
    let need = if request.seed { Need::Any } else { Need::Scalar("grad") };
    let of = differentiated(function, request.of, need)?;
    let wrt = select(function, request.wrt)?;
    let name = format!("{}_{}", function.name, if request.seed { "vjp" } else { "grad" });
    let output = &function.outputs[of];

    let mut maker = Maker::new(function);
    maker.only_read();
    let mut names = Vec::new();
    let ty = function.output_type(of).clone();
    let seed = match request.seed {
        true => maker.input(format!("ct_{}", output.name), ty, None),
        false => Tensor::constant(Literal::full(&[], Scalar::one(ty.dtype))),
    };
    if request.value {
        // A state output is the variable's next value; here it becomes an ordinary output.
        names.push(Output { name: output.name.clone(), role: OutputRole::Output });
    }
    let mut warnings = Vec::new();
    let tensors = maker.scope.clone().enter(|| -> Result<_> {
        let mut closure = Closure { body: function.body.clone(), captures: vec![] };
        closure.body.outputs = vec![function.body.outputs[of]];
        let linearized = linearize(&closure, &maker.primals, &wrt, &[true])?;
        let mut tensors = if request.value { linearized.outputs } else { vec![] };
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
            let name = fresh(format!("d_{}", input.name), "d_", |name| {
                function.outputs.iter().chain(&names).any(|o| o.name == name)
            });
            names.push(Output { name, role: OutputRole::Output });
        }
        Ok(tensors)
    })?;
    Ok(Derived { function: maker.finish(name, names, &tensors)?, warnings })
}
