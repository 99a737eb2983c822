//! A: Swift for TensorFlow, differentiation in the compiler.

use super::{Layer, at, build, constant, count, layer, try_build};
use wengert::operators::opaque;
use wengert::prelude::*;

#[test]
fn a1_gradient_with_respect_to_all_or_chosen_parameters() {
    let f = |x: &Tensor, y: &Tensor| x * x * y;
    let all = at([3.0, 5.0], |v| {
        let (dx, dy) = grad(&(v[0].clone(), v[1].clone()), |(x, y): &(Tensor, Tensor)| f(x, y));
        vec![dx, dy]
    });
    assert_eq!(all, [30.0, 9.0]);
    assert_eq!(at([3.0, 5.0], |v| vec![grad(&v[1], |y: &Tensor| f(&v[0], y))]), [9.0]);
}

#[test]
fn a2_value_and_gradient_together() {
    let both = at([3.0], |v| {
        let (value, gradient) = value_and_grad(&v[0], |x: &Tensor| x * x);
        vec![value, gradient]
    });
    assert_eq!(both, [9.0, 6.0]);
}

#[test]
fn a3_the_canonical_gradient_keeps_the_result_and_takes_a_seed() {
    let seeded = at([3.0, 10.0], |v| {
        let (value, pullback) = vjp(&v[0], |x: &Tensor| x * x);
        vec![value, pullback(&v[1]), pullback(&constant(1.0)), grad(&v[0], |x: &Tensor| x * x)]
    });
    assert_eq!(seeded, [9.0, 60.0, 6.0, 6.0]);
}

#[test]
fn a4_the_adjoint_consumes_a_typed_structure_of_what_the_primal_has_kept() {
    build(2, |v| {
        let (y, differential) = linearize(&v[0], |x: &Tensor| x.tanh() * &v[1]);
        let linear = differential.linear().unwrap();
        // Two numbers are stored: the slope of tanh and the other factor. The linear program is
        // closed over its inputs.
        let types: Vec<String> = linear.residuals.iter().map(|t| t.ty().to_string()).collect();
        assert_eq!(types, ["f64[]", "f64[]"]);
        assert_eq!(linear.body.inputs.len(), 1 + linear.residuals.len());
        assert_eq!(linear.body.equations.len(), 2);
        vec![y]
    });
}

/// The adjoint in Swift's example, computed from the input, the result and the seed.
#[test]
fn a5_a_custom_adjoint_of_a_primitive_from_input_result_and_seed() {
    let tanh = |x: &Tensor| {
        custom_vjp(
            x,
            |x| {
                let y = x.tanh();
                (y.clone(), (x.clone(), y))
            },
            |(x, y): &(Tensor, Tensor), seed: &Tensor| seed * (1.0 - y * y) + x * 0.0,
        )
    };
    let x = 0.4f64;
    let exact = 1.0 - x.tanh() * x.tanh();
    let [value, first, second] =
        at([x], |v| vec![tanh(&v[0]), grad(&v[0], tanh), grad(&v[0], |x| grad(x, tanh))])[..]
    else {
        panic!("three results")
    };
    assert!((value - x.tanh()).abs() < 1e-15 && (first - exact).abs() < 1e-15);
    assert!((second + 2.0 * x.tanh() * exact).abs() < 1e-15);
}

#[test]
fn a6_what_is_kept_is_the_choice_of_the_rule() {
    // d tanh = 1 − y²: the result is stored, and tanh is not recomputed.
    let f = build(1, |v| vec![grad(&v[0], |x: &Tensor| x.tanh())]);
    assert_eq!(count(&f, "tanh"), 1);
}

/// A custom primal chooses its residuals. For |x|·x the only residual is a sign.
#[test]
fn a6_a_custom_primal_with_checkpoints_of_ones_choice() {
    let f = |x: &Tensor| {
        custom_vjp(x, |x| (x.abs(), x.sign()), |sign: &Tensor, seed: &Tensor| seed * sign)
    };
    assert_eq!(at([-3.0], |v| vec![f(&v[0]), grad(&v[0], f)]), [3.0, -1.0]);
    // Without differentiation nothing is stored.
    let function = build(1, |v| vec![f(&v[0])]);
    assert_eq!((function.body.equations.len(), count(&function, "sign")), (1, 0));
}

