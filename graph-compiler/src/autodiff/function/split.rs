//! A derivative as two functions: the first runs forward and returns residuals, which the second
//! takes.
//!
//! Linearization gives a linear program whose captures are the residuals
//! ([`linearize`](crate::autodiff::linearize())). So the two halves are the primal program with
//! residuals as further outputs, and the linear program (or its transpose) with residuals as
//! inputs. Two kinds of residuals are not passed on. An input of the function is an input of the
//! second half too, under its own name. A value that depends on no input is recomputed.
//!
//! The residuals are typed: each has a name, a type (which may have dimension variables), the
//! source line of the user's program that computes it, and the rules that read it. They are the
//! second half's signature, and print as a table.

use super::choose::{Need, differentiated, independent, select};
use super::maker::{Maker, fresh};
use super::{Grad, Halves, Jvp};
use crate::autodiff::jvp::zeros;
use crate::autodiff::residuals::{Residual, ResidualKind, Residuals, readers};
use crate::autodiff::{Linear, linearize};
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Function, Input, InputRole, Output, OutputRole};
use wengert_core::{Location, LocationId, LocationTable, Result, Tensor, TensorType};

pub(super) fn split_of(function: &Function, request: &Grad<'_>) -> Result<Halves> {
    let of = differentiated(function, request.of, Need::Any)?;
    let wrt = select(function, request.wrt)?;
    let wanted: Vec<bool> = (0..function.outputs.len()).map(|i| i == of).collect();
    let output = &function.outputs[of];
    let forward = Forward::of(function, &wrt, &wanted)?;
    let mut warnings = Vec::new();
    let halves = forward.with(function, "backward", |second, linear| {
        let cotangent =
            second.input(format!("ct_{}", output.name), function.output_type(of).clone());
        let mut cotangents = vec![None; wanted.len()];
        cotangents[of] = Some(cotangent);
        let gradients = second.maker.scope.clone().enter(|| linear.transpose(&cotangents))?;
        for (i, gradient) in gradients.into_iter().enumerate().filter(|(i, _)| wrt[*i]) {
            if gradient.is_none() {
                warnings.push(independent(function, &output.name, &function.inputs[i]));
            }
            second.output(
                format!("d_{}", function.inputs[i].name),
                "d_",
                gradient,
                function.input_type(i),
            )?;
        }
        Ok(())
    })?;
    Ok(Halves { warnings, ..halves })
}

pub(super) fn linearize_of(function: &Function, request: &Jvp<'_>) -> Result<Halves> {
    let wrt = select(function, request.wrt)?;
    let wanted: Vec<bool> =
        (0..function.outputs.len()).map(|i| function.output_type(i).dtype.is_float()).collect();
    let forward = Forward::of(function, &wrt, &wanted)?;
    forward.with(function, "linear", |second, linear| {
        let mut tangents = vec![None; wrt.len()];
        for i in (0..wrt.len()).filter(|i| wrt[*i]) {
            let name = format!("t_{}", function.inputs[i].name);
            tangents[i] = Some(second.input(name, function.input_type(i).clone()));
        }
        let results = second.maker.scope.clone().enter(|| linear.apply(&tangents))?;
        for (i, result) in results.into_iter().enumerate().filter(|(i, _)| wanted[*i]) {
            second.output(
                format!("t_{}", function.outputs[i].name),
                "t_",
                result,
                function.output_type(i),
            )?;
        }
        Ok(())
    })
}

/// The first half, and the inputs for making the second.
struct Forward {
    function: Function,
    linear: Linear,
    residuals: Residuals,
    locations: LocationTable,
}

