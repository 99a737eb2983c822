//! One run of a function: on what device, and at which inputs.

use crate::device::{Device, DeviceOptions};
use crate::session::Session;
use crate::signature::is_variable;
use wengert_core::graph::{Function, Output, OutputRole, Program};
use wengert_core::{Binding, Literal, Result};

/// A function of a program, its inputs, and the device that computes it. What is known about the
/// results: [`compare`](Evaluation::compare), [`certify`](Evaluation::certify),
/// [`keep`](Evaluation::keep).
#[derive(Clone, Copy, Debug)]
pub struct Evaluation<'a> {
    /// The device.
    pub device: Device,
    /// The device's options. `None` stands for the default ones.
    pub options: Option<&'a DeviceOptions>,
    /// The program.
    pub program: &'a Program,
    /// The function's name.
    pub function: &'a str,
    /// The function's dimension variables.
    pub binding: &'a Binding,
    /// A value for each of the function's inputs, variables included.
    pub inputs: &'a [Literal],
}

impl<'a> Evaluation<'a> {
    /// With the device's default options.
    pub fn new(
        device: Device,
        program: &'a Program,
        function: &'a str,
        binding: &'a Binding,
        inputs: &'a [Literal],
    ) -> Evaluation<'a> {
        Evaluation { device, options: None, program, function, binding, inputs }
    }

    /// With options of the device.
    pub fn with(self, options: &'a DeviceOptions) -> Evaluation<'a> {
        Evaluation { options: Some(options), ..self }
    }

    /// The function without dimension variables.
    ///
    /// # Errors
    /// There is no such function; a dimension is missing or does not fit.
    pub fn bound(&self) -> Result<Function> {
        self.program.get(self.function)?.bind(self.binding)
    }

    /// A session on the device.
    ///
    /// # Errors
    /// The device is missing, or fails.
    #[track_caller]
    pub(crate) fn session(&self) -> Result<Session> {
        match self.options {
            Some(options) => Session::open_with(self.device, options),
            None => Session::open(self.device),
        }
    }

    /// The outputs, states included, in the function's order.
    ///
    /// # Errors
    /// Those of the session.
    #[track_caller]
    pub fn run(&self) -> Result<Vec<Literal>> {
        let mut session = self.session()?;
        let mut compiled = session.compile(self.program, self.function, self.binding)?;
        let bound = self.bound()?;
        let mut given = Vec::new();
        for (input, value) in bound.inputs.iter().zip(self.inputs) {
            match is_variable(input.role) {
                true => session.set_variable(&input.name, value)?,
                false => given.push((input.name.as_str(), value)),
            }
        }
        let results = compiled.run(&given)?;
        let output = |output: &Output| match output.role {
            OutputRole::Output => results.get(&output.name).cloned(),
            OutputRole::State => session.variable(&output.name),
        };
        bound.outputs.iter().map(output).collect()
    }
}
