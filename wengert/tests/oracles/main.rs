//! Ops and their derivatives against values of other systems: mpmath with 50 digits for functions
//! of one and two numbers, JAX in double precision for the others, NumPy and ml_dtypes for
//! conversions. `generate.py`, `recurrent.py` and `conversions.py` wrote the files.
#![allow(clippy::print_stdout)] // Prints the greatest error that was found.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod control;
mod conversions;
mod fourier;
mod implicit;
mod recurrent;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use wengert::Outputs;
use wengert::core::build::inline;
use wengert::core::graph::{self, Function, parse_program};
use wengert::core::op::{Attribute, Op};
use wengert::core::{LocationId, Scalar};
use wengert::prelude::*;

/// The bound on the error of an op's result in a dtype, in units in the last place of the dtype.
/// 0.5 is correct rounding.
fn bound(op: &str, dtype: DType) -> f64 {
    let f64s = match op {
        "neg" | "abs" | "square" | "reciprocal" | "sqrt" | "add" | "sub" | "mul" | "div"
        | "rem" | "max" | "min" => 0.5,
        "erf_inv" => 3.0,
        "lgamma" | "digamma" => 8.0,
        _ => 2.0,
    };
    match dtype {
        DType::F64 => f64s,
        // The function is approximated, unless its bound is that of correct rounding.
        DType::F32 => {
            if f64s == 0.5 {
                0.5
            } else {
                f64s.min(4.0)
            }
        }
        // Computed in f32 and rounded.
        _ => 0.51,
    }
}

fn arrays(file: &str) -> BTreeMap<String, Literal> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/oracles").join(file);
    wengert::data::read_all(&path).unwrap().into_iter().collect()
}

fn doubles(literal: &Literal) -> Vec<f64> {
    literal.scalars().map(Scalar::to_f64).collect()
}

/// A unit in the last place: the distance of `value` from the next value of a dtype.
fn ulp(value: f64, dtype: DType) -> f64 {
    let (digits, least) = match dtype {
        DType::F16 => (11, -24),
        DType::BF16 => (8, -133),
        DType::F32 => (24, -149),
        _ => (53, -1074),
    };
    let exponent = if value == 0.0 { -2000 } else { value.abs().log2().floor() as i32 + 1 };
    2f64.powi((exponent - digits).max(least))
}

