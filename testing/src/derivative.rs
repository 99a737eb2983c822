//! Functions of doubles, and their derivatives by finite differences.

use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::interpret::{self, Array, Real};
use wengert_core::{DType, Literal, Scalar, Tensor, TensorType};

/// The f64 type of a shape.
pub fn f64s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F64, shape.iter().copied())
}

/// The type of an f64 scalar.
pub fn scalar() -> TensorType {
    TensorType::scalar(DType::F64)
}

/// A number as a tensor.
pub fn number(x: f64) -> Tensor {
    Tensor::constant(x)
}

/// The types of literals.
pub fn types(literals: &[Literal]) -> Vec<TensorType> {
    literals.iter().map(Literal::ty).collect()
}

/// Builds a function with inputs of the given types. The tensors that `f` returns are its outputs.
pub fn build(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Function {
    let function = FunctionBuilder::build("f", |b| {
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        for (i, output) in f(&inputs).into_iter().enumerate() {
            b.output(&format!("y{i}"), output);
        }
    });
    function.unwrap_or_else(|e| panic!("{e}"))
}

/// Evaluates a function of one scalar.
pub fn at(x: f64, f: impl FnOnce(&Tensor) -> Tensor) -> f64 {
    let function = build(&[TensorType::scalar(DType::F64)], |x| vec![f(&x[0])]);
    run(&function, &[Literal::from(x)])[0].get(0).to_f64()
}

/// Runs a function on doubles.
pub fn run(function: &Function, inputs: &[Literal]) -> Vec<Literal> {
    interpret::run(function, inputs).unwrap_or_else(|e| panic!("{e}\n{function:?}"))
}

/// Runs a function on numbers of any kind.
pub fn run_on<R: Real>(function: &Function, inputs: &[Array<R>]) -> Vec<Array<R>> {
    interpret::evaluate_over(&function.body, &function.locations, inputs)
        .unwrap_or_else(|e| panic!("{e}"))
}

/// All float elements, concatenated.
pub fn flat(literals: &[Literal]) -> Vec<f64> {
    literals
        .iter()
        .filter(|l| l.dtype().is_float())
        .flat_map(|l| l.scalars().map(Scalar::to_f64))
        .collect()
}

/// `x + h·t` for the floats of `x`. `t` contains one literal for each float of `x`.
pub fn moved(x: &[Literal], t: &[Literal], h: f64) -> Vec<Literal> {
    let mut t = t.iter();
    let step = |x: &Literal| {
        if !x.dtype().is_float() {
            return x.clone();
        }
        let t = t.next().expect("one direction for each float");
        let sum =
            |(x, t): (Scalar, Scalar)| Scalar::from_f64(x.dtype(), x.to_f64() + h * t.to_f64());
        let values: Vec<Scalar> = x.scalars().zip(t.scalars()).map(sum).collect();
        Literal::from_scalars(x.dtype(), x.shape(), &values).expect("as many values as elements")
    };
    x.iter().map(step).collect()
}

/// The derivative of `f` at `x` along `t` by the central difference of fourth order,
/// (8(f(x+ht) − f(x−ht)) − (f(x+2ht) − f(x−2ht))) / 12h, with error h⁴·f⁽⁵⁾/30.
pub fn difference(f: &Function, x: &[Literal], t: &[Literal], h: f64) -> Vec<f64> {
    let [a, b, c, d] = [h, -h, 2.0 * h, -2.0 * h].map(|h| flat(&run(f, &moved(x, t, h))));
    (0..a.len()).map(|i| (8.0 * (a[i] - b[i]) - (c[i] - d[i])) / (12.0 * h)).collect()
}

/// Asserts that `derivative` is the derivative of `f` at `x` along `t`, by finite differences of
/// two step sizes. A random point may be nearer to a kink than the longer step; then the shorter
/// one is right. A wrong derivative agrees with neither.
pub fn assert_derivative(
    derivative: &[f64],
    f: &Function,
    x: &[Literal],
    t: &[Literal],
    tolerance: f64,
    what: &str,
) {
    let differences = [1e-3, 1e-5].map(|h| difference(f, x, t, h));
    let scale = derivative.iter().fold(1.0f64, |s, v| s.max(v.abs()));
    for (i, d) in derivative.iter().enumerate() {
        let near = differences.iter().any(|all| (all[i] - d).abs() <= tolerance * scale);
        assert!(
            near,
            "{what}: element {i}: {d}, finite differences {} and {}",
            differences[0][i], differences[1][i]
        );
    }
}

/// Σ aᵢ·bᵢ and Σ |aᵢ·bᵢ|, the scale of its rounding error.
pub fn inner(a: &[f64], b: &[f64]) -> (f64, f64) {
    assert_eq!(a.len(), b.len(), "inner product of vectors of different lengths");
    let products = a.iter().zip(b).map(|(a, b)| a * b);
    (products.clone().sum(), products.map(f64::abs).sum())
}

/// Asserts |a − b| ≤ tolerance · scale, where the scale is the greatest of 1 and all values.
pub fn assert_close(a: &[f64], b: &[f64], tolerance: f64, what: &str) {
    assert_eq!(a.len(), b.len(), "{what}: different numbers of elements");
    let scale = a.iter().chain(b).fold(1.0f64, |s, v| s.max(v.abs()));
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(
            (a - b).abs() <= tolerance * scale,
            "{what}: element {i}: {a} and {b} (scale {scale})"
        );
    }
}
