//! A wrong result narrowed down to the pass, the derivative rule or the equation at fault.
//!
//! The interpreter defines the right values. A result is wrong if it differs from the
//! interpreter's beyond the tolerance of [`check::deviation`].
//!
//! - [`pass`] finds a faulty pass. Passes spend fuel, one unit for each change. The first stage
//!   that the interpreter finds wrong names the pass, and the least fuel with a wrong result the
//!   change.
//! - [`kernel`] finds the first equation whose value differs on a device: by a binary search over
//!   the equations in program order, whose live values become outputs. A wrong value in front that
//!   no live value shows is found by one more run, with all values as outputs. It enters loops,
//!   branches and calls with the values that a run has there.
//! - [`device`] does both: first the passes, then the kernels.
//! - [`rule`] finds the equation with a wrong derivative: each equation is checked alone against
//!   differences, at the values of the run.
//! - [`precision`] finds the first equation whose value a precision policy changes beyond the
//!   tolerance.
//!
//! Passes, devices and derivatives are parameters, so that tests plant faults in them. A binary
//! search finds the transition from right to wrong; if there are several faults, it finds one.
//!
//! ```
//! use wengert::isolate::bisect::{self, Fault};
//! use wengert::isolate::cut::Case;
//! use wengert::isolate::walk::{Flow, Visit, walk};
//! use wengert::{Literal, core::graph::{Function, parse_program}};
//! # fn main() -> wengert::Result<()> {
//! let text = "func @f(%x: f32[2]) -> (f32[]) {
//!     %0: f32[2] = tanh %x
//!     %1: f32[2] = mul %0, %0
//!     %2: f32[] = reduce_sum %1 {axes=[0]}
//!     return %2
//! }";
//! let program = parse_program(text, "f.ir")?;
//! let case = Case::plain(program.get("f")?, &[Literal::from_vec(&[2], vec![1.0f32, 2.0])?])?;
//! // A device whose products are wrong.
//! let device = |function: &Function, inputs: &[Literal]| -> wengert::Result<Vec<Literal>> {
//!     let mut visitor = |visit: Visit<'_>| {
//!         if visit.equation.op.name() == "mul" {
//!             visit.results[0] = visit.operands[0].clone();
//!         }
//!         Flow::Continue(())
//!     };
//!     Ok(walk(function, inputs, &mut visitor)?.expect("the visitor never ends the walk"))
//! };
//! let Some(Fault::Kernel(fault)) = bisect::kernel(&case, &device)? else { panic!("it is wrong") };
//! assert_eq!(fault.origin.location.to_string(), "f.ir:3:18");
//! assert!(fault.alone);
//! # Ok(())
//! # }
//! ```

mod fault;
mod kernel;
mod passes;
mod precision;
mod rule;

pub use fault::{Deviation, Fault, KernelFault, PassFault, PrecisionFault, RuleFault};
pub use kernel::kernel;
pub use passes::{Passes, Stage, pass};
pub use precision::precision;
pub use rule::rule;

use super::cut::Case;
use super::index;
use super::walk::{Flow, Visit, walk};
use crate::Device;
use crate::check;
use crate::evaluation::Evaluation;
use wengert_core::graph::{Body, Function, Program};
use wengert_core::{Binding, Literal, Result};

/// Evaluates a function without dimension variables on values for its inputs.
pub type Run<'a> = dyn Fn(&Function, &[Literal]) -> Result<Vec<Literal>> + 'a;

/// The first deviation among values with names.
fn deviation<'a>(
    names: impl IntoIterator<Item = String>,
    found: &[Literal],
    expected: impl IntoIterator<Item = &'a Literal>,
) -> Result<Option<(usize, Deviation)>> {
    for (n, ((value, found), expected)) in names.into_iter().zip(found).zip(expected).enumerate() {
        if let Some((flat, found, wanted)) = check::deviation(found, expected)? {
            let (ty, index) = (expected.ty(), index(expected.shape(), flat));
            return Ok(Some((n, Deviation { value, ty, index, found, expected: wanted })));
        }
    }
    Ok(None)
}

/// The first wrong output of a function that replaces the one of the case.
fn wrong_output(case: &Case, expected: &[Literal], found: &[Literal]) -> Result<Option<Deviation>> {
    let names = case.function.outputs.iter().map(|output| format!("output `{}`", output.name));
    Ok(deviation(names, found, expected)?.map(|(_, deviation)| deviation))
}

fn interpret(function: &Function, inputs: &[Literal]) -> Result<Vec<Literal>> {
    let mut all = |_: Visit<'_>| Flow::Continue(());
    let outputs = walk(function, inputs, &mut all)?;
    Ok(outputs.expect("the visitor never ends the walk"))
}

/// Narrows down a wrong result of a device: to a pass, and if all passes are right, to a kernel.
/// `None` if the device is right.
///
/// Errors: those of the device, the passes and the interpreter.
pub fn device(case: &Case, passes: &dyn Passes, run: &Run<'_>) -> Result<Option<Fault>> {
    let expected = interpret(&case.function, &case.inputs)?;
    let found = run(&case.function, &case.inputs)?;
    if wrong_output(case, &expected, &found)?.is_none() {
        return Ok(None);
    }
    match pass(case, passes)? {
        Some(fault) => Ok(Some(fault)),
        None => kernel(case, run),
    }
}

/// The most runs of a region that are examined.
const ENTRIES: usize = 32;

/// Whether an equation is a constant or an iota: it stays beside its users when a function is cut.
fn is_given(body: &Body, number: usize) -> bool {
    let equation = &body.equations[number];
    equation.operands.is_empty() && equation.regions.is_empty()
}

/// Runs functions on a device, each in a session of its own.
pub fn on(device: Device) -> impl Fn(&Function, &[Literal]) -> Result<Vec<Literal>> {
    move |function, inputs| {
        let program = Program::from_functions(vec![function.clone()])?;
        Evaluation::new(device, &program, &function.name, &Binding::new(), inputs).run()
    }
}
