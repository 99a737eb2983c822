//! D: modular differentiation with higher-order functions.

use super::{at, build, constant, count};
use wengert::core::graph::Function;
use wengert::core::interpret;
use wengert::prelude::*;

#[test]
fn d1_a_function_is_a_bundle_of_value_and_two_linear_maps() {
    let results = at([3.0, 2.0, 10.0], |v| {
        let (y, d) = linearize(&v[0], |x: &Tensor| x * x);
        vec![y, d.push_forward(&v[1]), d.pull_back(&v[2])]
    });
    assert_eq!(results, [9.0, 12.0, 60.0]);
    // Linearity is checked.
    let error = FunctionBuilder::build("f", |b| {
        let x = b.input("x", f64(""));
        b.output("y", transpose(&x, |x: &Tensor| x * x)(&x));
    });
    assert!(error.unwrap_err().to_string().contains("`mul` is not linear here"));
}

#[test]
fn d2_pullbacks_compose_in_reverse_and_duplication_adds() {
    let results = at([0.5, 2.0], |v| {
        let (y, f) = vjp(&v[0], |x: &Tensor| x.tanh());
        let (_, g) = vjp(&y, |y: &Tensor| y.exp());
        let (_, both) = vjp(&v[0], |x: &Tensor| x.tanh().exp());
        let (_, copy) = vjp(&v[0], |x: &Tensor| (x.clone(), x.clone()));
        vec![f(&g(&v[1])) - both(&v[1]), copy(&(v[0].clone(), v[1].clone()))]
    });
    assert_eq!(results, [0.0, 2.5]);
}

#[test]
fn d3_the_pullback_of_a_partial_application_returns_the_cotangent_of_its_environment() {
    let results = at([3.0, 5.0, 2.0], |v| {
        // A closure that captures `a` is a pair of `a` and code. The pair is differentiable.
        let environment = v[0].clone();
        let apply = |a: &Tensor, x: &Tensor| a * x;
        let (_, pullback) =
            vjp(&(environment, v[1].clone()), |(a, x): &(Tensor, Tensor)| apply(a, x));
        let (a, x) = pullback(&v[2]);
        vec![a, x]
    });
    assert_eq!(results, [10.0, 6.0]);
    // The same with the closure as a value, by partial application to the first argument.
    let results = at([3.0, 5.0, 2.0], |v| {
        let product = trace(&(constant(0.0), constant(0.0)), |(a, x)| a * x).unwrap();
        let point = (product.partial(&v[0]).unwrap(), v[1].clone());
        let (_, pullback) =
            vjp(&point, |(times_a, x): &(WengertList<Tensor, Tensor>, Tensor)| times_a.call(x));
        let (environment, x) = pullback(&v[2]);
        assert_eq!(environment.len(), 1);
        vec![environment[0].clone(), x]
    });
    assert_eq!(results, [10.0, 6.0]);
}

#[test]
fn d4_functions_as_arguments() {
    let map = |f: &dyn Fn(&Tensor) -> Tensor, xs: &[Tensor]| xs.iter().map(f).collect::<Vec<_>>();
    let results = at([2.0, 3.0, 5.0], |v| {
        let point = (v[0].clone(), v[1..].to_vec());
        let (scale, xs) = grad(&point, |(scale, xs): &(Tensor, Vec<Tensor>)| {
            let squares = map(&|x| scale * x * x, xs);
            &squares[0] + &squares[1]
        });
        vec![scale, xs[0].clone(), xs[1].clone()]
    });
    assert_eq!(results, [34.0, 12.0, 20.0]);
}

#[test]
fn d5_functions_as_results_applied_later_and_more_than_once() {
    let multiply = |a: &Tensor| {
        let a = a.clone();
        move |x: &Tensor| x * &a
    };
    // a²x: by a, 2ax.
    assert_eq!(
        at([3.0, 5.0], |v| vec![grad(&v[0], |a: &Tensor| {
            let f = multiply(a);
            f(&f(&v[1]))
        })]),
        [30.0]
    );
    // Functions are stored in a model and chosen at run time.
    #[derive(Differentiable)]
    #[differentiable(synthesize = NetTangent)]
    struct Net {
        activation: WengertList<Tensor, Tensor>,
        weight: Tensor,
    }
    impl Net {
        fn call(&self, x: &Tensor) -> Tensor {
            self.activation.call(&(x * &self.weight))
        }
    }
    let slopes = |chosen: i32| {
        at([2.0, 3.0, 5.0], |v| {
            let square = trace(&constant(0.0), |x| x * x).unwrap();
            let scale = trace(&constant(0.0), |x| x * &v[0]).unwrap();
            let activation =
                WengertList::choose(&Tensor::constant(chosen), &[square, scale]).unwrap();
            let net = Net { activation, weight: v[1].clone() };
            let slope = grad(&net, |net| net.call(&net.call(&v[2])));
            vec![slope.activation.last().unwrap().clone(), slope.weight]
        })
    };
    // x ↦ (w·(w·x)²)² = w⁶x⁴, by w: 6w⁵x⁴. x ↦ a²w²x, by a: 2aw²x, by w: 2a²wx.
    assert_eq!(slopes(0), [0.0, 6.0 * 243.0 * 625.0]);
    assert_eq!(slopes(1), [2.0 * 2.0 * 9.0 * 5.0, 2.0 * 4.0 * 3.0 * 5.0]);
}

