//! A function made ready for a device.

use crate::device::Device;
use wengert_core::graph::{Function, Program};
use wengert_core::{Binding, Diagnostic, Literal, Result, interpret};

/// A function without dimension variables on a device.
#[derive(Debug)]
pub struct Executable {
    function: Function,
}

impl Executable {
    /// Compiles `function` of `program` for a binding.
    pub fn new(
        device: Device,
        _program: &Program,
        function: &Function,
        binding: &Binding,
    ) -> Result<Executable> {
        let function = function.bind(binding)?;
        if device == Device::Cpu {
            return Err(Diagnostic::new("plans cannot be compiled for the CPU yet").help("use `interpreter`"));
        }
        Ok(Executable { function })
    }

    /// The function, bound.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Runs it on values of the types of its inputs.
    pub fn run(&self, inputs: &[Literal]) -> Result<Vec<Literal>> {
        interpret::run(&self.function, inputs)
    }
}
