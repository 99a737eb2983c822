//! Implicit functions against closed forms: values, both modes and all second orders; residuals and
//! executed loops; vmap; mistakes.

use wengert_compiler::autodiff::implicit::{TransposeSolve, custom_linear_solve, custom_root};
use wengert_compiler::autodiff::operators::{grad, hessian, jvp, value_and_grad, vjp};
use wengert_compiler::pipeline::{Options, compile_kernels};
use wengert_compiler::vmap::operators::vmap;
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{fori, while_loop};
use wengert_core::graph::{Body, Function, Program, parse_program};
use wengert_core::{Diagnostic, Literal, Target, Tensor};
use wengert_testing::derivative::*;

type Map<'a> = &'a dyn Fn(&Tensor) -> Tensor;
type Pair = (Tensor, Tensor);

/// Richardson's iteration x ← x + (b − A·x)/4 until it converges. It is a `while` without a bound,
/// which has no reverse mode.
fn iterate(map: Map<'_>, b: &Tensor) -> Tensor {
    let off = |x: &Tensor| b - map(x);
    let init = (b.zeros_like(), Tensor::constant(0i32));
    let goes_on =
        |(x, n): &(Tensor, Tensor)| off(x).abs().max_axes(&[0]).gt(1e-15).and(n.lt(200i32));
    while_loop(&init, goes_on, |(x, n)| (x + off(x) * 0.25, n + 1i32)).0
}

/// The matrix [[4, p], [q, 4 + p·q]] of parameters, which is not symmetric.
fn matrix(p: &Tensor) -> impl Fn(&Tensor) -> Tensor {
    let (u, v) = (element(p, 0), element(p, 1));
    move |x| {
        let (a, b) = (element(x, 0), element(x, 1));
        pair(&(&a * 4.0 + &u * &b), &(&v * &a + (&u * &v + 4.0) * &b))
    }
}

fn element(x: &Tensor, i: usize) -> Tensor {
    x.slice_axis(0, i, i + 1).reshape(Vec::<usize>::new())
}

fn pair(a: &Tensor, b: &Tensor) -> Tensor {
    Tensor::concatenate(&[&a.reshape([1usize]), &b.reshape([1usize])], 0)
}

/// The solution by the solver.
fn implicit(p: &Tensor, b: &Tensor) -> Tensor {
    custom_linear_solve(matrix(p), b, iterate, TransposeSolve::Same)
}

/// The solution by Cramer's rule.
fn explicit(p: &Tensor, b: &Tensor) -> Tensor {
    let (u, v) = (element(p, 0), element(p, 1));
    let (c, d) = (element(b, 0), element(b, 1));
    let w = &u * &v + 4.0;
    let det = &w * 4.0 - &u * &v;
    pair(&((&w * &c - &u * &d) / &det), &((&d * 4.0 - &v * &c) / &det))
}

type Solution = fn(&Tensor, &Tensor) -> Tensor;

/// A scalar that depends on the parameters, the right-hand side and the solution.
fn loss(f: Solution) -> impl Fn(&Pair) -> Tensor {
    move |(p, b)| (f(&p.sin(), &(b * p)).square() * b.cos()).sum()
}

const P: [f64; 2] = [0.7, -0.4];
const B: [f64; 2] = [1.3, 0.8];

fn point() -> Vec<Literal> {
    let vector = |v: [f64; 2]| Literal::from_vec(&[2], v.to_vec()).unwrap();
    vec![vector(P), vector(B)]
}

fn evaluate(f: impl FnOnce(&Pair) -> Vec<Tensor>) -> Vec<f64> {
    let function = build(&[f64s(&[2]), f64s(&[2])], |x| f(&(x[0].clone(), x[1].clone())));
    flat(&run(&function, &point()))
}

fn both(what: &str, of: impl Fn(Solution, &Pair) -> Vec<Tensor>) {
    let wanted = evaluate(|at| of(explicit, at));
    assert_close(&evaluate(|at| of(implicit, at)), &wanted, 1e-12, what);
}

fn direction(at: &Pair) -> Pair {
    (at.0.cos(), at.1.sin())
}