#[test]
fn a7_with_respect_to_self_and_chosen_arguments() {
    // w(wx + b) + b: by w 2wx + b, by b w + 1, by x w².
    let results = at([3.0, 5.0, 7.0, 11.0], |v| {
        let point = (layer(v, 2), v[2].clone());
        let (model, x) = grad(&point, |(model, x): &(Layer, Tensor)| model.call(x) + &v[3]);
        assert_eq!(model.steps, 2, "what has no derivative is carried along");
        vec![model.weight, model.bias, x]
    });
    assert_eq!(results, [2.0 * 3.0 * 7.0 + 5.0, 4.0, 9.0]);
}

#[derive(Differentiable)]
enum Tree {
    Leaf(Tensor),
    Node(Box<Tree>, Box<Tree>),
}

impl Tree {
    fn product(&self) -> Tensor {
        match self {
            Tree::Leaf(x) => x.clone(),
            Tree::Node(left, right) => left.product() * right.product(),
        }
    }
}

#[test]
fn a8_any_type_that_is_a_vector_space_such_as_a_tree() {
    let results = at([2.0, 3.0, 5.0], |v| {
        let leaf = |i: usize| Box::new(Tree::Leaf(v[i].clone()));
        let tree = Tree::Node(leaf(0), Box::new(Tree::Node(leaf(1), leaf(2))));
        // Two uses: their cotangents are added leaf by leaf.
        let gradient = grad(&tree, |t: &Tree| t.product() + t.product());
        let zero = tree.zero_tangent();
        [gradient, zero].iter().flat_map(|t| t.tensors().into_iter().map(|(_, x)| x)).collect()
    });
    assert_eq!(results, [30.0, 20.0, 12.0, 0.0, 0.0, 0.0]);
    // Adding two trees adds them node by node, and scaling scales every leaf.
    let results = at([2.0, 3.0, 5.0], |v| {
        let leaf = |i: usize| Box::new(Tree::Leaf(v[i].clone()));
        let tree = |i, j| Tree::Node(leaf(i), leaf(j));
        let sum = tree(0, 1).plus(&tree(1, 2).scaled(10.0));
        // A step of gradient descent on the tree.
        let gradient = grad(&sum, |t: &Tree| t.product());
        let moved = sum.move_along(&gradient.scaled(-1.0));
        [sum, moved].iter().flat_map(|t| t.tensors().into_iter().map(|(_, x)| x)).collect()
    });
    assert_eq!(results, [32.0, 53.0, 32.0 - 53.0, 53.0 - 32.0]);
}

