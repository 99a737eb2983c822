//! The inputs and outputs of a function.

use super::bytes_of;
use super::flow::{Flow, Origin};
use serde::Serialize;
use wengert_core::graph::{Function, InputRole, OutputRole};

/// An input or an output.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// `input`, `param`, `state` or `key`; `output` or `state`.
    pub role: &'static str,
    /// Its type.
    pub ty: String,
    /// Bytes of its elements.
    pub bytes: u64,
    /// Of an output the equation that computes it; none if it is an input.
    pub equation: Option<usize>,
}

pub(super) fn inputs(function: &Function) -> Vec<Port> {
    let port = |(n, input): (usize, &wengert_core::graph::Input)| {
        let ty = function.input_type(n);
        let role = match input.role {
            InputRole::Input => "input",
            role => role.name(),
        };
        Port {
            name: input.name.clone(),
            role,
            ty: ty.to_string(),
            bytes: bytes_of(ty),
            equation: None,
        }
    };
    function.inputs.iter().enumerate().map(port).collect()
}

pub(super) fn outputs(function: &Function) -> Vec<Port> {
    let flow = Flow::of(function);
    let port = |(n, output): (usize, &wengert_core::graph::Output)| {
        let ty = function.output_type(n);
        let role = if output.role == OutputRole::State { "state" } else { "output" };
        let equation = match flow.outputs[n] {
            Origin::Equation(number) => Some(number),
            Origin::Input(_) | Origin::Inside => None,
        };
        Port { name: output.name.clone(), role, ty: ty.to_string(), bytes: bytes_of(ty), equation }
    };
    function.outputs.iter().enumerate().map(port).collect()
}