fn op(name: &str) -> Op {
    Op::from_attributes(name, BTreeMap::<String, Attribute>::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

fn run(function: Function, device: Device, inputs: &[(String, Literal)]) -> Vec<Literal> {
    let program = graph::Program::from_functions(vec![function]).unwrap();
    let name = program.functions()[0].name.clone();
    let inputs: Vec<(&str, &Literal)> = inputs.iter().map(|(n, l)| (n.as_str(), l)).collect();
    let mut session = Session::open(device).unwrap();
    let outputs = session.compile(&program, &name, bind!()).unwrap().run(&inputs);
    outputs.and_then(Outputs::into_values).unwrap_or_else(|e| panic!("@{name} on {device}: {e}"))
}

#[test]
fn functions_of_one_and_two_numbers_have_the_values_of_fifty_digits() {
    let arrays = arrays("elementwise.npz");
    let names: BTreeSet<&str> =
        arrays.keys().filter_map(|k| k.split_once('.').map(|(name, _)| name)).collect();
    let mut worst: BTreeMap<String, (f64, String)> = BTreeMap::new();
    let mut compared = 0;
    for name in &names {
        let part = |key: &str| arrays.get(&format!("{name}.{key}"));
        let operands: Vec<&Literal> = ["x", "z"].iter().filter_map(|k| part(k)).collect();
        let (high, low) = (doubles(part("y").unwrap()), doubles(part("y_low").unwrap()));
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let function = FunctionBuilder::build("f", |f| {
                let x = operands.iter().enumerate();
                let x: Vec<Tensor> =
                    x.map(|(i, l)| f.input(&format!("x{i}"), l.ty().with_dtype(dtype))).collect();
                f.output("y", Tensor::apply(op(name), &x.iter().collect::<Vec<_>>()));
            });
            let given: Vec<(String, Literal)> = operands
                .iter()
                .enumerate()
                .map(|(i, l)| (format!("x{i}"), l.convert(dtype)))
                .collect();
            let got = doubles(&run(function.unwrap(), Device::Cpu, &given)[0]);
            let points: Vec<Vec<f64>> = given.iter().map(|(_, l)| doubles(l)).collect();
            for (i, got) in got.iter().enumerate() {
                // Skips points that the dtype does not hold exactly, and results that overflow.
                let exact_points =
                    points.iter().zip(&operands).all(|(p, o)| p[i] == o.get(i).to_f64());
                let limit = Scalar::from_f64(dtype, high[i]).to_f64();
                if !exact_points || !limit.is_finite() {
                    continue;
                }
                let error = ((got - high[i]) - low[i]).abs() / ulp(high[i], dtype);
                compared += 1;
                let at: Vec<f64> = points.iter().map(|p| p[i]).collect();
                let entry = worst.entry(dtype.to_string()).or_insert((0.0, String::new()));
                if error > entry.0 {
                    *entry = (error, format!("{name} at {at:?}"));
                }
                assert!(
                    error <= bound(name, dtype),
                    "{name} of {dtype} at {at:?}: {got:e} is {error:.3} ULP from {:e}",
                    high[i]
                );
            }
        }
    }
    for (dtype, (error, place)) in &worst {
        println!("{dtype}: at most {error:.3} ULP ({place})");
    }
    println!("{compared} values of {} ops", names.len());
    assert!(compared > 5000, "{compared}");
}

#[test]
fn derivatives_of_functions_of_one_and_two_numbers_are_exact_to_nine_digits() {
    let arrays = arrays("elementwise.npz");
    let mut worst = (0.0, String::new());
    for name in arrays.keys().filter_map(|k| k.strip_suffix(".y")) {
        let part = |key: &str| arrays.get(&format!("{name}.{key}"));
        let x = part("x").unwrap().clone();
        let operands: Vec<Literal> =
            [Some(x.clone()), part("z").cloned()].into_iter().flatten().collect();
        let function = FunctionBuilder::build("f", |f| {
            let v: Vec<Tensor> = operands
                .iter()
                .enumerate()
                .map(|(i, l)| f.input(&format!("x{i}"), l.ty()))
                .collect();
            let apply = |v: &[Tensor]| Tensor::apply(op(name), &v.iter().collect::<Vec<_>>());
            for i in 0..v.len() {
                let with = |t: &Tensor| {
                    let mut v = v.clone();
                    v[i] = t.clone();
                    apply(&v)
                };
                f.output(["d", "e"][i], grad(&v[i], |t| with(t).sum()));
                if v.len() == 1 {
                    f.output("dd", grad(&v[i], |t| grad(t, |t| with(t).sum()).sum()));
                }
            }
        });
        let given: Vec<(String, Literal)> =
            operands.iter().enumerate().map(|(i, l)| (format!("x{i}"), l.clone())).collect();
        let function = function.unwrap_or_else(|e| panic!("{name}: {e}"));
        let keys: Vec<String> = function.outputs.iter().map(|o| o.name.clone()).collect();
        for device in [Device::Interpreter, Device::Cpu] {
            for (key, got) in keys.iter().zip(run(function.clone(), device, &given)) {
                let wanted = doubles(part(key).unwrap());
                for (i, (got, wanted)) in doubles(&got).iter().zip(&wanted).enumerate() {
                    let error = (got - wanted).abs() / wanted.abs().max(1e-30);
                    let place =
                        format!("{name}.{key} at {} on {device}", operands[0].get(i).to_f64());
                    assert!(
                        error <= 1e-9 || (got - wanted).abs() < 1e-15,
                        "{place}: {got:e}, not {wanted:e}"
                    );
                    if error > worst.0 && (got - wanted).abs() >= 1e-15 {
                        worst = (error, place);
                    }
                }
            }
        }
    }
    println!("derivatives: relative error at most {:.2e} ({})", worst.0, worst.1);
}

/// The function with its derivatives: results, tangents, cotangents, and the derivatives of the
/// cotangents.
fn with_derivatives(
    name: &str,
    types: &[TensorType],
    f: &dyn Fn(&[Tensor]) -> Vec<Tensor>,
    arrays: &BTreeMap<String, Literal>,
) -> (Function, Vec<String>) {
    let has = |key: &str, i: usize| arrays.contains_key(&format!("{name}.{key}{i}"));
    let array = |key: &str, i: usize| Tensor::constant(arrays[&format!("{name}.{key}{i}")].clone());
    let mut keys = Vec::new();
    let function = FunctionBuilder::build(name, |b| {
        let inputs = types.iter().enumerate();
        let x: Vec<Tensor> = inputs.map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        let active: Vec<usize> = (0..x.len()).filter(|i| has("t", *i)).collect();
        let results: Vec<usize> = (0..).take_while(|i| has("y", *i)).collect();
        let floats: Vec<usize> = results.iter().copied().filter(|i| has("c", *i)).collect();
        let apply = |v: &Vec<Tensor>| {
            let mut full = x.clone();
            active.iter().zip(v).for_each(|(i, t)| full[*i] = t.clone());
            f(&full)
        };
        let of_floats = |v: &Vec<Tensor>| -> Vec<Tensor> {
            let results = apply(v);
            floats.iter().map(|i| results[*i].clone()).collect()
        };
        let point: Vec<Tensor> = active.iter().map(|i| x[*i].clone()).collect();
        let mut give = |key: &str, at: &[usize], tensors: Vec<Tensor>| {
            for (i, tensor) in at.iter().zip(tensors) {
                keys.push(format!("{key}{i}"));
                b.output(&format!("{key}{i}"), tensor);
            }
        };
        give("y", &results, apply(&point));
        if active.is_empty() || floats.is_empty() {
            return;
        }
        let t: Vec<Tensor> = active.iter().map(|i| array("t", *i)).collect();
        let c: Vec<Tensor> = floats.iter().map(|i| array("c", *i)).collect();
        give("ydot", &floats, jvp(&point, &t, of_floats).1);
        let pull = |v: &Vec<Tensor>| vjp(v, of_floats).1(&c);
        give("xbar", &active, pull(&point));
        give("second", &active, jvp(&point, &t, pull).1);
    });
    (function.unwrap_or_else(|e| panic!("{name}: {e}")), keys)
}

#[test]
fn other_ops_and_their_derivatives_are_those_of_jax() {
    let text = include_str!("programs.ir");
    let arrays = arrays("programs.npz");
    let program = parse_program(text, "programs.ir").unwrap_or_else(|e| panic!("{e}"));
    let mut tally = Tally::default();
    for function in program.functions() {
        let mut body = function.body.clone();
        body.equations.iter_mut().for_each(|e| e.location = LocationId(0));
        let types = body.types(&body.inputs);
        tally.compare(&function.name, &types, &|x| inline(&body, x).unwrap(), &arrays);
    }
    tally.report();
    assert!(tally.compared > 3000, "{}", tally.compared);
}

/// Counts of the comparisons with JAX.
#[derive(Default)]
struct Tally {
    compared: usize,
    worst: (f64, String),
}

impl Tally {
    /// Compares one array case: values, tangents, cotangents and second derivatives, on the
    /// interpreter and the CPU.
    fn compare(
        &mut self,
        name: &str,
        types: &[TensorType],
        f: &dyn Fn(&[Tensor]) -> Vec<Tensor>,
        arrays: &BTreeMap<String, Literal>,
    ) {
        let (function, keys) = with_derivatives(name, types, f, arrays);
        let inputs =
            (0..types.len()).map(|i| (format!("x{i}"), arrays[&format!("{name}.x{i}")].clone()));
        let inputs: Vec<(String, Literal)> = inputs.collect();
        for device in [Device::Interpreter, Device::Cpu] {
            for (key, got) in keys.iter().zip(run(function.clone(), device, &inputs)) {
                let wanted = &arrays[&format!("{name}.{key}")];
                assert_eq!(got.ty(), wanted.ty(), "{name}.{key}");
                let (got, wanted) = (doubles(&got), doubles(wanted));
                let scale = wanted.iter().fold(0f64, |s, v| s.max(v.abs()));
                for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                    let place = format!("{name}.{key}[{i}] on {device}");
                    let error = (got - wanted).abs();
                    // A sum with cancellation has the absolute error of its terms.
                    assert!(
                        error <= 1e-9 * wanted.abs() + 1e-13 * scale.max(1.0),
                        "{place}: {got:e}, not {wanted:e}"
                    );
                    self.compared += 1;
                    let relative = error / wanted.abs().max(1e-4 * scale).max(1e-30);
                    if relative > self.worst.0 {
                        self.worst = (relative, place);
                    }
                }
            }
        }
    }

    fn report(&self) {
        let (error, place) = &self.worst;
        println!("{} numbers; relative error at most {error:.2e} ({place})", self.compared);
    }
}

