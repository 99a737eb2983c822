//! Checks of a function on given values: its derivatives against differences and each other, and
//! devices against the interpreter.
//!
//! A check is evidence, not proof: it covers only the values of its inputs. The verifier's rules
//! hold for all values, and are checked whenever a program is read.

use crate::autodiff::function::{Grad, Jvp, grad, jvp};
use crate::available_memory;
use crate::data::spec::random;
use crate::evaluation::Evaluation;
use wengert_compiler::indices::watch;
use wengert_core::graph::{Function, OutputRole, Program};
use wengert_core::interpret::{self, Array};
use wengert_core::{DType, Literal, Result, Scalar, TensorType, diagnostic};

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// Passed, with a description of the comparison.
    Good(String),
    /// Nothing to compare, with the reason.
    Skipped(String),
    /// Failed, with the reason.
    Bad(String),
}

/// Steps of differences, tried in turn: a kink between the points of one step may lie outside
/// those of a smaller one.
const STEPS: [f64; 4] = [1e-3, 1e-4, 1e-5, 1e-6];

/// Greatest relative deviation of a difference from the derivative. At the best step, the error
/// of the difference is about 1e-9 for functions of moderate curvature; a wrong rule deviates by
/// much more.
const DIFFERENCE_TOLERANCE: f64 = 1e-5;

/// Greatest deviation of ⟨c, J·t⟩ from ⟨Jᵀ·c, t⟩, relative to the sum of the terms' magnitudes:
/// only rounding errors are allowed.
const ADJOINT_TOLERANCE: f64 = 1e-10;

