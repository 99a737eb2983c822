//! What earlier systems of differentiation could do, one test for each capability that straight-line programs have; the table in
//! `docs/differentiation.md` says where each comes from. Those of control flow come with it.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

use wengert::autodiff::function::{Grad, grad as grad_of_function};
use wengert::core::KeyPath;
use wengert::core::graph::Function;
use wengert::core::interpret;
use wengert::prelude::*;

/// Builds a function of scalars.
fn build(count: usize, f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Function {
    let function = FunctionBuilder::build("f", |b| {
        let x: Vec<Tensor> = (0..count).map(|i| b.input(&format!("x{i}"), f64(""))).collect();
        for (i, y) in f(&x).iter().enumerate() {
            b.output(&format!("y{i}"), y);
        }
    });
    function.unwrap_or_else(|e| panic!("{e}"))
}

/// Evaluates a function of scalars at a point.
fn at<const N: usize>(x: [f64; N], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Vec<f64> {
    let inputs: Vec<Literal> = x.into_iter().map(Literal::from).collect();
    let results = interpret::run(&build(N, f), &inputs).unwrap();
    results.iter().flat_map(|l| l.scalars().map(|s| s.to_f64()).collect::<Vec<_>>()).collect()
}

fn constant(x: f64) -> Tensor {
    Tensor::constant(x)
}

fn count(f: &Function, op: &str) -> usize {
    f.body.equations.iter().filter(|e| e.op.name() == op).count()
}

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
        // Two numbers are kept: the slope of tanh and the other factor. The linear program is closed over its inputs.
        let types: Vec<String> = linear.residuals.iter().map(|t| t.ty().to_string()).collect();
        assert_eq!(types, ["f64[]", "f64[]"]);
        assert_eq!(linear.body.inputs.len(), 1 + linear.residuals.len());
        assert_eq!(linear.body.equations.len(), 2);
        vec![y]
    });
}

#[test]
fn a6_what_is_kept_is_the_choice_of_the_rule() {
    // d tanh = 1 − y²: the result is kept, and tanh is not computed again.
    let f = build(1, |v| vec![grad(&v[0], |x: &Tensor| x.tanh())]);
    assert_eq!(count(&f, "tanh"), 1);
}

#[derive(Differentiable)]
struct Layer {
    weight: Tensor,
    bias: Tensor,
    #[no_derivative]
    steps: usize,
}

impl Layer {
    fn call(&self, x: &Tensor) -> Tensor {
        (0..self.steps).fold(x.clone(), |x, _| x * &self.weight + &self.bias)
    }
}