#[test]
fn a_solution_has_the_derivatives_of_its_closed_form() {
    both("value", |f, at| vec![f(&at.0, &at.1)]);
    both("forward", |f, at| vec![jvp(at, &direction(at), |(p, b)| f(p, b)).1]);
    both("reverse", |f, at| {
        let (a, b) = vjp(at, |(p, b)| f(p, b)).1(&at.0);
        vec![a, b]
    });
    let gradient = |f: Solution, at: &Pair| {
        let (a, b) = grad(at, loss(f));
        vec![a, b]
    };
    both("gradient", gradient);
    both("forward over reverse", |f, at| jvp(at, &direction(at), |at| gradient(f, at)).1);
    both("reverse over forward", |f, at| {
        let (a, b) = grad(at, |at| jvp(at, &direction(at), loss(f)).1);
        vec![a, b]
    });
    both("reverse over reverse", |f, at| {
        let (a, b) = grad(at, |at| {
            gradient(f, at).iter().map(|t| t.square().sum()).reduce(|a, b| a + b).unwrap()
        });
        vec![a, b]
    });
    both("forward over forward", |f, at| {
        vec![jvp(at, &direction(at), |at| jvp(at, &direction(at), loss(f)).1).1]
    });
    both("Hessian", |f, at| vec![hessian(&at.0, |p| loss(f)(&(p.clone(), at.1.clone())))]);
    both("third order", |f, at| {
        let second = |at: &Pair| jvp(at, &direction(at), |at| grad(at, loss(f))).1;
        let (a, b) = jvp(at, &direction(at), second).1;
        vec![a, b]
    });
}

#[test]
fn only_the_right_hand_side_or_only_the_map_may_be_differentiated() {
    both("right-hand side", |f, (p, b)| vec![grad(b, |b| f(p, b).square().sum())]);
    both("map", |f, (p, b)| vec![grad(p, |p| f(p, b).square().sum())]);
}

/// The number of equations of an op in a body, including its regions.
fn count(body: &Body, op: &str) -> usize {
    let of = |e: &wengert_core::graph::Equation| {
        usize::from(e.op.name() == op) + e.regions.iter().map(|r| count(r, op)).sum::<usize>()
    };
    body.equations.iter().map(of).sum()
}

/// The ops of a body with their result types, without locations.
fn outline(body: &Body) -> String {
    let of = |e: &wengert_core::graph::Equation| {
        let regions: Vec<String> = e.regions.iter().map(|r| outline(r)).collect();
        format!("{:?} {:?} {:?} {regions:?}", e.op, e.operands, body.types(&e.results))
    };
    body.equations.iter().map(of).collect::<Vec<_>>().join("\n")
}

fn systems(function: &Function) -> usize {
    function.body.equations.iter().filter(|e| e.op.name() == "custom_linear_solve").count()
}

/// The number of loops in the compiled function.
fn loops(function: &Function) -> usize {
    let compiled = compile_kernels(function, &Target::cpu(), &Options::default()).unwrap();
    count(&compiled.function.body, "while")
}

#[test]
fn a_derivative_is_one_system_more_and_no_solver_is_differentiated() {
    let both = [f64s(&[2]), f64s(&[2])];
    let of = |x: &[Tensor]| (x[0].clone(), x[1].clone());
    let value = build(&both, |x| vec![implicit(&x[0], &x[1])]);
    assert_eq!((systems(&value), loops(&value)), (1, 1), "{value}");
    let reverse = build(&both, |x| {
        let (value, (p, b)) = value_and_grad(&of(x), loss(implicit));
        vec![value, p, b]
    });
    assert_eq!((systems(&reverse), loops(&reverse)), (2, 2), "{reverse}");
    let forward = build(&both, |x| vec![jvp(&of(x), &of(x), loss(implicit)).1]);
    assert_eq!((systems(&forward), loops(&forward)), (2, 2), "{forward}");
    // The value, its tangent, the cotangent, and the cotangent's tangent.
    let second = build(&both, |x| {
        let (p, b) = jvp(&of(x), &of(x), |at| grad(at, loss(implicit))).1;
        vec![p, b]
    });
    assert_eq!((systems(&second), loops(&second)), (4, 4), "{second}");
    // The forward loop is unchanged: it stacks nothing.
    let find = |f: &Function| {
        let solve = f.body.equations.iter().find(|e| e.op.name() == "custom_linear_solve").unwrap();
        solve.regions.iter().map(|r| outline(r)).collect::<Vec<_>>()
    };
    assert_eq!(find(&value), find(&reverse));
}

