//! Variables in halves: the step is that of f32, rounded once, and moments are in f32.

use super::{NONE, begun, numbers};
use wengert::prelude::*;

/// Values that all dtypes have, and gradients.
const VALUES: [f64; 6] = [1.0, -0.5, 0.75, 2.0, -1.25, 0.0];
const GRADIENTS: [f64; 6] = [0.5, -0.25, 0.0, -1.5, 0.125, 0.75];

type Step<'a> = &'a dyn Fn(&mut FunctionBuilder, &[Tensor; 2], &[Tensor; 2]);

/// A matrix and a vector of a dtype after steps by a constant gradient.
struct Stepped {
    variables: [Literal; 2],
    /// State of the optimiser, by path.
    state: Vec<(String, DType, Vec<f64>)>,
}

fn stepped(dtype: DType, steps: usize, step: Step<'_>) -> Stepped {
    let shapes: [&[usize]; 2] = [&[2, 3], &[6]];
    let of = |values: &[f64], shape: &[usize]| {
        Literal::from_vec(shape, values.to_vec()).unwrap().convert(dtype)
    };
    let mut program = Program::new();
    program
        .function("step", |f| {
            let model = f.state(
                "w",
                shapes.map(|shape| {
                    let begin = of(&VALUES, shape);
                    Tensor::variable(begin.ty(), Initializer::Constant(begin))
                }),
            );
            let gradient = shapes.map(|shape| Tensor::constant(of(&GRADIENTS, shape)));
            step(f, &model, &gradient);
        })
        .unwrap();
    let mut session = begun(&program);
    let mut compiled = session.compile(&program, "step", bind!()).unwrap();
    (0..steps).for_each(|_| drop(compiled.run(&NONE).unwrap()));
    let function = program.get("step").unwrap();
    let mut state = vec![];
    for (n, input) in function.inputs.iter().enumerate().filter(|(_, i)| !i.name.starts_with("w."))
    {
        let values = numbers(&mut session, &input.name);
        state.push((input.name.clone(), function.input_type(n).dtype, values));
    }
    Stepped { variables: ["w.0", "w.1"].map(|path| session.variable(path).unwrap()), state }
}

#[test]
fn steps_of_halves_are_steps_of_f32_rounded_once() {
    let cases: [(&str, Step<'_>); 8] = [
        ("sgd", &|f, w, g| Sgd::new(0.1).momentum(0.9).weight_decay(0.1).step(f, w, g)),
        ("adamw", &|f, w, g| AdamW::new(0.1).step(f, w, g)),
        ("muon", &|f, w, g| Muon::new(0.1).step(f, w, g)),
        ("lion", &|f, w, g| Lion::new(0.1).weight_decay(0.1).step(f, w, g)),
        ("rmsprop", &|f, w, g| {
            RmsProp::new(0.1).momentum(0.9).centered().weight_decay(0.1).step(f, w, g);
        }),
        ("adagrad", &|f, w, g| Adagrad::new(0.1).rate_decay(0.1).step(f, w, g)),
        ("adafactor", &|f, w, g| Adafactor::new(0.1).weight_decay(0.1).step(f, w, g)),
        ("soap", &|f, w, g| Soap::new(0.1).weight_decay(0.0).step(f, w, g)),
    ];
    for (name, step) in cases {
        // The first step of SOAP moves nothing.
        let steps = if name == "soap" { 2 } else { 1 };
        let whole = stepped(DType::F32, steps, step);
        for dtype in [DType::F16, DType::BF16] {
            let half = stepped(dtype, steps, step);
            for (half, whole) in half.variables.iter().zip(&whole.variables) {
                assert_eq!(*half, whole.convert(dtype), "{name} of {dtype}");
                let moved = half.scalars().zip(VALUES).filter(|(h, v)| h.to_f64() != *v);
                assert!(moved.count() > 3, "{name} of {dtype}");
            }
            assert_eq!(half.state, whole.state, "{name} of {dtype}");
        }
    }
}

/// Moments in bf16 are f32's, rounded. What SOAP and Adafactor keep beside moments stays in f32.
#[test]
fn moments_are_stored_in_halves_if_asked_for() {
    let cases: [(&str, Step<'_>, Step<'_>); 3] = [
        (
            "rmsprop",
            &|f, w, g| RmsProp::new(0.1).momentum(0.9).centered().step(f, w, g),
            &|f, w, g| {
                RmsProp::new(0.1).momentum(0.9).centered().moments(DType::BF16).step(f, w, g);
            },
        ),
        ("adafactor", &|f, w, g| Adafactor::new(0.1).step(f, w, g), &|f, w, g| {
            Adafactor::new(0.1).moments(DType::BF16).step(f, w, g);
        }),
        ("soap", &|f, w, g| Soap::new(0.1).step(f, w, g), &|f, w, g| {
            Soap::new(0.1).moments(DType::BF16).step(f, w, g);
        }),
    ];
    for (name, whole, half) in cases {
        let (whole, half) = (stepped(DType::F32, 1, whole), stepped(DType::F32, 1, half));
        let is_moment = |path: &str| {
            !path.ends_with(".step") && !["rows", "columns"].iter().any(|what| path.contains(what))
        };
        for ((path, _, whole), (_, dtype, half)) in whole.state.iter().zip(&half.state) {
            let rounded = Literal::from_vec(&[whole.len()], whole.clone()).unwrap().convert(*dtype);
            let rounded: Vec<f64> = rounded.scalars().map(|x| x.to_f64()).collect();
            assert_eq!(*half, rounded, "{name}: {path}");
            assert_eq!(*dtype == DType::BF16, is_moment(path), "{path} of {dtype}");
        }
    }
}

/// Stochastic rounding draws other numbers for each of three moments.
#[test]
fn each_moment_has_its_own_random_numbers() {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let key = f.key("key");
            let ty = TensorType::new(DType::F32, [512usize]);
            let w = f.state("w", Tensor::variable(ty.clone(), Initializer::Zeros));
            let gradient = Tensor::full(&ty, wengert::Scalar::of(1.0f32));
            let optimiser = RmsProp::new(0.0).alpha(0.5107).momentum(0.9).centered();
            optimiser.moments(DType::BF16).stochastic_rounding(&key).step(f, &w, &gradient);
        })
        .unwrap();
    let mut session = begun(&program);
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    step.run(&[("key", Literal::from_vec(&[2], vec![3u32, 4]).unwrap())]).unwrap();
    // Both moments are 0.4893 before rounding, about halfway between two numbers of bf16.
    let [v, mean] = ["rmsprop.v.w", "rmsprop.mean.w"].map(|path| numbers(&mut session, path));
    let up = |values: &[f64]| values.iter().filter(|x| **x > 0.4893).count();
    assert!([up(&v), up(&mean)].iter().all(|count| (200..320).contains(count)));
    let same = v.iter().zip(&mean).filter(|(a, b)| a == b).count();
    assert!((200..320).contains(&same), "{same} of 512 are equal");
}