fn layer(v: &[Tensor], steps: usize) -> Layer {
    Layer { weight: v[0].clone(), bias: v[1].clone(), steps }
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
        // Used twice: the cotangents of the two uses are added leaf by leaf.
        let gradient = grad(&tree, |t: &Tree| t.product() + t.product());
        let zero = tree.zero_tangent();
        [gradient, zero].iter().flat_map(|t| t.tensors().into_iter().map(|(_, x)| x)).collect()
    });
    assert_eq!(results, [30.0, 20.0, 12.0, 0.0, 0.0, 0.0]);
    // Adding two trees adds left to left and right to right, and scaling scales every leaf.
    let results = at([2.0, 3.0, 5.0], |v| {
        let leaf = |i: usize| Box::new(Tree::Leaf(v[i].clone()));
        let tree = |i, j| Tree::Node(leaf(i), leaf(j));
        let sum = tree(0, 1).plus(&tree(1, 2).scaled(10.0));
        // A step down the gradient: the tree moves along it.
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
    assert!(text.contains("no floats to differentiate") && text.contains("systems.rs:"), "{text}");
}

#[test]
fn a13_with_respect_to_the_properties_of_a_model() {
    let results = at([3.0, 5.0, 7.0], |v| {
        let gradient: Layer = grad(&layer(v, 1), |m: &Layer| m.call(&v[2]));
        vec![gradient.weight, gradient.bias]
    });
    assert_eq!(results, [7.0, 1.0]);
}

#[test]
fn a16_higher_orders_without_confusion_of_perturbations_or_sensitivities() {
    // D(x ↦ x · D(y ↦ x + y)(1))(1) = 1, and D(x ↦ x · D(y ↦ x · y²)(x))(2) = D(2x³)(2) = 24.
    assert_eq!(
        at([1.0], |v| vec![grad(&v[0], |x: &Tensor| x * grad(&constant(1.0), |y: &Tensor| x + y))]),
        [1.0]
    );
    assert_eq!(at([2.0], |v| vec![grad(&v[0], |x: &Tensor| x * grad(x, |y: &Tensor| x * y * y))]), [24.0]);
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

#[test]
fn b1_the_tangent_of_a_tangent_is_itself_with_zero_and_addition() {
    fn same<T: Differentiable<TangentVector = T>>(_: &T) {}
    let results = at([3.0, 5.0], |v| {
        let model = layer(v, 1);
        same(&model);
        same(&model.zero_tangent());
        let sum = model.zero_tangent().move_along(&model).move_along(&model);
        vec![sum.weight, sum.bias]
    });
    assert_eq!(results, [6.0, 10.0]);
    // And where the tangent vector is another type, that is its own.
    fn tangent_of<T: Differentiable>(value: &T) -> T::TangentVector {
        value.zero_tangent()
    }
    let results = at([1.0, 2.0], |v| {
        let arm = Arm { rotation: Rotation(quaternion(&v[0])), length: v[1].clone() };
        let tangent: ArmTangent = tangent_of(&arm);
        same(&tangent);
        let sum = tangent.plus(&tangent).minus(&tangent.scaled(3.0)).negated();
        vec![sum.inner(&sum), sum.length]
    });
    assert_eq!(results, [0.0, 0.0]);
}

#[test]
fn b2_a_cotangent_becomes_a_tangent_by_the_identity() {
    // One type serves both: what a pullback gives is pushed forward as it is, here to the squared norm of the gradient.
    let results = at([3.0, 5.0], |v| {
        let f = |(x, y): &(Tensor, Tensor)| x * y;
        let point = (v[0].clone(), v[1].clone());
        let cotangent: (Tensor, Tensor) = grad(&point, f);
        vec![jvp(&point, &cotangent, f).1]
    });
    assert_eq!(results, [34.0]);
}

#[test]
fn b3_all_variables_by_key_path_readable_and_writable() {
    let results = at([3.0, 5.0], |v| {
        let models = vec![layer(v, 1), layer(v, 1)];
        let paths: Vec<String> = models.tensors().iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(paths, ["0.weight", "0.bias", "1.weight", "1.bias"]);
        let changed = models.map_tensors(&KeyPath::default(), &mut |path, x| match path.as_str() {
            "1.weight" => x * 100.0,
            _ => x.clone(),
        });
        let written = models.with_tensors([("0.bias", &v[0] * &v[1])]).unwrap();
        assert!(models.with_tensors([("0.bais", v[0].clone())]).is_err());
        let read = written.tensor("0.bias").unwrap();
        vec![changed[0].weight.clone(), changed[1].weight.clone(), read, written[1].bias.clone()]
    });
    assert_eq!(results, [3.0, 300.0, 15.0, 5.0]);
}

/// A unit quaternion. Its tangent is a vector of the surrounding space, of which only the part along the sphere counts.
struct Rotation(Tensor);

impl Differentiable for Rotation {
    type TangentVector = Tensor;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        visit(path, &self.0);
    }
    fn map_tensors(&self, path: &KeyPath, map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self {
        Rotation(map(path, &self.0))
    }
    fn tangent(&self, path: &KeyPath, make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Tensor {
        make(path, &self.0)
    }
    /// The exponential map of the sphere: q·cos θ + u·sin θ for a step of length θ in the direction u.
    fn move_along(&self, direction: &Tensor) -> Self {
        let q = &self.0;
        let along = direction - q * (q * direction).sum();
        let length = along.square().sum().sqrt();
        // The strong product: nothing moves along nothing, though 0/0 is NaN.
        Rotation(q * length.cos() + along.scaled_by(&(length.sin() / &length)))
    }
}

#[test]
fn b4_moving_along_a_tangent_on_a_manifold() {
    let f = FunctionBuilder::build("f", |b| {
        let q = Rotation(b.input("q", f64("4")));
        // Towards the quaternion 1, by the gradient of the first component.
        let gradient = grad(&q, |q: &Rotation| q.0.slice_axis(0, 0, 1).sum());
        let moved = q.move_along(&(gradient * 0.1));
        b.output("norm", moved.0.square().sum());
        b.output("w", moved.0.slice_axis(0, 0, 1));
    });
    let q = Literal::from_vec(&[4], vec![0.6, 0.0, 0.8, 0.0]).unwrap();
    let results = interpret::run(&f.unwrap(), &[q]).unwrap();
    assert!((results[0].get(0).to_f64() - 1.0).abs() < 1e-15, "it stays on the sphere");
    assert!(results[1].get(0).to_f64() > 0.6, "it went up");
}

/// (1, 0, 0, 0) for 1, not normalised for others.
fn quaternion(w: &Tensor) -> Tensor {
    Tensor::concatenate(&[&w.reshape([1usize]), &Tensor::constant(Literal::zeros(DType::F64, &[3]))], 0)
}

/// A model with a manifold in it: its tangent vector is a type of its own, which the derive makes.
#[derive(Differentiable)]
#[differentiable(synthesize = ArmTangent)]
struct Arm {
    rotation: Rotation,
    length: Tensor,
}

#[test]
fn b4_an_optimiser_moves_a_model_along_its_manifolds() {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let start = Literal::from_vec(&[4], vec![0.6, 0.0, 0.8, 0.0]).unwrap();
            let arm = Arm {
                rotation: Rotation(Tensor::variable(f64("4").unwrap(), Initializer::Constant(start))),
                length: Tensor::variable(f64("").unwrap(), Initializer::Ones),
            };
            let arm = f.state("arm", arm);
            // The height that an arm of this length reaches.
            let loss = |arm: &Arm| -(arm.rotation.0.slice_axis(0, 0, 1).sum() * &arm.length);
            let (height, gradient) = value_and_grad(&arm, loss);
            Sgd::new(0.1).momentum(0.5).step(f, &arm, &gradient);
            f.output("height", -height);
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let none: [(&str, Literal); 0] = [];
    session.compile(&program, "init", bind!()).unwrap().run(&none).unwrap();
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let mut height = 0.0;
    for _ in 0..20 {
        let next = step.run(&none).unwrap().scalar("height").unwrap();
        assert!(next > height, "{next} after {height}");
        height = next;
        let rotation = session.variable("arm.rotation").unwrap();
        let norm: f64 = rotation.scalars().map(|s| s.to_f64().powi(2)).sum();
        assert!((norm - 1.0).abs() < 1e-14, "it stays on the sphere: {norm}");
    }
    let w = session.variable("arm.rotation").unwrap().get(0).to_f64();
    assert!(w > 0.95, "it points upwards: {w}");
    assert!(session.variable("arm.length").unwrap().get(0).to_f64() > 2.0, "lengths are added to");
}

#[derive(Differentiable)]
struct Wrapper<M> {
    inner: M,
    #[no_derivative]
    name: String,
}

#[test]
fn b5_b6_synthesis_for_generic_wrappers_and_fields_without_derivative() {
    let results = at([3.0, 5.0], |v| {
        let model = Wrapper { inner: Wrapper { inner: layer(v, 1), name: "in".into() }, name: "out".into() };
        let gradient = grad(&model, |m: &Wrapper<Wrapper<Layer>>| m.inner.inner.call(&constant(7.0)));
        assert_eq!((gradient.name.as_str(), gradient.inner.name.as_str()), ("out", "in"));
        vec![gradient.inner.inner.weight]
    });
    assert_eq!(results, [7.0]);
}

#[test]
fn b7_a_layer_with_a_flag_and_a_cached_tensor() {
    #[derive(Differentiable)]
    struct Cached {
        scale: Tensor,
        #[no_derivative]
        training: bool,
        #[no_derivative]
        table: Tensor,
    }
    let slope = |training: bool| {
        at([3.0, 5.0, 7.0], |v| {
            let layer = Cached { scale: v[0].clone(), training, table: v[1].clone() };
            vec![
                grad(&layer, |l: &Cached| if l.training { &l.scale * &l.table } else { &l.scale * &v[2] })
                    .scale,
            ]
        })
    };
    assert_eq!((slope(true), slope(false)), (vec![5.0], vec![7.0]));
}

#[test]
fn b8_optimisers_go_by_key_path_over_variables_and_gradients_of_one_type() {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let w = || Tensor::variable(TensorType::scalar(DType::F64), Initializer::Ones);
            let model = f.state("model", Layer { weight: w(), bias: w(), steps: 1 });
            let gradient = grad(&model, |m: &Layer| m.call(&constant(3.0)));
            Sgd::new(0.5).step(f, &model, &gradient);
        })
        .unwrap();
    let step = program.get("step").unwrap();
    let results = interpret::run(step, &[Literal::from(1.0), Literal::from(1.0)]).unwrap();
    let names: Vec<&str> = step.outputs.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["model.weight", "model.bias"]);
    assert_eq!((results[0].get(0).to_f64(), results[1].get(0).to_f64()), (-0.5, 0.5));
}