#[test]
fn symmetric_systems_are_solved_by_the_same_solver_again() {
    let solve = |p: &Tensor, b: &Tensor| {
        let map = |x: &Tensor| x * 4.0 + p * (p * x).sum();
        custom_linear_solve(map, b, iterate, TransposeSolve::Symmetric)
    };
    // Sherman and Morrison: (4 + p·pᵀ)⁻¹·b = b/4 − p·(p·b)/(16 + 4·p·p).
    let closed = |p: &Tensor, b: &Tensor| {
        let scale = (p * b).sum() / (p.square().sum() * 4.0 + 16.0);
        b * 0.25 - p * scale
    };
    for (what, of) in [
        (
            "gradient",
            &(|f: Solution, at: &Pair| grad(at, loss(f))) as &dyn Fn(Solution, &Pair) -> Pair,
        ),
        ("second order", &|f, at| jvp(at, &direction(at), |at| grad(at, loss(f))).1),
    ] {
        let all = |f: Solution| {
            evaluate(|at| {
                let (a, b) = of(f, at);
                vec![a, b]
            })
        };
        assert_close(&all(solve), &all(closed), 1e-12, what);
    }
}

#[test]
fn systems_of_trees_and_of_another_solver_for_the_transpose() {
    // Block triangular: (u, v) ↦ (2u, w·u + 4v), solved by forward substitution, and by backward
    // substitution for the transpose.
    let solve = |w: &Tensor, b: &Pair| {
        let down = |_: &dyn Fn(&Pair) -> Pair, (c, d): &Pair| {
            let u = c * 0.5;
            (u.clone(), (d - w * &u) * 0.25)
        };
        let up = |_: &dyn Fn(&Pair) -> Pair, (c, d): &Pair| {
            let v = d * 0.25;
            ((c - w * &v) * 0.5, v)
        };
        custom_linear_solve(|(u, v)| (u * 2.0, w * u + v * 4.0), b, down, TransposeSolve::By(&up))
    };
    let closed = |w: &Tensor, (c, d): &Pair| (c * 0.5, (d - w * c * 0.5) * 0.25);
    type Tree = fn(&Tensor, &Pair) -> Pair;
    let all = |f: Tree| {
        evaluate(|(p, b)| {
            let loss = |(p, b): &Pair| {
                let (u, v) = f(p, &(b.clone(), b * p));
                (u.square() * &v + v.sin()).sum()
            };
            let at = (p.clone(), b.clone());
            let (first, second) = grad(&at, loss);
            let (third, fourth) = jvp(&at, &direction(&at), |at| grad(at, loss)).1;
            vec![first, second, third, fourth]
        })
    };
    assert_close(&all(solve), &all(closed), 1e-13, "trees");
}

#[test]
fn a_solution_does_not_depend_on_where_a_solver_begins() {
    // The guess comes from a loop without a bound, which has no reverse mode. The derivative does
    // not need one.
    let f = |p: &Tensor, b: &Tensor| {
        let guess = while_loop(p, |x| x.square().sum().gt(0.01), |x| x * 0.5);
        let solve =
            |map: Map<'_>, b: &Tensor| fori(60usize, &guess, |_, x| x + (b - map(x)) * 0.25);
        custom_linear_solve(matrix(p), b, solve, TransposeSolve::Same)
    };
    let got = evaluate(|(p, b)| vec![grad(p, |p| f(p, b).square().sum())]);
    let wanted = evaluate(|(p, b)| vec![grad(p, |p| explicit(p, b).square().sum())]);
    assert_close(&got, &wanted, 1e-12, "gradient");
}