/// The derivatives that [`derivatives_by`] checks.
pub trait Differentiate {
    /// The directional derivative of a function: see [`jvp`].
    ///
    /// Errors: the function cannot be differentiated.
    fn jvp(&self, program: &Program, function: &str, request: &Jvp<'_>) -> Result<Function>;

    /// The gradient of an output of a function: see [`grad`].
    ///
    /// Errors: the function cannot be differentiated.
    fn grad(&self, program: &Program, function: &str, request: &Grad<'_>) -> Result<Function>;
}

/// The compiler's own derivatives.
#[derive(Clone, Copy, Debug)]
pub struct Autodiff;

impl Differentiate for Autodiff {
    fn jvp(&self, program: &Program, function: &str, request: &Jvp<'_>) -> Result<Function> {
        Ok(jvp(program, function, request)?.function)
    }

    fn grad(&self, program: &Program, function: &str, request: &Grad<'_>) -> Result<Function> {
        Ok(grad(program, function, request)?.function)
    }
}

/// Compares, for `function` (without dimension variables) at `inputs`, J·t with central
/// differences along a random direction t, and ⟨c, J·t⟩ with ⟨Jᵀ·c, t⟩ for a random c. All are
/// computed in f64, independent of the dtypes of the function.
///
/// Errors: a function that cannot be differentiated or evaluated.
pub fn derivatives(function: &Function, inputs: &[Literal], seed: u64) -> Result<Finding> {
    derivatives_by(&Autodiff, function, inputs, seed)
}

/// [`derivatives`], with derivatives of another origin.
///
/// Errors: those of [`derivatives`].
pub fn derivatives_by(
    by: &dyn Differentiate,
    function: &Function,
    inputs: &[Literal],
    seed: u64,
) -> Result<Finding> {
    let is_float = |ty: &TensorType| ty.dtype.is_float() && ty.elements() != Some(0);
    let floats: Vec<usize> =
        (0..inputs.len()).filter(|i| is_float(function.input_type(*i))).collect();
    let outputs: Vec<usize> =
        (0..function.outputs.len()).filter(|i| is_float(function.output_type(*i))).collect();
    if floats.is_empty() || outputs.is_empty() {
        return Ok(Finding::Skipped(
            "no float goes in and comes out: nothing to differentiate".into(),
        ));
    }
    let wrt: Vec<&str> = floats.iter().map(|i| function.inputs[*i].name.as_str()).collect();
    let program = Program::from_functions(vec![function.clone()])?;
    let x = inputs.iter().map(Array::from_literal).collect::<Result<Vec<Array<f64>>>>()?;
    let directions = floats
        .iter()
        .map(|i| Array::from_literal(&random(function.input_type(*i), seed, &format!("t{i}"))?))
        .collect::<Result<Vec<_>>>()?;

    let forward = by.jvp(&program, &function.name, &Jvp { wrt: &wrt })?;
    let results = evaluate(&forward, &[&x[..], &directions[..]].concat())?;
    // The jvp has a tangent for every float output, including those without elements.
    let all = (0..function.outputs.len()).filter(|i| function.output_type(*i).dtype.is_float());
    let tangents = all.zip(&results[function.outputs.len()..]);
    let tangents: Vec<&Array<f64>> =
        tangents.filter(|(i, _)| outputs.contains(i)).map(|(_, t)| t).collect();

    let values = |results: &[Array<f64>]| -> Vec<f64> {
        outputs.iter().flat_map(|o| elements(&results[*o])).collect()
    };
    let expected: Vec<f64> = tangents.iter().flat_map(|t| elements(t)).collect();
    let at = values(&results);
    if at.iter().chain(&expected).any(|v| !v.is_finite()) {
        return Ok(Finding::Skipped(
            "the function or its derivative is not finite at these inputs".into(),
        ));
    }
    if let Some(message) = differences(function, &x, &floats, &directions, &expected, values)? {
        return Ok(Finding::Bad(message));
    }

    let (mut left, mut right, mut scale) = (0.0, 0.0, 0.0f64);
    let mut add = |sum: &mut f64, a: &Array<f64>, b: &Array<f64>| {
        for (a, b) in elements(a).into_iter().zip(elements(b)) {
            *sum += a * b;
            scale += (a * b).abs();
        }
    };
    for (o, tangent) in outputs.iter().zip(&tangents) {
        let name = function.outputs[*o].name.as_str();
        // An output and a state output may share a name. Lookup by name finds only the former.
        if function.outputs[*o].role == OutputRole::State
            && function.output_index(name, OutputRole::Output).is_some()
        {
            continue;
        }
        let backward = by.grad(
            &program,
            &function.name,
            &Grad { of: Some(name), wrt: &wrt, value: false, seed: true },
        )?;
        let cotangent =
            Array::from_literal(&random(function.output_type(*o), seed, &format!("c{o}"))?)?;
        let gradients = evaluate(&backward, &[&x[..], std::slice::from_ref(&cotangent)].concat())?;
        add(&mut left, &cotangent, tangent);
        gradients.iter().zip(&directions).for_each(|(g, t)| add(&mut right, g, t));
    }
    // A NaN fails this comparison.
    if (left - right).abs() <= ADJOINT_TOLERANCE * scale.max(f64::MIN_POSITIVE) {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let (inputs, outputs) = (count(floats.len(), "input"), count(outputs.len(), "output"));
        return Ok(Finding::Good(format!(
            "forward, reverse and differences agree: {inputs}, {outputs}"
        )));
    }
    Ok(Finding::Bad(format!(
        "⟨c, J·t⟩ is {left:e}, ⟨Jᵀ·c, t⟩ is {right:e}: reverse mode is not the \
         transpose of forward mode"
    )))
}

/// The error of `expected` as the directional derivative, if any.
fn differences(
    function: &Function,
    x: &[Array<f64>],
    floats: &[usize],
    directions: &[Array<f64>],
    expected: &[f64],
    values: impl Fn(&[Array<f64>]) -> Vec<f64>,
) -> Result<Option<String>> {
    let scale = expected.iter().fold(1.0f64, |scale, v| scale.max(v.abs()));
    let mut nearest = vec![f64::NAN; expected.len()];
    for step in STEPS {
        let [far, near, back, behind] = [2.0, 1.0, -1.0, -2.0].map(|factor| -> Result<Vec<f64>> {
            let mut moved = x.to_vec();
            for (i, direction) in floats.iter().zip(directions) {
                moved[*i] = shifted(&x[*i], direction, factor * step)?;
            }
            Ok(values(&evaluate(function, &moved)?))
        });
        let (far, near, back, behind) = (far?, near?, back?, behind?);
        for i in 0..expected.len() {
            // Of fourth order: (8(f(x+h) − f(x−h)) − (f(x+2h) − f(x−2h))) / 12h.
            let difference = (8.0 * (near[i] - back[i]) - (far[i] - behind[i])) / (12.0 * step);
            let error = |v: f64| (v - expected[i]).abs();
            if nearest[i].is_nan() || error(difference) < error(nearest[i]) {
                nearest[i] = difference;
            }
        }
    }
    let wrong = |i: &usize| {
        let close = (nearest[*i] - expected[*i]).abs() <= DIFFERENCE_TOLERANCE * scale;
        !close
    };
    Ok((0..expected.len()).find(wrong).map(|i| {
        let count = (0..expected.len()).filter(wrong).count();
        format!(
            "the derivative differs from differences in {count} of {} elements; element {i}: \
             the derivative is {:e}, a difference is {:e}",
            expected.len(),
            expected[i],
            nearest[i]
        )
    }))
}

fn evaluate(function: &Function, inputs: &[Array<f64>]) -> Result<Vec<Array<f64>>> {
    available_memory::check(interpret::peak_bytes(function), || {
        format!("@{} in the interpreter", function.name)
    })?;
    interpret::evaluate_unrounded(&function.body, &function.locations, inputs)
}

fn elements(array: &Array<f64>) -> Vec<f64> {
    array.cells.iter().map(|cell| *cell.real()).collect()
}

fn shifted(x: &Array<f64>, direction: &Array<f64>, by: f64) -> Result<Array<f64>> {
    let cells = x.cells.iter().zip(direction.cells.iter());
    let cells = cells.map(|(x, t)| interpret::Cell::Real(x.real() + by * t.real()));
    Ok(Array::new(x.dtype, x.shape.clone(), interpret::Cells::collect(cells)?))
}

/// Runs `function` (without dimension variables) at `inputs` in the interpreter, and checks the
/// indices and labels of every lookup: one out of range is a mistake. `None` if there is no
/// lookup.
pub fn indices(function: &Function, inputs: &[Literal]) -> Result<Option<Finding>> {
    let (checked, watched) = watch(function.clone())?;
    if watched.is_empty() {
        return Ok(None);
    }
    let results = interpret::run(&checked, inputs)?;
    let reports = &results[results.len() - watched.len()..];
    if let Some(fault) =
        watched.iter().zip(reports).find_map(|(watched, report)| watched.fault(report))
    {
        return Ok(Some(Finding::Bad(fault.to_string())));
    }
    let (count, s) = (watched.len(), if watched.len() == 1 { "" } else { "s" });
    Ok(Some(Finding::Good(format!("every index is in range: {count} lookup{s}"))))
}

impl Evaluation<'_> {
    /// Runs the function on the device and in the interpreter, and compares all outputs.
    ///
    /// Elements may differ by 1024 units in the last place of the greatest element of the output,
    /// since devices sum in another order. Outputs that are not floats must be equal.
    ///
    /// # Errors
    /// Those of the device and of the interpreter; there is not enough memory.
    #[track_caller]
    pub fn compare(&self) -> Result<Finding> {
        let Evaluation { device, function, inputs, .. } = *self;
        let bound = self.bound()?;
        let results = self.run()?;
        available_memory::check(interpret::peak_bytes(&bound), || {
            format!("@{function} in the interpreter")
        })?;
        let expected = interpret::run(&bound, inputs)?;
        for ((output, found), expected) in bound.outputs.iter().zip(&results).zip(&expected) {
            if let Some((i, a, b)) = deviation(found, expected)? {
                return Ok(Finding::Bad(format!(
                    "output `{}`, element {i}: {device} gives {a}, the interpreter {b}",
                    output.name
                )));
            }
        }
        let count = bound.outputs.len();
        Ok(Finding::Good(format!(
            "{device} agrees with the interpreter: {count} output{}",
            if count == 1 { "" } else { "s" }
        )))
    }
}

/// The first element that differs from the interpreter's by more than rounding and the order of
/// sums allow, with both values.
///
/// Error: the types differ.
pub fn deviation(found: &Literal, expected: &Literal) -> Result<Option<(usize, Scalar, Scalar)>> {
    if found.ty() != expected.ty() {
        return Err(diagnostic!("the device gives {}, not {}", found.ty(), expected.ty()));
    }
    let epsilon = match expected.dtype() {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F8E4M3FN => 2f64.powi(-3),
        DType::F8E5M2 => 2f64.powi(-2),
        _ => 0.0,
    };
    let greatest =
        expected.scalars().map(|s| s.to_f64().abs()).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let near = |a: Scalar, b: Scalar| {
        let (x, y) = (a.to_f64(), b.to_f64());
        a == b
            || (x.is_nan() && y.is_nan())
            || (x - y).abs() <= 1024.0 * epsilon * greatest && a.dtype().is_float()
            // Neighbours: numbers that differ by rounding became 8-bit floats.
            || (x - y).abs() <= epsilon * x.abs().max(y.abs()) && a.dtype().is_float8()
    };
    let pairs = found.scalars().zip(expected.scalars()).enumerate();
    Ok(pairs.map(|(i, (a, b))| (i, a, b)).find(|(_, a, b)| !near(*a, *b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use wengert_core::Binding;
    use wengert_core::graph::parse_program;

    fn function(text: &str) -> Function {
        parse_program(text, "f.ir").unwrap().functions()[0].clone()
    }

    const SMOOTH: &str =
        "func @f(%x: f32[3], %n: i32[], state %w: f32[3]) -> (f32[], n: i32[], state w: f32[3]) {
        %0: f32[3] = mul %x, %w
        %1: f32[3] = tanh %0
        %2: f32[] = reduce_sum %1 {axes=[0]}
        return %2, %n, %1
    }";

    fn values() -> Vec<Literal> {
        let floats = |v: &[f32]| Literal::from_vec(&[v.len()], v.to_vec()).unwrap();
        vec![floats(&[0.3, -0.7, 1.1]), Literal::from(4i32), floats(&[0.9, 0.2, -0.4])]
    }

    #[test]
    fn right_derivatives_agree() {
        let finding = derivatives(&function(SMOOTH), &values(), 1).unwrap();
        assert_eq!(
            finding,
            Finding::Good("forward, reverse and differences agree: 2 inputs, 2 outputs".into())
        );
    }

    /// `round` has the derivative zero, which differences across a jump contradict: at 0.5 every
    /// step jumps.
    #[test]
    fn wrong_derivatives_are_found() {
        let text = "func @f(%x: f32[2]) -> (f32[2]) {\n %0: f32[2] = floor %x\n return %0\n}";
        let at = |v: f32| vec![Literal::from_vec(&[2], vec![0.25, v]).unwrap()];
        let message = match derivatives(&function(text), &at(1.0), 1).unwrap() {
            Finding::Bad(message) => message,
            other => panic!("{other:?}"),
        };
        assert!(
            message.contains("in 1 of 2 elements; element 1: the derivative is 0e0"),
            "{message}"
        );
        assert!(matches!(derivatives(&function(text), &at(1.5), 1).unwrap(), Finding::Good(_)));
    }

    #[test]
    fn what_cannot_be_compared_is_skipped() {
        let log = function("func @f(%x: f32[]) -> (f32[]) {\n %0: f32[] = log %x\n return %0\n}");
        assert!(matches!(
            derivatives(&log, &[Literal::from(-1.0f32)], 1).unwrap(),
            Finding::Skipped(_)
        ));
        let integers = function("func @f(%x: i32[]) -> (i32[]) {\n return %x\n}");
        assert!(matches!(
            derivatives(&integers, &[Literal::from(1i32)], 1).unwrap(),
            Finding::Skipped(_)
        ));
    }

    #[test]
    fn the_interpreter_agrees_with_itself() {
        let program = parse_program(SMOOTH, "f.ir").unwrap();
        let finding =
            Evaluation::new(Device::Interpreter, &program, "f", &Binding::new(), &values())
                .compare()
                .unwrap();
        assert_eq!(
            finding,
            Finding::Good("interpreter agrees with the interpreter: 3 outputs".into())
        );
    }

    #[test]
    fn deviations_are_found() {
        let floats = |v: &[f32]| Literal::from_vec(&[v.len()], v.to_vec()).unwrap();
        assert_eq!(
            deviation(&floats(&[1.0, f32::NAN]), &floats(&[1.00001, f32::NAN])).unwrap(),
            None
        );
        assert_eq!(deviation(&floats(&[1.0, 2.1]), &floats(&[1.0, 2.0])).unwrap().unwrap().0, 1);
        assert!(deviation(&floats(&[1.0, f32::NAN]), &floats(&[1.0, 2.0])).unwrap().is_some());
        assert!(deviation(&Literal::from(1i32), &Literal::from(2i32)).unwrap().is_some());
        assert!(deviation(&Literal::from(1i32), &Literal::from(1i64)).is_err());
    }
}