#[test]
fn c1_a_wengert_list_is_printed_readably() {
    let f = build(2, |v| vec![&v[0] * &v[1] + v[0].sin()]);
    let expected = "\
func @f(%x0: f64[], %x1: f64[]) -> (y0: f64[]) {
  %0: f64[] = mul %x0, %x1
  %1: f64[] = sin %x0
  %2: f64[] = add %0, %1
  return %2
}
";
    assert_eq!(f.to_string(), expected);
    // And as a list that is a value of its own, with the line of each operation.
    let list = trace(&(constant(0.0), constant(0.0)), |(x, y)| x * y + x.sin()).unwrap().to_string();
    let expected = [
        "x.0: f64[]",
        "x.1: f64[]",
        "v1: f64[] = mul x.0, x.1",
        "v2: f64[] = sin x.0",
        "v3: f64[] = add v1, v2",
        "y = v3",
    ];
    for (line, expected) in list.lines().zip(expected) {
        assert!(line.starts_with(expected), "{list}");
        assert_eq!(line.contains("// wengert/tests/systems.rs:"), line.starts_with('v'), "{list}");
    }
}

#[test]
fn c2_a_loop_of_the_host_over_a_known_number_disappears() {
    let pow = |x: &Tensor, n: usize| (1..n).fold(x.clone(), |y, _| y * x);
    let f = build(1, |v| vec![pow(&v[0], 3)]);
    assert_eq!((f.body.equations.len(), count(&f, "mul")), (2, 2));
    let list = trace(&constant(0.0), |x| pow(x, 3)).unwrap();
    assert_eq!((list.len(), list.to_string().matches("mul").count()), (2, 2));
}

