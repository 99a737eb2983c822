//! Re-exports of Wengert lists as values, see [`wengert_compiler::autodiff::list`]; and compiled
//! lists.
//!
//! ```
//! use wengert::prelude::*;
//! # fn main() -> Result<()> {
//! let cube = trace(&Tensor::constant(0.0f64), |x| (1..3).fold(x.clone(), |y, _| y * x))?;
//! println!("{cube}");
//! let dcube = cube.grad()?;
//! let mut session = Session::open(Device::Cpu)?;
//! let mut dcube = session.compile_list(&dcube)?;
//! assert_eq!(dcube.call(&Tensor::constant(5.0f64))?.item()?, 75.0);
//! assert_eq!(dcube.call(&Tensor::constant(2.0f64))?.item()?, 12.0);
//! # Ok(())
//! # }
//! ```

use crate::session::{Compiled, Session};
use wengert_core::graph::Program;
use wengert_core::{Binding, Differentiable, Result};

pub use wengert_compiler::autodiff::list::{Adjoint, Derivative, WengertList, trace};

/// A list compiled for a device.
pub struct CompiledList<I, O> {
    compiled: Compiled,
    list: WengertList<I, O>,
    inputs: Vec<String>,
}

impl Session {
    /// Compiles a list for repeated calls.
    ///
    /// Errors: the list has captured values of another function; its types have dimension
    /// variables; errors of the compiler.
    #[track_caller]
    pub fn compile_list<I: Differentiable, O: Differentiable>(
        &mut self,
        list: &WengertList<I, O>,
    ) -> Result<CompiledList<I, O>> {
        let function = list.function("list")?;
        let inputs = function.inputs.iter().map(|i| i.name.clone()).collect();
        let program = Program::from_functions(vec![function])?;
        let compiled = self.compile(&program, "list", Binding::new())?;
        Ok(CompiledList { compiled, list: list.clone(), inputs })
    }
}

impl<I: Differentiable, O: Differentiable> CompiledList<I, O> {
    /// Runs the list on concrete values: constants, or tensors with values. The result's tensors
    /// are constants.
    ///
    /// Errors: a tensor has no value, or another type than the list was traced on; the device
    /// fails.
    #[track_caller]
    pub fn call(&mut self, at: &I) -> Result<O> {
        let numbers = self.list.numbers(at)?;
        let names = self.inputs.iter().map(String::as_str);
        let inputs: Vec<_> = names.zip(&numbers).collect();
        let outputs = self.compiled.run(&inputs)?;
        Ok(self.list.result(outputs.into_values()?))
    }
}