#[test]
fn every_example_of_a_batch_is_a_system_of_its_own() {
    let rows = [[0.7, -0.4], [0.1, 1.2], [-0.9, -1.0]];
    let vector = |v: [f64; 2]| Literal::from_vec(&[2], v.to_vec()).unwrap();
    let gradient = |p: &Tensor, b: &Tensor| grad(&(p.clone(), b.clone()), loss(implicit));
    let one = build(&[f64s(&[2]), f64s(&[2])], |x| {
        let (p, b) = gradient(&x[0], &x[1]);
        vec![p, b]
    });
    let each: Vec<f64> =
        rows.iter().flat_map(|p| flat(&run(&one, &[vector(*p), vector(B)]))).collect();
    let all = build(&[f64s(&[3, 2]), f64s(&[2])], |x| {
        let (p, b) = vmap(&x[0], |p| gradient(p, &x[1]));
        vec![Tensor::concatenate(&[&p.reshape([3usize, 1, 2]), &b.reshape([3usize, 1, 2])], 1)]
    });
    assert_eq!(systems(&all), 2, "{all}");
    let stacked = Literal::from_vec(&[3, 2], rows.concat()).unwrap();
    assert_close(&flat(&run(&all, &[stacked, vector(B)])), &each, 1e-13, "vmap of grad");
}

#[test]
fn text_keeps_the_derivative() {
    let function =
        build(&[f64s(&[2]), f64s(&[2])], |x| vec![implicit(&x[0], &x[1]).square().sum()]);
    let mut program = Program::new();
    program.add(function).unwrap();
    let again = parse_program(&program.to_string(), "f.ir").unwrap();
    assert_eq!(again.to_string(), program.to_string());
    use wengert_compiler::autodiff::function::{Grad, grad as grad_of};
    let options = Grad { wrt: &["x0", "x1"], ..Grad::default() };
    let gradient = grad_of(&again, "f", &options).unwrap();
    let got = flat(&run(&gradient.function, &point()));
    let wanted = evaluate(|at| {
        let (a, b) = grad(at, |(p, b)| explicit(p, b).square().sum());
        vec![a, b]
    });
    assert_close(&got, &wanted, 1e-12, "gradient of a text");
}

// --- roots --------------------------------------------------------------------------------

/// The square root by Heron's rule, within 1e-15.
fn square_root(a: &Tensor) -> Tensor {
    let heron = |f: Map<'_>, x: &Tensor| {
        let init = (x.clone(), Tensor::constant(0i32));
        let goes_on = |(x, n): &(Tensor, Tensor)| f(x).abs().gt(1e-15).and(n.lt(40i32));
        while_loop(&init, goes_on, |(x, n)| ((x + a / x) * 0.5, n + 1i32)).0
    };
    custom_root(|x| x * x - a, &a.ones_like(), heron, |g, c| c / g(&c.ones_like()))
}

#[test]
fn a_root_has_the_derivatives_of_its_equation() {
    let forward = |x: &Tensor, f: &dyn Fn(&Tensor) -> Tensor| jvp(x, &x.ones_like(), f).1;
    let (a, f) = (2.5f64, square_root);
    let r = a.sqrt();
    let (first, second, third) = (0.5 / r, -0.25 / (a * r), 0.375 / (a * a * r));
    let close = |got: f64, wanted: f64, what| assert_close(&[got], &[wanted], 1e-14, what);
    close(at(a, f), r, "value");
    close(at(a, |x| grad(x, f)), first, "reverse");
    close(at(a, |x| forward(x, &f)), first, "forward");
    close(at(a, |x| grad(x, |x| grad(x, f))), second, "reverse over reverse");
    close(at(a, |x| forward(x, &|x| grad(x, f))), second, "forward over reverse");
    close(at(a, |x| grad(x, |x| forward(x, &f))), second, "reverse over forward");
    close(at(a, |x| forward(x, &|x| forward(x, &f))), second, "forward over forward");
    close(at(a, |x| grad(x, |x| forward(x, &|x| grad(x, f)))), third, "third order");
}

/// The fixed point x = tanh(p·x/2 + b). Its tangent solves a linear system.
fn fixed_point(p: &Tensor, b: &Tensor) -> Tensor {
    let solve = |f: Map<'_>, x: &Tensor| {
        let goes_on = |(_, off): &Pair| off.gt(1e-15);
        let step = |(x, _): &Pair| {
            let off = f(x);
            (x - &off, off.abs().max_axes(&[0]))
        };
        while_loop(&(x.clone(), Tensor::constant(1.0)), goes_on, step).0
    };
    let tangent_solve = |g: Map<'_>, c: &Tensor| {
        // 1 − A with |A| < 1 is solved by x ← c + A·x.
        let series = |map: Map<'_>, c: &Tensor| fori(80usize, c, |_, x| x + (c - map(x)));
        custom_linear_solve(g, c, series, TransposeSolve::Same)
    };
    custom_root(|x| x - (matrix(p)(x) * 0.1 + b).tanh(), &b.zeros_like(), solve, tangent_solve)
}