#[test]
fn c3_overloaded_operators_with_plain_numbers_on_either_side() {
    assert_eq!(at([3.0], |v| vec![2.0 * &v[0] - 1.0, 1.0 - &v[0] / 2, 1.0 + &v[0]]), [5.0, -0.5, 4.0]);
    let list = trace(&constant(0.0), |x: &Tensor| -> Tensor { 2.0 * x - 1.0 / (x + 1) }).unwrap();
    assert_eq!(list.evaluate(&constant(3.0)).unwrap().item().unwrap(), 5.75);
}

#[test]
fn c4_the_derivative_is_a_program_of_its_own() {
    let mut program = Program::new();
    program
        .function("cube", |f| {
            let x = f.input("x", f64(""));
            f.output("y", &x * &x * &x);
        })
        .unwrap();
    let dcube =
        grad_of_function(&program, "cube", &Grad { wrt: &["x"], ..Default::default() }).unwrap().function;
    assert_eq!(dcube.name, "cube_grad");
    assert_eq!(interpret::run(&dcube, &[Literal::from(5.0)]).unwrap()[0].get(0).to_f64(), 75.0);

    // The same with lists: traced, differentiated, compiled, called again.
    let cube = trace(&constant(0.0), |x| x * x * x).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut dcube = session.compile_list(&cube.grad().unwrap()).unwrap();
    for (x, expected) in [(5.0, 75.0), (2.0, 12.0), (-1.0, 3.0)] {
        assert_eq!(dcube.call(&constant(x)).unwrap().item().unwrap(), expected);
    }
    let error = dcube.call(&Tensor::constant(5.0f32)).err().unwrap().to_string();
    assert!(error.contains("f32[], the list was traced on f64[]"), "{error}");
}

#[test]
fn c5_values_beside_the_list_differentiated_as_it_is_built() {
    let x = Tracked::new(&constant(3.0));
    let mut y = x.clone();
    while y.item().unwrap() < 100.0 {
        y = y * &*x;
    }
    assert_eq!((y.item().unwrap(), x.gradient(&y).item().unwrap()), (243.0, 405.0));
    assert_eq!(x.gradient(&x.gradient(&y)).item().unwrap(), 540.0);
    assert!(x.to_string().contains("= mul v3, x0 → 243.0"), "{x}");
    // What was recorded is the program for this x; compiled, it computes the same of others.
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut fifth = session.compile_list(&x.list(&y).unwrap()).unwrap();
    assert_eq!(fifth.call(&constant(2.0)).unwrap().item().unwrap(), 32.0);
}

