//! `vmap` on closures: shared tensors, axes, nesting, differentiation in both orders, a batch of
//! unknown extent, mistakes.

use super::examples::stack;
use wengert_compiler::autodiff::operators::{grad, jvp};
use wengert_compiler::autodiff::rules::custom_vjp;
use wengert_compiler::vmap::operators::{ByPath, vmap, vmap_axes};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::op::ConvGeneralDilated;
use wengert_core::{Binding, DType, Diagnostic, Dim, Literal, Op, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;

fn equations(function: &Function) -> Vec<String> {
    function.body.equations.iter().map(|e| e.op.name().to_string()).collect()
}

fn error(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Tensor) -> Diagnostic {
    let built = FunctionBuilder::build("f", |b| {
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        let y = f(&inputs);
        b.output("y", y);
    });
    built.expect_err("this is a mistake")
}

#[test]
fn a_layer_on_a_batch_of_vectors_is_one_product() {
    let layer = build(&[f64s(&[8, 5]), f64s(&[5, 4]), f64s(&[4])], |x| {
        vec![vmap(&x[0], |v| (v.dot(&x[1]) + &x[2]).tanh())]
    });
    assert_eq!(equations(&layer), ["dot_general", "broadcast_in_dim", "add", "tanh"]);
}

#[test]
fn what_does_not_depend_on_an_example_is_computed_once() {
    let f = build(&[f64s(&[8]), f64s(&[5])], |x| {
        // The second tensor has no axis for the examples, so its square is shared.
        let f = |v: &(Tensor, Tensor)| (&v.0 * v.1.square().sum(), v.1.exp());
        let (scaled, shared) =
            vmap_axes(&(x[0].clone(), x[1].clone()), [Some(0), None], [Some(0), None], f);
        vec![scaled, shared]
    });
    let square = f.body.equations.iter().find(|e| e.op.name() == "square").unwrap();
    assert_eq!(*f.body.ty(square.results[0]), f64s(&[5]));
    assert_eq!(*f.output_type(0), f64s(&[8]));
    assert_eq!(*f.output_type(1), f64s(&[5]));
}

#[test]
fn a_result_that_no_example_matters_to_is_repeated() {
    let f = build(&[f64s(&[3]), f64s(&[2])], |x| vec![vmap(&x[0], |_| x[1].exp())]);
    assert_eq!(*f.output_type(0), f64s(&[3, 2]));
}

/// Pairwise squared distances: a map over rows of x within a map over rows of y.
#[test]
fn maps_nest() {
    let f = build(&[f64s(&[3, 2]), f64s(&[4, 2])], |x| {
        let distance = |a: &Tensor, b: &Tensor| (a - b).square().sum();
        vec![vmap(&x[0], |a| vmap(&x[1], |b| distance(a, b)))]
    });
    let mut random = Random(3);
    let (a, b) = (random.literal(&f64s(&[3, 2])), random.literal(&f64s(&[4, 2])));
    let got = flat(&run(&f, &[a.clone(), b.clone()]));
    let (a, b) = (flat(&[a]), flat(&[b]));
    for i in 0..3 {
        for j in 0..4 {
            let wanted = (0..2).map(|k| (a[2 * i + k] - b[2 * j + k]).powi(2)).sum::<f64>();
            assert_eq!(got[4 * i + j], wanted);
        }
    }
}

#[test]
fn axes_may_lie_anywhere_and_go_by_key_path() {
    let f = build(&[f64s(&[5, 3]), f64s(&[3, 5])], |x| {
        let pair = (x[0].clone(), x[1].clone());
        let by_path = ByPath(|path: &wengert_core::KeyPath, _: &Tensor| {
            Some(usize::from(path.as_str() == "1"))
        });
        vec![vmap_axes(&pair, by_path, 1, |(a, b)| a * b)]
    });
    assert_eq!(*f.output_type(0), f64s(&[3, 5]));
    let mut random = Random(4);
    let (a, b) = (random.literal(&f64s(&[5, 3])), random.literal(&f64s(&[3, 5])));
    let got = flat(&run(&f, &[a.clone(), b.clone()]));
    let (a, b) = (flat(&[a]), flat(&[b]));
    for k in 0..3 {
        for n in 0..5 {
            assert_eq!(got[5 * k + n], a[3 * n + k] * b[5 * k + n]);
        }
    }
}

/// The gradient of a sum over examples equals the sum of the gradients of the examples.
#[test]
fn the_gradient_of_a_sum_is_the_sum_of_mapped_gradients() {
    let types = [f64s(&[4, 3]), f64s(&[3, 2])];
    let loss = |x: &Tensor, w: &Tensor| x.dot(w).tanh().square().sum();
    let f = build(&types, |x| {
        let whole = grad(&x[1], |w| vmap(&x[0], |e| loss(e, w)).sum());
        let each = vmap(&x[0], |e| grad(&x[1], |w| loss(e, w)));
        vec![whole, each.sum_axes(&[0])]
    });
    let mut random = Random(5);
    let inputs: Vec<Literal> = types.iter().map(|ty| random.literal(ty)).collect();
    let results = run(&f, &inputs);
    assert_close(&flat(&results[..1]), &flat(&results[1..]), 1e-14, "both orders");
}

/// In D(x ↦ x · vmap(y ↦ D(z ↦ x·z)(y))) the perturbations stay separate. The function is Σᵢ x·x,
/// with derivative 2n·x.
#[test]
fn perturbations_are_not_confused_by_a_map_between_them() {
    let f = build(&[f64s(&[]), f64s(&[5])], |x| {
        vec![grad(&x[0], |p| vmap(&x[1], |y| p * grad(y, |z| p * z)).sum())]
    });
    let y = Literal::from_vec(&[5], vec![1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    assert_eq!(flat(&run(&f, &[Literal::from(3.0f64), y])), [30.0]);
}

#[test]
fn forward_mode_along_every_basis_vector_is_the_jacobian() {
    let f = build(&[f64s(&[3]), f64s(&[3, 3])], |x| {
        vec![vmap(&x[1], |e| jvp(&x[0], e, |x| x.square() * x.sum()).1)]
    });
    let x = [1.0, 2.0, 3.0];
    let eye =
        Literal::from_vec(&[3, 3], vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0f64]).unwrap();
    let got = flat(&run(&f, &[Literal::from_vec(&[3], x.to_vec()).unwrap(), eye]));
    for j in 0..3 {
        for i in 0..3 {
            let wanted = x[i] * x[i] + if i == j { 2.0 * x[i] * 6.0 } else { 0.0 };
            assert_eq!(got[3 * j + i], wanted);
        }
    }
}

#[test]
fn the_batch_may_be_a_dimension_variable() {
    let batch = |shape: &[usize]| {
        let shape = [Dim::variable("B")].into_iter().chain(shape.iter().map(|e| Dim::from(*e)));
        TensorType::new(DType::F64, shape)
    };
    let f = build(&[batch(&[5]), f64s(&[5, 4])], |x| {
        vec![vmap(&x[0], |v| grad(v, |v| v.dot(&x[1]).softmax(0).square().sum()))]
    });
    assert_eq!(*f.output_type(0), batch(&[5]));
    let mut random = Random(6);
    let w = random.literal(&f64s(&[5, 4]));
    let examples: Vec<Literal> = (0..3).map(|_| random.literal(&f64s(&[5]))).collect();
    let one = build(&[f64s(&[5]), f64s(&[5, 4])], |x| {
        vec![grad(&x[0], |v| v.dot(&x[1]).softmax(0).square().sum())]
    });
    let wanted: Vec<Literal> =
        examples.iter().map(|e| run(&one, &[e.clone(), w.clone()]).remove(0)).collect();
    let bound = f.bind(&Binding::new().with("B", 3)).unwrap();
    assert_eq!(run(&bound, &[stack(&examples, 0), w])[0], stack(&wanted, 0));
}

/// In the gradient of a filter, images and cotangents are batched: one group for each of B
/// examples.
#[test]
fn filters_have_a_gradient_for_each_of_a_variable_number_of_examples() {
    let image = |batch: &[Dim]| {
        let rest = [2i64, 6, 3].map(Dim::constant);
        TensorType::new(DType::F64, batch.iter().cloned().chain(rest))
    };
    let filter = f64s(&[3, 3, 4]);
    let conv = ConvGeneralDilated { stride: vec![2], ..ConvGeneralDilated::new(1) };
    let gradient =
        |x: &Tensor, w: &Tensor| grad(w, |w| Tensor::apply(conv.clone(), &[x, w]).sin().sum());
    let f = build(&[image(&[Dim::variable("B")]), filter.clone()], |x| {
        vec![vmap(&x[0], |v| gradient(v, &x[1]))]
    });
    let one = build(&[image(&[]), filter.clone()], |x| vec![gradient(&x[0], &x[1])]);
    let mut random = Random(8);
    let w = random.literal(&filter);
    let images: Vec<Literal> = (0..3).map(|_| random.literal(&image(&[]))).collect();
    let wanted: Vec<Literal> =
        images.iter().map(|x| run(&one, &[x.clone(), w.clone()]).remove(0)).collect();
    let bound = f.bind(&Binding::new().with("B", 3)).unwrap();
    assert_eq!(run(&bound, &[stack(&images, 0), w])[0], stack(&wanted, 0));
}

/// B examples of N images give one convolution of B·N images.
#[test]
fn an_extent_may_be_a_product_of_variables() {
    let images = TensorType::new(
        DType::F64,
        ["B", "N"].map(Dim::variable).into_iter().chain([6i64, 3].map(Dim::constant)),
    );
    let filter = f64s(&[3, 3, 4]);
    let layer = |x: &Tensor, w: &Tensor| Tensor::apply(ConvGeneralDilated::new(1), &[x, w]);
    let f = build(&[images, filter.clone()], |x| vec![vmap(&x[0], |v| layer(v, &x[1]))]);
    let one = build(&[f64s(&[2, 6, 3]), filter.clone()], |x| vec![layer(&x[0], &x[1])]);
    let mut random = Random(8);
    let w = random.literal(&filter);
    let examples: Vec<Literal> = (0..3).map(|_| random.literal(&f64s(&[2, 6, 3]))).collect();
    let wanted: Vec<Literal> =
        examples.iter().map(|x| run(&one, &[x.clone(), w.clone()]).remove(0)).collect();
    let bound = f.bind(&Binding::new().with("B", 3).with("N", 2)).unwrap();
    assert_eq!(run(&bound, &[stack(&examples, 0), w])[0], stack(&wanted, 0));
}

/// Examples share the argument that is not mapped. Its cotangent is the sum of the backward half's
/// results over the examples.
#[test]
fn custom_rules_survive_a_map() {
    let types = [f64s(&[4, 3]), f64s(&[3])];
    // For each example, the backward half doubles the cotangent of x, and clips the cotangent of w.
    let layer = |x: &Tensor, w: &Tensor| {
        custom_vjp(
            &(x.clone(), w.clone()),
            |(x, w)| ((x * w).sum(), (x.clone(), w.clone())),
            |(x, w): &(Tensor, Tensor), ct: &Tensor| {
                let spread = |t: &Tensor| t * ct.broadcast_to(t.shape());
                (spread(w) * 2.0, spread(x).clamp(-0.5, 0.5))
            },
        )
    };
    let f = build(&types, |x| {
        let (dx, dw) = grad(&(x[0].clone(), x[1].clone()), |(x, w)| vmap(x, |e| layer(e, w)).sum());
        let each = vmap(&x[0], |e| grad(&(e.clone(), x[1].clone()), |(e, w)| layer(e, w)));
        vec![dx, dw, each.0, each.1.sum_axes(&[0])]
    });
    let mut random = Random(9);
    let inputs: Vec<Literal> = types.iter().map(|ty| random.literal(ty)).collect();
    let results = run(&f, &inputs);
    assert_eq!(results[0], results[2]);
    assert_eq!(results[1], results[3]);
    let (x, w) = (flat(&inputs[..1]), flat(&inputs[1..]));
    assert!(flat(&results[..1]).iter().zip(w.iter().cycle()).all(|(d, w)| *d == 2.0 * w));
    let clipped = |k: usize| (0..4).map(|n| x[3 * n + k].clamp(-0.5, 0.5)).sum::<f64>();
    assert_close(
        &flat(&results[1..2]),
        &[clipped(0), clipped(1), clipped(2)],
        1e-15,
        "clipped for each example",
    );
}

/// A residual that all examples share is kept once.
#[test]
fn residuals_that_are_shared_stay_so() {
    let f = build(&[f64s(&[8, 5]), f64s(&[5, 4])], |x| {
        let layer = |v: &Tensor| {
            custom_vjp(v, |v| (v.dot(&x[1]), ()), |(), ct: &Tensor| ct.dot(&x[1].permute(&[1, 0])))
        };
        vec![vmap(&x[0], |v| grad(v, |v| layer(v).square().sum()))]
    });
    assert!(f.body.values.iter().all(|(_, ty)| *ty != f64s(&[8, 5, 4])), "{f:?}");
}

#[test]
fn a_batch_of_no_examples_has_results_of_none() {
    let f = build(&[f64s(&[0, 3, 2])], |x| vec![vmap(&x[0], |v| v.sum_axes(&[0]).exp())]);
    assert_eq!(*f.output_type(0), f64s(&[0, 2]));
    assert!(run(&f, &[Literal::from_vec(&[0, 3, 2], Vec::<f64>::new()).unwrap()])[0].is_empty());
}

/// Equations that a map emits have the location of the closure's equation.
#[test]
fn locations_name_the_line_of_the_closure() {
    let line = line!() + 1;
    let f = build(&[f64s(&[3])], |x| vec![vmap(&x[0], |v| v.exp())]);
    let exp = f.body.equations.iter().find(|e| matches!(e.op, Op::Unary(_))).unwrap();
    let text = f.locations.describe(exp.location);
    assert!(
        text.starts_with("vmap(exp) of") && text.contains(&format!("closures.rs:{line}")),
        "{text}"
    );
}

#[test]
fn examples_of_different_number_are_an_error_with_both_places() {
    let e =
        error(&[f64s(&[3]), f64s(&[4])], |x| vmap(&(x[0].clone(), x[1].clone()), |(a, b)| a * b));
    let text = e.to_string();
    assert!(text.contains("`0` has 3 examples, `1` has 4"), "{text}");
    assert_eq!(text.matches("closures.rs:").count(), 3, "{text}");
}

#[test]
fn a_scalar_has_no_axis_to_map_over() {
    let text = error(&[f64s(&[])], |x| vmap(&x[0], |v| v.exp())).to_string();
    assert!(
        text.contains("is a scalar: it has no axis to map over") && text.contains("help:"),
        "{text}"
    );
}

#[test]
fn an_axis_out_of_range_is_named() {
    let text = error(&[f64s(&[2, 3])], |x| vmap_axes(&x[0], 2, 0, |v| v.exp())).to_string();
    assert!(text.contains("has no axis 2") && text.contains("its axes are 0 to 1"), "{text}");
    let text = error(&[f64s(&[2, 3])], |x| vmap_axes(&x[0], 0, 2, |v| v.exp())).to_string();
    assert!(text.contains("cannot lie along axis 2"), "{text}");
}

#[test]
fn nothing_mapped_and_wrong_numbers_of_axes_are_errors() {
    let text = error(&[f64s(&[2])], |x| vmap_axes(&x[0], [None], 0, |v| v.exp())).to_string();
    assert!(text.contains("nothing is mapped"), "{text}");
    let text =
        error(&[f64s(&[2])], |x| vmap_axes(&x[0], [Some(0), None], 0, |v| v.exp())).to_string();
    assert!(text.contains("2 axes for 1 tensors"), "{text}");
    let text = error(&[f64s(&[2])], |x| vmap_axes(&x[0], 0, [None], |v| v.exp())).to_string();
    assert!(text.contains("differs between them"), "{text}");
}

/// An error in the closure has the same text as without a map.
#[test]
fn errors_of_the_closure_are_its_own() {
    let text = error(&[f64s(&[2, 3]), f64s(&[4])], |x| vmap(&x[0], |v| v * &x[1])).to_string();
    assert!(text.contains("operands have types f64[3] and f64[4]"), "{text}");
}
