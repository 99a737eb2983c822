//! Methods of tensors that are composed of ops, compared with ndarray and with loops over single
//! elements. Elements are small integers, so that every order of additions gives the same bits.

#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod einsum;
mod joining;
mod selection;
mod shapes;
mod slicing;
mod statistics;

use ndarray::{ArrayD, IxDyn};
use wengert_core::build::FunctionBuilder;
use wengert_core::{Binding, DType, Literal, Tensor, TensorType, interpret};

/// The outputs of a function of `inputs`, whose extents may be dimension variables.
fn run_bound(
    types: &[TensorType],
    binding: &Binding,
    inputs: &[Literal],
    f: impl FnOnce(&[Tensor]) -> Vec<Tensor>,
) -> Vec<Literal> {
    let function = FunctionBuilder::build("f", |b| {
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        for (i, output) in f(&inputs).iter().enumerate() {
            b.output(&format!("y{i}"), output);
        }
    })
    .unwrap_or_else(|error| panic!("{error}"));
    interpret::run(&function.bind(binding).unwrap(), inputs).unwrap()
}

/// The result of a function of `inputs`.
fn run(inputs: &[Literal], f: impl FnOnce(&[Tensor]) -> Tensor) -> Literal {
    let types: Vec<TensorType> = inputs.iter().map(Literal::ty).collect();
    run_bound(&types, &Binding::new(), inputs, |x| vec![f(x)]).remove(0)
}

/// The result of a function of one array of doubles.
fn of(x: &ArrayD<f64>, f: impl FnOnce(&Tensor) -> Tensor) -> ArrayD<f64> {
    array(&run(&[Literal::from(x.clone())], |x| f(&x[0])))
}

/// A literal as an array of doubles.
fn array(literal: &Literal) -> ArrayD<f64> {
    literal.convert(DType::F64).as_array::<f64>().unwrap().to_owned()
}

/// 0, 1, 2, … in row-major order, shifted so that there are negative elements.
fn counted(shape: &[usize]) -> ArrayD<f64> {
    let count: usize = shape.iter().product();
    let elements = (0..count).map(|i| i as f64 - (count / 3) as f64).collect();
    ArrayD::from_shape_vec(IxDyn(shape), elements).unwrap()
}

/// The error of a function of inputs of these types.
fn error(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Tensor) -> String {
    let built = FunctionBuilder::build("f", |b| {
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        b.output("y", f(&inputs));
    });
    built.expect_err("the function has a mistake").to_string()
}

/// All indices of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for extent in shape {
        all = all
            .into_iter()
            .flat_map(|index: Vec<usize>| {
                (0..*extent).map(move |i| [index.clone(), vec![i]].concat())
            })
            .collect();
    }
    all
}

/// An array whose elements follow from their indices.
fn built(shape: &[usize], element: impl Fn(&[usize]) -> f64) -> ArrayD<f64> {
    let elements = indices(shape).iter().map(|index| element(index)).collect();
    ArrayD::from_shape_vec(IxDyn(shape), elements).unwrap()
}