#[test]
fn c6_nested_derivatives_of_a_function_of_ones_own() {
    // sin by its series, so that nothing but the rules of arithmetic is used.
    let mysin = |x: &Tensor| {
        let mut term = x.clone();
        let mut sum = x.clone();
        for k in 1..12 {
            term = &term * x * x * (-1.0 / ((2 * k) as f64 * (2 * k + 1) as f64));
            sum = sum + &term;
        }
        sum
    };
    let results = at([1.0], |v| {
        let second = grad(&v[0], |x: &Tensor| grad(x, mysin));
        vec![mysin(&v[0]), second]
    });
    assert!(
        (results[0] - 1f64.sin()).abs() < 1e-15 && (results[1] + 1f64.sin()).abs() < 1e-14,
        "{results:?}"
    );
    // Of a list, and of values.
    let list = trace(&constant(0.0), mysin).unwrap().grad().unwrap().grad().unwrap();
    let x = Tracked::new(&constant(1.0));
    let eager = x.gradient(&x.gradient(&mysin(&x)));
    let all = [list.evaluate(&constant(1.0)).unwrap(), eager].map(|t| t.item().unwrap());
    assert!(all.iter().all(|second| (second - results[1]).abs() < 1e-14), "{all:?}");
}

#[test]
fn c7_shared_subexpressions_stay_shared() {
    let f = build(1, |v| vec![grad(&v[0], |x: &Tensor| (0..40).fold(x.clone(), |y, _| &y + &y * &y))]);
    assert!(f.body.equations.len() < 40 * 10, "{}", f.body.equations.len());
    let second = |n: usize| {
        let list = trace(&constant(0.0), |x| (0..n).fold(x.clone(), |y, _| &y + &y * &y)).unwrap();
        assert_eq!(list.len(), 2 * n);
        list.grad().unwrap().grad().unwrap().len()
    };
    assert!(second(40) < second(20) * 11 / 5, "{} and {}", second(20), second(40));
}

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
        // A function that has captured `a` is the pair of `a` and code; as such it is differentiable.
        let environment = v[0].clone();
        let apply = |a: &Tensor, x: &Tensor| a * x;
        let (_, pullback) = vjp(&(environment, v[1].clone()), |(a, x): &(Tensor, Tensor)| apply(a, x));
        let (a, x) = pullback(&v[2]);
        vec![a, x]
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
fn e2_several_gradients_of_one_value_are_added() {
    assert_eq!(at([3.0], |v| vec![grad(&v[0], |x: &Tensor| x * 2.0 + x * 3.0 + x * x)]), [11.0]);
}

#[test]
fn e4_source_locations_are_kept_through_both_transformations() {
    let f = build(1, |v| vec![grad(&v[0], |x: &Tensor| x.sin() * x)]);
    for equation in f.body.equations.iter().filter(|e| e.op.name() != "constant") {
        let text = f.locations.describe(equation.location);
        assert!(text.contains("systems.rs:"), "{}: {text}", equation.op.name());
    }
    let adjoint = f.body.equations.iter().map(|e| f.locations.describe(e.location));
    assert!(adjoint.into_iter().any(|t| t.starts_with("transpose(mul_zero) of jvp(sin) of ")));
}

#[test]
fn e7_what_gets_no_gradient_is_a_typed_nothing() {
    let f = FunctionBuilder::build("f", |b| {
        let (x, i) = (b.input("x", f64("3")), b.input("i", i32("2")));
        let gradient = grad(&(x, i), |(x, i): &(Tensor, Tensor)| x.sum() * i.sum().convert(DType::F64));
        b.output("x", gradient.0);
        b.output("i", gradient.1);
    });
    let f = f.unwrap();
    assert_eq!(f.output_type(1).to_string(), "i32[2]");

    // Or nothing at all, of the type of nothing, if the caller says so.
    let results = at([3.0, 5.0], |v| {
        let point = (v[0].clone(), NoDerivative(v[1].clone()));
        let (slope, nothing): (Tensor, ()) =
            grad(&point, |(x, a): &(Tensor, NoDerivative<Tensor>)| x * x * &**a);
        let () = nothing;
        vec![slope]
    });
    assert_eq!(results, [30.0]);
}