#[test]
fn a9_a_precise_error_where_something_cannot_be_differentiated() {
    let error = FunctionBuilder::build("f", |b| {
        let x = b.input("x", i32(""));
        b.output("y", grad(&x, |x: &Tensor| x.convert(DType::F32)));
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("no floats to differentiate") && text.contains("swift.rs:"), "{text}");
}

#[test]
fn a9_what_is_opaque_is_an_error_with_both_places() {
    let error = try_build(1, |v| vec![grad(&v[0], |x| opaque("table", x, |x| x.floor()) * 2.0)])
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot differentiate through `@table`: it is opaque"), "{error}");
    assert!(error.contains("custom_vjp") && error.contains("stop_gradient"), "{error}");
    assert_eq!(error.matches("swift.rs:").count(), 2, "{error}");
    // `stop_gradient` makes the opaque op harmless.
    let cut = |x: &Tensor| opaque("table", &x.stop_gradient(), |x| x.floor()) * x;
    assert_eq!(at([2.5], |v| vec![grad(&v[0], cut)]), [2.0]);
}

/// The adjoint is a closure in the primal's scope and can use the values computed there.
#[test]
fn a12_inline_adjoints_that_see_the_values_around_them() {
    let [value, gradient] = at([3.0, 2.0], |v| {
        let scale = v[1].exp();
        let f = |x: &Tensor| {
            custom_vjp(x, |x| (x * &scale, ()), |(), seed: &Tensor| seed * &scale * 10.0)
        };
        vec![f(&v[0]), grad(&v[0], f)]
    })[..] else {
        panic!("two results")
    };
    assert!(
        (value - 3.0 * 2f64.exp()).abs() < 1e-12 && (gradient - 10.0 * 2f64.exp()).abs() < 1e-12
    );
    let function = build(2, |v| {
        let scale = v[1].exp();
        vec![grad(&v[0], |x| custom_vjp(x, |x| (x * &scale, ()), |(), ct: &Tensor| ct * &scale))]
    });
    assert_eq!(count(&function, "exp"), 1, "the value is not computed again");
}

#[test]
fn a13_with_respect_to_the_properties_of_a_model() {
    let results = at([3.0, 5.0, 7.0], |v| {
        let gradient: Layer = grad(&layer(v, 1), |m: &Layer| m.call(&v[2]));
        vec![gradient.weight, gradient.bias]
    });
    assert_eq!(results, [7.0, 1.0]);
}

/// A loop whose steps differ. Its tape holds the residuals of the steps, and has a type.
#[test]
fn a10_tapes_are_where_control_flow_is_and_are_typed() {
    let f = |x: &Tensor| {
        control::fori(5usize, x, |i, y| {
            let even = i.and(Tensor::constant(1i32)).eq(Tensor::constant(0i32));
            control::cond(&even, || y.sin(), || y * x)
        })
    };
    let (sin, cos) = (f64::sin, f64::cos);
    let x = 0.7;
    // sin, times x, sin, times x, sin, each with its derivative.
    let mut wanted = (x, 1.0);
    for i in 0..5 {
        wanted = match i % 2 {
            0 => (sin(wanted.0), cos(wanted.0) * wanted.1),
            _ => (wanted.0 * x, wanted.1 * x + wanted.0),
        };
    }
    let found = at([x], |v| vec![f(&v[0]), grad(&v[0], f), jvp(&v[0], &constant(1.0), f).1]);
    assert_eq!(found[0], wanted.0);
    assert!(found[1..].iter().all(|d| (d - wanted.1).abs() < 1e-15), "{found:?}, not {wanted:?}");
    // One stack of five numbers for each residual of a step, and a stack of the branches taken.
    // Nothing else is stacked.
    let function = build(1, |v| vec![grad(&v[0], f)]);
    let stacks: Vec<String> = function
        .body
        .equations
        .iter()
        .filter(|e| e.op.name() == "scan")
        .flat_map(|e| function.body.types(&e.results))
        .filter(|ty| ty.rank() > 0)
        .map(|ty| ty.to_string())
        .collect();
    assert!(stacks.iter().all(|ty| ["f64[5]", "bool[5]"].contains(&ty.as_str())), "{stacks:?}");
    assert!((2..=4).contains(&stacks.len()), "{stacks:?}");
    // A straight-line program has no loop.
    assert_eq!(count(&build(1, |v| vec![grad(&v[0], |x: &Tensor| x.sin().exp())]), "scan"), 0);
}

/// A gradient is clipped at every step of an unrolled recurrence, so it does not explode.
#[test]
fn a14_the_gradient_is_clipped_inside_an_unrolled_recurrence() {
    let recurrence = |clip: bool| {
        move |w: &Tensor| {
            (0..50).fold(Tensor::constant(1.0f64), |h, _| {
                let h = &h * w;
                if clip { with_derivative(&h, |ct| ct.clamp(-1.0, 1.0)) } else { h }
            })
        }
    };
    let [exploding, clipped] =
        at([2.0], |v| vec![grad(&v[0], recurrence(false)), grad(&v[0], recurrence(true))])[..]
    else {
        panic!("two results")
    };
    assert_eq!(exploding, 50.0 * 2f64.powi(49));
    // Each step has the cotangent 1 (2 without clipping), times the state before it.
    assert_eq!(clipped, (0..50).map(|k| 2f64.powi(k)).sum::<f64>());
    // After compilation only the clipping remains.
    let mut program = Program::new();
    program
        .function("f", |f| {
            let w = f.input("w", f64(""));
            f.output("d", grad(&w, recurrence(true)));
        })
        .unwrap();
    for device in [Device::Cpu, Device::Emulator] {
        let mut session = Session::open(device).unwrap();
        let d = session
            .compile(&program, "f", bind!())
            .unwrap()
            .run(&[("w", Literal::from(2.0f64))])
            .unwrap();
        assert_eq!(d.scalar("d").unwrap(), clipped, "{device}");
    }
}

/// Checkpoints chosen by the user, around a function or in a loop. The schedule of the loop is
/// binomial.
#[test]
fn a15_checkpoints_are_the_users_choice() {
    let layer = |x: &Tensor| (x * 3.0).sin().exp();
    let kept = |x: &Tensor| layer(&layer(x));
    let checkpointed = |x: &Tensor| {
        let once = |x: &Tensor| checkpoint(Checkpoint::nothing(), x, layer);
        once(&once(x))
    };
    let looped = |x: &Tensor| {
        let init = (Tensor::constant(0i32), x.clone());
        control::while_checkpointed(
            1,
            &init,
            |c| c.0.lt(Tensor::constant(2i32)),
            |c| (&c.0 + 1i32, layer(&c.1)),
        )
        .1
    };
    let slopes =
        at([0.4], |v| vec![grad(&v[0], kept), grad(&v[0], checkpointed), grad(&v[0], looped)]);
    assert!(slopes[1..].iter().all(|s| *s == slopes[0]), "{slopes:?}");
    // The residual of a checkpointed layer is its argument.
    let residuals = |f: &dyn Fn(&Tensor) -> Tensor| {
        let mut count = 0;
        build(1, |v| {
            let (value, differential) = linearize(&v[0], f);
            count = differential.linear().unwrap().residuals.len();
            vec![value]
        });
        count
    };
    assert_eq!(residuals(&checkpointed), 2);
    assert!(residuals(&kept) > 2);
}

#[test]
fn a16_higher_orders_without_confusion_of_perturbations_or_sensitivities() {
    // D(x ↦ x · D(y ↦ x + y)(1))(1) = 1, and D(x ↦ x · D(y ↦ x · y²)(x))(2) = D(2x³)(2) = 24.
    assert_eq!(
        at([1.0], |v| vec![grad(&v[0], |x: &Tensor| x * grad(&constant(1.0), |y: &Tensor| x + y))]),
        [1.0]
    );
    assert_eq!(
        at([2.0], |v| vec![grad(&v[0], |x: &Tensor| x * grad(x, |y: &Tensor| x * y * y))]),
        [24.0]
    );
    // Sensitivities: the pullback of an outer function within the differentiated inner one.
    let nested = at([2.0], |v| {
        let pullback = vjp(&v[0], |x: &Tensor| x * x * x).1;
        vec![grad(&v[0], |s: &Tensor| pullback(s) * s)]
    });
    assert_eq!(nested, [2.0 * 12.0 * 2.0]);
}

#[test]
fn a17_forward_over_reverse_makes_hessian_vector_products() {
    // f = x²y: H = [[2y, 2x], [2x, 0]].
    let results = at([3.0, 5.0, 1.0, 10.0], |v| {
        let (point, along) = (v[..2].to_vec(), v[2..].to_vec());
        let f = |x: &Vec<Tensor>| &x[0] * &x[0] * &x[1];
        jvp(&point, &along, |x: &Vec<Tensor>| grad(x, f)).1
    });
    assert_eq!(results, [2.0 * 5.0 + 6.0 * 10.0, 6.0]);
}
