//! B: differentiable types.

use super::{Layer, at, constant, layer};
use wengert::core::{KeyPath, interpret};
use wengert::prelude::*;

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
    // A tangent vector of another type has that type as its own tangent.
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
    // One type serves both modes: the result of a pullback is pushed forward without conversion,
    // here to the squared norm of the gradient.
    let results = at([3.0, 5.0], |v| {
        let f = |(x, y): &(Tensor, Tensor)| x * y;
        let point = (v[0].clone(), v[1].clone());
        let cotangent: (Tensor, Tensor) = grad(&point, f);
        vec![jvp(&point, &cotangent, f).1]
    });
    assert_eq!(results, [34.0]);
}

/// A cotangent is a tangent: the conversion is the identity, so `move_along` is a step of gradient
/// descent.
#[test]
fn b2_a_cotangent_is_taken_for_a_tangent() {
    let moved = at([3.0], |v| {
        let gradient = grad(&v[0], |x: &Tensor| x * x);
        vec![v[0].move_along(&(gradient * -0.1))]
    });
    assert!((moved[0] - 2.4).abs() < 1e-15);
}

#[test]
fn b3_all_variables_by_key_path_readable_and_writable() {
    let results = at([3.0, 5.0], |v| {
        let models = vec![layer(v, 1), layer(v, 1)];
        let paths: Vec<String> =
            models.tensors().iter().map(|(path, _)| path.to_string()).collect();
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

/// A unit quaternion. Its tangent is a vector of the surrounding space. Only the component along
/// the sphere has an effect.
struct Rotation(Tensor);

impl Differentiable for Rotation {
    type TangentVector = Tensor;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        visit(path, &self.0);
    }
    fn map_tensors(
        &self,
        path: &KeyPath,
        map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self {
        Rotation(map(path, &self.0))
    }
    fn tangent(&self, path: &KeyPath, make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Tensor {
        make(path, &self.0)
    }
    /// The exponential map of the sphere: q·cos θ + u·sin θ for a step of length θ in the direction
    /// u.
    fn move_along(&self, direction: &Tensor) -> Self {
        let q = &self.0;
        let along = direction - q * (q * direction).sum();
        let length = along.square().sum().sqrt();
        // The strong product: a zero direction gives a zero step, though 0/0 is NaN.
        Rotation(q * length.cos() + along.scaled_by(&(length.sin() / &length)))
    }
}

#[test]
fn b4_moving_along_a_tangent_on_a_manifold() {
    let f = FunctionBuilder::build("f", |b| {
        let q = Rotation(b.input("q", f64("4")));
        // Descent towards the quaternion 1, by the gradient of the first component.
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

/// (1, 0, 0, 0) for w = 1. Other values are not normalised.
fn quaternion(w: &Tensor) -> Tensor {
    Tensor::concatenate(
        &[&w.reshape([1usize]), &Tensor::constant(Literal::zeros(DType::F64, &[3]))],
        0,
    )
}

/// A model that contains a manifold. The derive macro makes its tangent vector, a separate type.
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
                rotation: Rotation(Tensor::variable(
                    f64("4").unwrap(),
                    Initializer::Constant(start),
                )),
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
        let model = Wrapper {
            inner: Wrapper { inner: layer(v, 1), name: "in".into() },
            name: "out".into(),
        };
        let gradient =
            grad(&model, |m: &Wrapper<Wrapper<Layer>>| m.inner.inner.call(&constant(7.0)));
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
                grad(
                    &layer,
                    |l: &Cached| if l.training { &l.scale * &l.table } else { &l.scale * &v[2] },
                )
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