#[test]
fn a_fixed_point_has_the_derivatives_of_the_unrolled_iteration() {
    let unrolled = |p: &Tensor, b: &Tensor| {
        (0..80).fold(b.zeros_like(), |x, _| (matrix(p)(&x) * 0.1 + b).tanh())
    };
    let all = |f: Solution| {
        evaluate(|at| {
            let (a, b) = grad(at, loss(f));
            let (c, d) = jvp(at, &direction(at), |at| grad(at, loss(f))).1;
            vec![f(&at.0, &at.1), jvp(at, &direction(at), loss(f)).1, a, b, c, d]
        })
    };
    assert_close(&all(fixed_point), &all(unrolled), 1e-13, "fixed point");
}

#[test]
fn a_root_remembers_no_step() {
    let both = [f64s(&[2]), f64s(&[2])];
    let function = build(&both, |x| {
        let (p, b) = grad(&(x[0].clone(), x[1].clone()), loss(fixed_point));
        vec![p, b]
    });
    assert_eq!(systems(&function), 1, "{function}");
    assert_eq!(loops(&function), 1, "{function}");
}

#[test]
fn roots_of_a_batch() {
    let roots = build(&[f64s(&[3])], |x| vec![vmap(&x[0], |a| grad(a, square_root))]);
    let a = [2.0f64, 9.0, 0.25];
    let got = flat(&run(&roots, &[Literal::from_vec(&[3], a.to_vec()).unwrap()]));
    assert_close(&got, &a.map(|a| 0.5 / a.sqrt()), 1e-14, "vmap of grad");
}

// --- mistakes -----------------------------------------------------------------------------

fn error_of(f: impl FnOnce(&Tensor) -> Tensor) -> Diagnostic {
    FunctionBuilder::build("f", |b| {
        let x = b.input("x", f64s(&[2]));
        let y = f(&x);
        b.output("y", y);
    })
    .unwrap_err()
}

#[test]
fn mistakes_are_explained() {
    let solve = |map: Map<'_>, b: &Tensor| map(b);
    let text =
        error_of(|x| custom_linear_solve(|x| x.sum(), x, solve, TransposeSolve::Never)).to_string();
    assert!(
        text.contains("the map of `custom_linear_solve` gives (f64[]), not (f64[2])"),
        "{text}"
    );
    let text =
        error_of(|x| custom_linear_solve(|x| x.clone(), x, |_, b| b.sum(), TransposeSolve::Never));
    assert!(text.to_string().contains("a solver gives (f64[]), not (f64[2])"), "{text}");
    let text =
        error_of(|x| custom_linear_solve(|x| x.sin(), x, solve, TransposeSolve::Same)).to_string();
    assert!(text.contains("cannot be transposed: `sin` is not linear here"), "{text}");
    let text =
        error_of(|x| custom_linear_solve(|x| x + 1.0, x, solve, TransposeSolve::Same)).to_string();
    assert!(text.contains("affine"), "{text}");
    let forward_only =
        |x: &Tensor| custom_linear_solve(|x| x.clone(), x, solve, TransposeSolve::Never);
    let error = error_of(|x| grad(x, |x| forward_only(x).sum()));
    assert!(error.message.contains("nobody said how"), "{error}");
    assert!(error.to_string().contains("implicit.rs"), "{error}");
    assert_eq!(
        run(&build(&[f64s(&[2])], |x| vec![jvp(&x[0], &x[0], forward_only).1]), &point()[..1]),
        point()[..1]
    );
    let text = error_of(|x| {
        let n = x.convert(wengert_core::DType::I32);
        custom_root(|n| n.clone(), &n, |_, n| n.clone(), |_, n| n.clone()).convert(x.dtype())
    });
    assert!(text.to_string().contains("the first guess of a root holds i32[2]"), "{text}");
}
