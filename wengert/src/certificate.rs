//! The certificate of a function's precision, with the results of a device.
//!
//! ```
//! use wengert::core::graph::parse_program;
//! use wengert::{Binding, Device, Evaluation, Literal};
//! # fn main() -> wengert::Result<()> {
//! let text = "func @f(%x: f32[3]) -> (y: f32[]) {
//!     %0: f32[3] = exp %x
//!     %1: f32[] = reduce_sum %0 {axes=[0]}
//!     return %1 }";
//! let program = parse_program(text, "f.ir")?;
//! let x = Literal::from_vec(&[3], vec![0.5f32, 1.0, -2.0])?;
//! let (binding, inputs) = (Binding::new(), [x]);
//! let on = Evaluation::new(Device::Interpreter, &program, "f", &binding, &inputs);
//! let certificate = on.certify()?;
//! let y = &certificate.outputs[0];
//! let bound = y.worst_case.as_ref().expect("`exp` of small numbers is bounded").absolute;
//! assert!(y.observed.greatest <= bound && bound < 1e-5);
//! # Ok(())
//! # }
//! ```

use crate::available_memory;
#[cfg(doc)]
use crate::device::DeviceOptions;
use crate::evaluation::Evaluation;
use wengert_compiler::precision::Precision;
use wengert_core::graph::{Function, Program};
use wengert_core::{Binding, Literal, Result, interpret};

pub use wengert_compiler::certificate::*;

/// Bytes of a number with a bound and the derivative's values, in those of the interpreter's.
const FACTOR: u64 = 6;

impl Evaluation<'_> {
    /// The certificate of the function, whose outputs the device computes. If functions are
    /// [approximated](DeviceOptions::approximate_functions), the bound counts their errors.
    ///
    /// The interpreter computes the bound and the derivatives, one element after the other. So
    /// models are certified at small sizes.
    ///
    /// # Errors
    /// There is no such function; the device fails or is missing; there is not enough memory;
    /// errors of the interpreter.
    #[track_caller]
    pub fn certify(&self) -> Result<Certificate> {
        let bound = self.bound()?;
        check_memory(&bound)?;
        let approximations = self.session()?.target().approximations;
        certify(&bound, self.inputs, &self.run()?, approximations)
    }

    /// The cheapest set of equations that `policy` has to keep in f32 for an error of at most
    /// `within` on the device: see [`keep`].
    ///
    /// # Errors
    /// There is no such function; the device fails or is missing; there is not enough memory;
    /// those of [`keep`] and of [`Precision::for_program`].
    #[track_caller]
    pub fn keep(&self, policy: &Precision, within: f64) -> Result<Kept> {
        check_memory(&self.bound()?)?;
        let policy = &policy.for_program(self.program)?;
        let mut run = |function: &Function, inputs: &[Literal]| {
            let program = &Program::from_functions(vec![function.clone()])?;
            let (function, binding) = (&*function.name, &Binding::new());
            Evaluation { program, function, binding, inputs, ..*self }.run()
        };
        let function = self.program.get(self.function)?;
        keep(function, self.binding, policy, self.inputs, within, &mut run)
    }
}

fn check_memory(function: &Function) -> Result<()> {
    available_memory::check(interpret::peak_bytes(function).saturating_mul(FACTOR), || {
        format!("the certificate of @{}", function.name)
    })
}
