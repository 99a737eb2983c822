//! Constructors of tensors, and their elements after a run.

use wengert_core::build::FunctionBuilder;
use wengert_core::{
    DType, Differentiable, Initializer, KeyPath, Literal, Tensor, TensorType, interpret,
};

/// A tensor that is built before its function.
pub fn tensor(n: usize) -> Tensor {
    Tensor::variable(TensorType::new(DType::F32, [n]), Initializer::Zeros)
}

/// A constant vector.
pub fn vector(values: &[f64]) -> Tensor {
    Tensor::constant(Literal::from_vec(&[values.len()], values.to_vec()).unwrap())
}

/// Key path and extent of each tensor.
pub fn paths(value: &impl Differentiable) -> Vec<String> {
    value.tensors().iter().map(|(path, t)| format!("{path}:{}", t.shape()[0])).collect()
}

/// The elements of each tensor that `f` makes, by key path.
pub fn run<T: Differentiable>(f: impl FnOnce() -> T) -> Result<Vec<(String, Vec<f64>)>, String> {
    let mut names = Vec::new();
    let function = FunctionBuilder::build("f", |b| {
        for (i, (path, t)) in f().tensors().into_iter().enumerate() {
            names.push(path.to_string());
            b.output(&format!("o{i}"), t);
        }
    });
    let literals = interpret::run(&function.map_err(|e| e.to_string())?, &[]).unwrap();
    let elements = literals.iter().map(|l| l.scalars().map(|s| s.to_f64()).collect());
    Ok(names.into_iter().zip(elements).collect())
}

/// The elements alone, concatenated.
pub fn elements<T: Differentiable>(f: impl FnOnce() -> T) -> Vec<f64> {
    run(f).unwrap().into_iter().flat_map(|(_, values)| values).collect()
}

/// The same value, with each tensor replaced by `f` of it.
pub fn map<T: Differentiable>(value: &T, mut f: impl FnMut(&str, &Tensor) -> Tensor) -> T {
    value.map_tensors(&KeyPath::default(), &mut |path, t| f(path.as_str(), t))
}