#[test]
fn d6_a_pullback_does_not_compute_the_value_again() {
    let f = build(2, |v| {
        let (y, pullback) = vjp(&v[0], |x: &Tensor| x.exp() * &v[1]);
        vec![y, pullback(&v[1]), pullback(&v[0])]
    });
    assert_eq!(count(&f, "exp"), 1);
}

#[test]
fn d7_laws_of_abstraction_and_application() {
    let f = |x: &Tensor| x.tanh() * x;
    let bundle = |v: &[Tensor], f: &dyn Fn(&Tensor) -> Tensor| {
        let (y, d) = linearize(&v[0], f);
        vec![y, d.push_forward(&v[1]), d.pull_back(&v[1])]
    };
    let plain = at([0.7, 2.0], |v| bundle(v, &f));
    // η: x ↦ f(x) is f. β: (g ↦ x ↦ g(x)) f is f.
    let eta = at([0.7, 2.0], |v| bundle(v, &|x| f(x)));
    let apply = |g: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| g(x);
    let beta = at([0.7, 2.0], |v| bundle(v, &|x| apply(&f, x)));
    // Projections of a pair are its components.
    let pair = at([0.7, 2.0], |v| bundle(v, &|x| (f(x), x.exp()).0));
    assert_eq!((&eta, &beta, &pair), (&plain, &plain, &plain));
}

#[test]
fn d8_each_function_is_differentiated_once() {
    let layer =
        trace(&constant(0.0), |x| (x.tanh() + x.square()).sin()).unwrap().named("layer").unwrap();
    let of = |calls: usize| {
        build(1, |v| vec![grad(&v[0], |x| (0..calls).fold(x.clone(), |x, _| layer.call(&x)))])
    };
    let names =
        |f: &Function| f.body.callees().iter().map(|c| c.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&of(1)), ["layer.forward", "layer.pullback"]);
    assert_eq!(names(&of(9)), ["layer.forward", "layer.pullback"]);
    assert_eq!(count(&of(9), "call"), 18);
    assert_eq!(count(&of(9), "tanh"), 0);
}

/// Programs other than plain networks. The examples contain whole programs of these kinds.
#[test]
fn d9_programs_that_are_no_plain_networks() {
    // Dynamic programming: the log-partition of a chain of three variables with two states. Its
    // gradient gives the marginals.
    let f = FunctionBuilder::build("f", |b| {
        let (unary, pair) = (b.input("unary", f64("3,2")), b.input("pair", f64("2,2")));
        let partition = |unary: &Tensor| {
            let first = unary.slice_axis(0, 0, 1).reshape([2usize]);
            let step = |alpha: &Tensor, u: &Tensor| {
                (alpha.broadcast_in_dim(vec![2.into(), 2.into()], &[0]) + &pair).logsumexp(0) + u
            };
            control::fold(&first, &unary.slice_axis(0, 1, 3), step).logsumexp(0)
        };
        b.output("marginals", grad(&unary, partition));
    })
    .unwrap();
    let (u, p) = ([0.3, -0.2, 0.5, 0.1, -0.4, 0.7], [0.2, -0.1, 0.4, 0.3]);
    let inputs = [
        Literal::from_vec(&[3, 2], u.to_vec()).unwrap(),
        Literal::from_vec(&[2, 2], p.to_vec()).unwrap(),
    ];
    let marginals = interpret::run(&f, &inputs).unwrap().remove(0);
    let (mut total, mut of) = (0.0, [0.0f64; 6]);
    for n in 0..8usize {
        let y = [n & 1, n >> 1 & 1, n >> 2];
        let score = (0..3).map(|i| u[2 * i + y[i]]).sum::<f64>()
            + (0..2).map(|i| p[2 * y[i] + y[i + 1]]).sum::<f64>();
        total += score.exp();
        (0..3).for_each(|i| of[2 * i + y[i]] += score.exp());
    }
    for (found, weight) in marginals.scalars().zip(of) {
        assert!((found.to_f64() - weight / total).abs() < 1e-14);
    }
    // An optimiser: the derivative of the point after ten steps of descent, by their rate. On x²/2
    // that point is (1 − r)¹⁰.
    let slope = at([0.1], |v| {
        vec![grad(&v[0], |rate| {
            control::fori(10i64, &constant(1.0), |_, x| x - rate * grad(x, |x| x.square() * 0.5))
        })]
    });
    assert!((slope[0] + 10.0 * 0.9f64.powi(9)).abs() < 1e-14, "{slope:?}");
    // Newton's method for √a until it converges. The number of steps depends on the data.
    let root = at([2.0], |v| {
        vec![grad(&v[0], |a| {
            let far = |x: &Tensor| (x.square() - a).abs().gt(1e-13);
            control::while_at_most(50i64, &constant(1.0), far, |x| (x + a / x) * 0.5)
        })]
    });
    assert!((root[0] - 0.5 / 2f64.sqrt()).abs() < 1e-9, "{root:?}");
}