impl Forward {
    fn of(function: &Function, wrt: &[bool], wanted: &[bool]) -> Result<Self> {
        let mut maker = Maker::new(function);
        maker.only_read();
        let closure = Closure { body: function.body.clone(), captures: vec![] };
        let linearized =
            maker.scope.clone().enter(|| linearize(&closure, &maker.primals, wrt, wanted))?;
        let linear = linearized.linear;
        // State outputs are the variables' next values, which a gradient does not return.
        let kept: Vec<usize> = (0..wanted.len())
            .filter(|i| wanted[*i] || function.outputs[*i].role == OutputRole::Output)
            .collect();
        let mut names: Vec<Output> = Vec::new();
        for i in &kept {
            let name = function.outputs[*i].name.clone();
            let name = fresh(name, "next_", |name| names.iter().any(|o| o.name == name));
            names.push(Output { name, role: OutputRole::Output });
        }
        let mut tensors: Vec<Tensor> =
            kept.iter().map(|i| linearized.outputs[*i].clone()).collect();
        tensors.extend(linear.residuals.iter().cloned());
        let locations = maker.scope.locations();
        let made: Vec<Location> =
            linear.residuals.iter().map(|t| t.defined_at().unwrap_or_default()).collect();
        let mut body = maker.close(&tensors)?;
        let values = body.outputs.split_off(kept.len());
        let mut residuals = Residuals::default();
        for ((i, value), location) in values.iter().enumerate().zip(made) {
            let kind = match body.inputs.iter().position(|v| v == value) {
                Some(input) => ResidualKind::Input(function.inputs[input].name.clone()),
                None => {
                    let taken = |name: &str| {
                        names.iter().any(|o| o.name == name)
                            || function.inputs.iter().any(|x| x.name == name)
                    };
                    let name = fresh(format!("r_{}", body.outputs.len() - kept.len()), "r_", taken);
                    names.push(Output { name: name.clone(), role: OutputRole::Output });
                    body.outputs.push(*value);
                    ResidualKind::Stored(name)
                }
            };
            let readers = readers(&linear, i, &locations);
            residuals.0.push(Residual { kind, ty: body.ty(*value).clone(), location, readers });
        }
        let function = maker.function(format!("{}_forward", function.name), names, body)?;
        Ok(Forward { function, linear, residuals, locations })
    }

    /// Both halves; `derive` makes the second from the linear program.
    fn with(
        self,
        function: &Function,
        suffix: &str,
        derive: impl FnOnce(&mut Second, &Linear) -> Result<()>,
    ) -> Result<Halves> {
        let scope = Scope::new(self.locations);
        scope.set_mesh(function.mesh.clone());
        let maker = Maker { scope, inputs: vec![], primals: vec![] };
        let mut second = Second { maker, outputs: vec![], tensors: vec![] };
        let mut known = Vec::new();
        for (residual, original) in self.residuals.0.iter().zip(&self.linear.residuals) {
            assert_eq!(residual.ty, *original.ty(), "a residual keeps its type");
            known.push(match &residual.kind {
                ResidualKind::Stored(name) => second.input(name.clone(), residual.ty.clone()),
                ResidualKind::Input(name) => {
                    let at = function
                        .input_index(name)
                        .expect("a residual that is an input is one of its function");
                    second.shared(&function.inputs[at], residual.ty.clone())
                }
                ResidualKind::Captured => unreachable!("a function captures nothing"),
            });
        }
        let linear = Linear { residuals: known, ..self.linear };
        derive(&mut second, &linear)?;
        let Second { maker, outputs, tensors } = second;
        let name = format!("{}_{suffix}", function.name);
        let derivative = maker.finish(name, outputs, &tensors)?;
        Ok(Halves {
            forward: self.function,
            derivative,
            residuals: self.residuals,
            warnings: vec![],
        })
    }
}

/// The second half under construction.
struct Second {
    maker: Maker,
    outputs: Vec<Output>,
    tensors: Vec<Tensor>,
}

impl Second {
    fn input(&mut self, name: String, ty: TensorType) -> Tensor {
        let name = fresh(name, "t_", |name| self.maker.inputs.iter().any(|i| i.name == name));
        self.maker.inputs.push(Input { name, role: InputRole::Input, location: LocationId(0) });
        self.maker.scope.input_at(ty, Location::Unknown)
    }

    /// An input that both halves take.
    fn shared(&mut self, input: &Input, ty: TensorType) -> Tensor {
        let role = if input.role == InputRole::State { InputRole::Param } else { input.role };
        self.maker.inputs.push(Input { role, ..input.clone() });
        self.maker.scope.input_at(ty, self.maker.scope.location(input.location))
    }

    fn output(
        &mut self,
        name: String,
        prefix: &str,
        tensor: Option<Tensor>,
        ty: &TensorType,
    ) -> Result<()> {
        let name = fresh(name, prefix, |name| self.outputs.iter().any(|o| o.name == name));
        self.outputs.push(Output { name, role: OutputRole::Output });
        let tensor = match tensor {
            Some(tensor) => tensor,
            None => self.maker.scope.clone().enter(|| zeros(ty))?,
        };
        self.tensors.push(tensor);
        Ok(())
    }
}
