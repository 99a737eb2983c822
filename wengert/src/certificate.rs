//! The certificate of a function's precision, with the results of a device.
//!
//! ```
//! use wengert::certificate::certify_on;
//! use wengert::core::graph::parse_program;
//! use wengert::{Binding, Device, Literal};
//! # fn main() -> wengert::Result<()> {
//! let text = "func @f(%x: f32[3]) -> (y: f32[]) {
//!     %0: f32[3] = exp %x
//!     %1: f32[] = reduce_sum %0 {axes=[0]}
//!     return %1 }";
//! let program = parse_program(text, "f.ir")?;
//! let x = Literal::from_vec(&[3], vec![0.5f32, 1.0, -2.0])?;
//! let certificate = certify_on(Device::Interpreter, &program, "f", &Binding::new(), &[x])?;
//! let y = &certificate.outputs[0];
//! let bound = y.worst_case.as_ref().expect("`exp` of small numbers is bounded").absolute;
//! assert!(y.observed.greatest <= bound && bound < 1e-5);
//! # Ok(())
//! # }
//! ```

use crate::available_memory;
use crate::check;
use crate::device::{Device, DeviceOptions};
use crate::session::Session;
use wengert_compiler::precision::Precision;
use wengert_core::graph::{Function, Program};
use wengert_core::{Binding, Literal, Result, interpret};

pub use wengert_compiler::certificate::*;

/// Bytes of a number with a bound and the derivative's values, in those of the interpreter's.
const FACTOR: u64 = 6;

/// The certificate of `function` of `program`. Its outputs are computed on `device`. `inputs` has a
/// value for each of the function's inputs, variables included.
///
/// The interpreter computes the bound and the derivatives, one element after the other. So models
/// are certified at small sizes.
///
/// # Errors
/// There is no such function; the device fails or is missing; there is not enough memory; errors
/// of the interpreter.
#[track_caller]
pub fn certify_on(
    device: Device,
    program: &Program,
    function: &str,
    binding: &Binding,
    inputs: &[Literal],
) -> Result<Certificate> {
    certify_with(device, &DeviceOptions::default(), program, function, binding, inputs)
}

/// [`certify_on`] a device with options. If functions are
/// [approximated](DeviceOptions::approximate_functions), the bound counts their errors.
///
/// # Errors
/// As for [`certify_on`].
#[track_caller]
pub fn certify_with(
    device: Device,
    options: &DeviceOptions,
    program: &Program,
    function: &str,
    binding: &Binding,
    inputs: &[Literal],
) -> Result<Certificate> {
    let bound = program.get(function)?.bind(binding)?;
    check_memory(&bound)?;
    let approximations = Session::open_with(device, options)?.target().approximations;
    let computed = check::run(device, options, program, function, binding, inputs)?;
    certify(&bound, inputs, &computed, approximations)
}

/// The cheapest set of equations of `function` of `program` that a policy has to keep in f32 for an
/// error of at most `within` on `device`: see [`keep`]. `inputs` has a value for each of the
/// function's inputs, variables included.
///
/// # Errors
/// There is no such function; the device fails or is missing; there is not enough memory; those of
/// [`keep`] and of [`Precision::for_program`].
#[track_caller]
pub fn keep_on(
    device: Device,
    program: &Program,
    function: &str,
    binding: &Binding,
    inputs: &[Literal],
    policy: &Precision,
    within: f64,
) -> Result<Kept> {
    let options = DeviceOptions::default();
    keep_with(device, &options, program, function, binding, inputs, policy, within)
}

/// [`keep_on`] a device with options.
///
/// # Errors
/// As for [`keep_on`].
#[track_caller]
#[expect(clippy::too_many_arguments, reason = "a run and a policy are described by many things")]
pub fn keep_with(
    device: Device,
    options: &DeviceOptions,
    program: &Program,
    function: &str,
    binding: &Binding,
    inputs: &[Literal],
    policy: &Precision,
    within: f64,
) -> Result<Kept> {
    let function = program.get(function)?;
    check_memory(&function.bind(binding)?)?;
    let policy = &policy.for_program(program)?;
    let mut run = |function: &Function, inputs: &[Literal]| {
        let program = Program::from_functions(vec![function.clone()])?;
        check::run(device, options, &program, &function.name, &Binding::new(), inputs)
    };
    keep(function, binding, policy, inputs, within, &mut run)
}

fn check_memory(function: &Function) -> Result<()> {
    available_memory::check(interpret::peak_bytes(function).saturating_mul(FACTOR), || {
        format!("the certificate of @{}", function.name)
    })
}
