//! Derivatives of the methods that are composed of ops: against differences, and against each
//! other.

use wengert::check::{Finding, derivatives};
use wengert::core::graph::Function;
use wengert::prelude::*;

/// The function of f64 inputs of these shapes.
fn function(shapes: &[&[usize]], f: impl FnOnce(&[Tensor]) -> Tensor) -> Function {
    let built = FunctionBuilder::build("f", |b| {
        let inputs: Vec<Tensor> = shapes
            .iter()
            .enumerate()
            .map(|(i, shape)| {
                let ty = TensorType::new(DType::F64, shape.iter().copied());
                b.input(&format!("x{i}"), ty)
            })
            .collect();
        b.output("y", f(&inputs));
    });
    built.unwrap_or_else(|error| panic!("{error}"))
}

/// Numbers without ties, and none of them 0.
fn numbers(shape: &[usize], seed: usize) -> Literal {
    let count: usize = shape.iter().product();
    let elements = (0..count).map(|i| ((i * 7 + seed * 3) as f64 * 0.37).sin() + 0.01 * i as f64);
    Literal::from_vec(shape, elements.collect()).expect("they fill the shape")
}

type Method = fn(&[Tensor]) -> Tensor;

#[test]
fn derivatives_are_those_of_differences() {
    let cases: Vec<(&str, &[&[usize]], Method)> = vec![
        ("product", &[&[2, 3], &[3, 4]], |x| Tensor::einsum("ij,jk->ki", x)),
        ("diagonal and batch", &[&[2, 3, 3], &[3, 2]], |x| Tensor::einsum("bii,ib->b", x)),
        ("three operands", &[&[2, 3], &[3, 2], &[2]], |x| Tensor::einsum("ij,jk,k->i", x)),
        ("ellipsis", &[&[1, 2, 3], &[4, 2, 3]], |x| Tensor::einsum("...i,...i->...", x)),
        ("matmul", &[&[2, 1, 2, 3], &[2, 3, 2]], |x| x[0].matmul(&x[1])),
        ("matmul of vectors", &[&[3], &[2, 3, 2]], |x| x[0].matmul(&x[1])),
        ("outer", &[&[2], &[3]], |x| x[0].outer(&x[1])),
        ("stack", &[&[2], &[2]], |x| Tensor::stack(x, -1).square()),
        ("split", &[&[2, 5]], |x| {
            let parts = x[0].split([2, -1], 1);
            parts[0].sum_keepdims(1) * &parts[1]
        }),
        ("tile", &[&[2, 3]], |x| x[0].tile([2, 2]).sin()),
        ("repeat_interleave", &[&[2, 3]], |x| x[0].repeat_interleave(2, 0).sin()),
        ("roll", &[&[2, 3]], |x| x[0].roll(1, -1) * &x[0]),
        ("slice", &[&[4, 5]], |x| x[0].slice(s![1..;-2, 1..-1;2]).exp()),
        ("tril", &[&[3, 3]], |x| x[0].tril(0).sin() + x[0].triu(1).cos()),
        ("diagonal", &[&[2, 3, 4]], |x| x[0].diagonal(1, 0, 2).exp()),
        ("trace", &[&[2, 3, 3]], |x| x[0].trace().exp()),
        ("var", &[&[2, 4]], |x| x[0].var_with_correction(-1, 1.0)),
        ("std", &[&[2, 4]], |x| x[0].std_keepdims(-1)),
        ("norm", &[&[2, 4]], |x| x[0].norm_axes(-1, 2.0)),
        ("norm of order 3", &[&[2, 4]], |x| x[0].norm_axes(-1, 3.0)),
        ("greatest", &[&[2, 4]], |x| x[0].norm_axes(-1, f64::INFINITY)),
        ("min and max", &[&[2, 4]], |x| x[0].max_keepdims(0) - x[0].min_keepdims(1)),
        ("prod", &[&[2, 4]], |x| x[0].prod_keepdims(-1)),
        ("masked_fill", &[&[2, 4]], |x| x[0].masked_fill(&x[0].gt(0.3), 2.0).exp()),
        ("select", &[&[2, 4]], |x| x[0].gt(0.3).select(x[0].exp(), 0.0)),
        ("index_select", &[&[3, 2]], |x| {
            let at = Tensor::constant(Literal::from_vec(&[4], vec![0i32, 2, 2, 1]).expect("four"));
            x[0].index_select(0, &at).square()
        }),
        ("numbers on the left", &[&[3]], |x| (3.0 - &x[0]).sqrt() * (2.0 / (3.0 + &x[0]))),
    ];
    for (name, shapes, f) in cases {
        let function = function(shapes, f);
        let inputs: Vec<Literal> =
            shapes.iter().enumerate().map(|(i, shape)| numbers(shape, i)).collect();
        let finding = derivatives(&function, &inputs, 7).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(matches!(finding, Finding::Good(_)), "{name}: {finding:?}");
    }
}

/// A root at 0 has no derivative; the norm's is 0 there by definition.
#[test]
fn the_derivative_of_a_norm_at_zero_is_zero() {
    for order in [2.0, 3.0] {
        let function = FunctionBuilder::build("f", |f| {
            let x = f.input("x", f64("2,2"));
            f.output("y", grad(&x, |x| x.norm_axes(-1, order).sum()));
        });
        let x = Literal::from_vec(&[2, 2], vec![0.0, 0.0, 3.0, 0.0]).expect("four elements");
        let function = function.unwrap_or_else(|error| panic!("{error}"));
        let y = wengert::core::interpret::run(&function, &[x]).expect("it runs");
        let gradient = y[0].as_slice::<f64>().expect("f64");
        for (found, expected) in gradient.iter().zip([0.0, 0.0, 1.0, 0.0]) {
            assert!((found - expected).abs() < 1e-12, "{order}: {gradient:?}");
        }
    }
}