/// Intended differences from JAX in values or derivatives at edges: op, part, and reason.
const OTHERWISE: &[(&str, &str, &str)] = &[
    (
        "abs",
        "d",
        "0 at 0, the mean of the one-sided derivatives, where JAX has that of the right; \
         NaN at NaN",
    ),
    ("digamma", "d", "0 at +∞, where JAX has NaN; 1/x for large x, where JAX has 0; NaN at −∞"),
    ("max", "d", "the cotangent goes to an operand that is NaN; JAX drops it"),
    ("max", "e", "as for the first operand"),
    ("min", "d", "as for `max`"),
    ("min", "e", "as for `max`"),
    ("pow", "d", "0 where the exponent is 0, also for 0⁰ and NaN⁰, where JAX has NaN"),
    ("pow", "e", "0 where the base is 0, for every exponent; JAX has NaN for some exponents"),
    ("rem", "e", "NaN where the remainder is NaN (divisor 0, dividend ±∞); JAX has −∞ or +∞"),
];

#[test]
fn edges_are_those_of_jax_or_documented() {
    let arrays = arrays("edges.npz");
    let mut differences = Vec::new();
    let mut compared = 0;
    for name in arrays.keys().filter_map(|k| k.strip_suffix(".y")) {
        let part = |key: &str| arrays.get(&format!("{name}.{key}"));
        let operands: Vec<Literal> = ["x", "z"].iter().filter_map(|k| part(k).cloned()).collect();
        let function = FunctionBuilder::build("f", |f| {
            let v: Vec<Tensor> = operands
                .iter()
                .enumerate()
                .map(|(i, l)| f.input(&format!("x{i}"), l.ty()))
                .collect();
            let apply = |v: &[Tensor]| Tensor::apply(op(name), &v.iter().collect::<Vec<_>>());
            f.output("y", apply(&v));
            for i in 0..v.len() {
                let with = |t: &Tensor| {
                    let mut v = v.clone();
                    v[i] = t.clone();
                    apply(&v)
                };
                f.output(["d", "e"][i], vjp(&v[i], with).1(&v[i].ones_like()));
            }
        });
        let function = function.unwrap_or_else(|e| panic!("{name}: {e}"));
        let given: Vec<(String, Literal)> =
            operands.iter().enumerate().map(|(i, l)| (format!("x{i}"), l.clone())).collect();
        let results = run(function.clone(), Device::Cpu, &given);
        // Both devices give the same bits at edges; any two NaNs are equal.
        let other = run(function.clone(), Device::Interpreter, &given);
        for (output, (got, other)) in function.outputs.iter().zip(results.iter().zip(&other)) {
            let wanted = doubles(part(&output.name).unwrap());
            for (i, (got, wanted)) in doubles(got).iter().zip(&wanted).enumerate() {
                compared += 1;
                let place: Vec<f64> = operands.iter().map(|o| o.get(i).to_f64()).collect();
                let interpreted = other.get(i).to_f64();
                assert!(
                    same(*got, interpreted),
                    "{name}.{} at {place:?}: {got:e} and {interpreted:e}",
                    output.name
                );
                if !same(*got, *wanted) {
                    differences.push((
                        name,
                        output.name.clone(),
                        format!("{place:?}: {got:e}, JAX has {wanted:e}"),
                    ));
                }
            }
        }
    }
    let documented = |(op, part, _): &&(&str, String, String)| {
        OTHERWISE.iter().any(|(o, p, _)| o == op && p == part)
    };
    for (op, part, what) in &differences {
        println!("{op}.{part} at {what}");
    }
    let unknown: Vec<_> = differences.iter().filter(|d| !documented(d)).collect();
    assert!(
        unknown.is_empty(),
        "{} differences of {compared} are not documented: {unknown:#?}",
        unknown.len()
    );
    for (op, part, _) in OTHERWISE {
        assert!(
            differences.iter().any(|(o, p, _)| o == op && p == part),
            "{op}.{part} is as JAX has it"
        );
    }
}

/// Equality up to rounding. Zeros of either sign are equal.
fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * b.abs()
}
