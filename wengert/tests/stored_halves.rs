//! Variables and moments in bf16: small changes survive stochastic rounding on average, and its
//! bits depend on the key only.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::prelude::*;

/// A function that rounds a constant many times.
fn rounded(device: Device, x: f32, count: usize, seed: u32) -> Vec<f64> {
    let mut program = Program::new();
    program
        .function("round", |f| {
            let key = f.key("key");
            let x = Tensor::constant(Literal::from_vec(&[1], vec![x]).unwrap());
            f.output("y", x.broadcast_to(&[count.into()]).round_stochastically(DType::BF16, &key));
        })
        .unwrap();
    let mut session = Session::open(device).unwrap();
    let key = Literal::from_vec(&[2], vec![0, seed]).unwrap();
    let outputs =
        session.compile(&program, "round", bind!()).unwrap().run(&[("key", key)]).unwrap();
    outputs.get("y").unwrap().scalars().map(|y| y.to_f64()).collect()
}

#[test]
fn a_number_is_rounded_to_its_neighbours_with_an_exact_mean() {
    // Neighbours of bf16: 1 and 1 + 2⁻⁷; −3 and −3 − 2⁻⁶; the least f32 lies between 0 and 2⁻¹³³.
    let tiny = 2f64.powi(-133);
    for (x, low, high) in [
        (1.0f32 + 0.001, 1.0, 1.0078125),
        (-3.004, -3.0, -3.015625),
        ((0.25 * tiny) as f32, 0.0, tiny),
        (1.0, 1.0, 1.0),
        (-0.0, 0.0, 0.0),
    ] {
        let found = rounded(Device::Cpu, x, 40_000, 3);
        assert!(found.iter().all(|y| *y == low || *y == high), "{x}");
        let (x, count) = (f64::from(x), found.len() as f64);
        let mean = found.iter().sum::<f64>() / count;
        // Five standard deviations of the mean of a coin.
        let error = 2.5 * (high - low).abs() / count.sqrt();
        assert!((mean - x).abs() <= error, "{x}: mean {mean}");
    }
    for x in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::from_bits(0x7fff_ffff)] {
        let found = rounded(Device::Cpu, x, 64, 5);
        assert!(found.iter().all(|y| *y == f64::from(x) || (y.is_nan() && x.is_nan())), "{x}");
    }
}

#[test]
fn the_bits_depend_on_the_key_only() {
    let first = rounded(Device::Cpu, 0.1, 1000, 1);
    for device in [Device::Interpreter, Device::Emulator] {
        assert_eq!(first, rounded(device, 0.1, 1000, 1), "{device:?}");
    }
    assert_ne!(first, rounded(Device::Cpu, 0.1, 1000, 2));
}

/// Minimises Σ (p − 1)² from 2 in steps that are smaller than a unit in the last place. Returns the
/// mean of p.
fn trained(
    step: impl Fn(&mut FunctionBuilder, &Tensor, &Tensor, &Tensor),
    dtype: DType,
    steps: u32,
) -> f64 {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let start =
                Initializer::Constant(Literal::from_vec(&[512], vec![2.0f32; 512]).unwrap());
            let p = Tensor::variable(TensorType::new(DType::F32, [512]), start);
            let p = f.state("p", nn::with_dtype(&p, dtype));
            let key = f.key("key");
            let wide = p.convert(DType::F32);
            let gradient = grad(&wide, |p: &Tensor| ((p - 1.0).square() * 0.5).sum());
            step(f, &p, &gradient, &key);
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let none: [(&str, Literal); 0] = [];
    session.compile(&program, "init", bind!()).unwrap().run(&none).unwrap();
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    for n in 0..steps {
        let key = Literal::from_vec(&[2], vec![0, n]).unwrap();
        step.run(&[("key", key)]).unwrap();
    }
    let p = session.variable("p").unwrap();
    assert_eq!(p.dtype(), dtype);
    p.scalars().map(|p| p.to_f64()).sum::<f64>() / 512.0
}

#[test]
fn small_steps_are_not_lost() {
    // 2 − 0.001 rounds to 2 in bf16. 400 steps of 0.1 % leave 1 + e^−0.4 = 1.67.
    let plain = |f: &mut FunctionBuilder, p: &Tensor, g: &Tensor, _: &Tensor| {
        Sgd::new(0.001).step(f, p, g);
    };
    let whole = trained(plain, DType::F32, 400);
    assert!((whole - 1.670).abs() < 1e-3, "{whole}");
    assert_eq!(trained(plain, DType::BF16, 400), 2.0);
    let stochastic = |f: &mut FunctionBuilder, p: &Tensor, g: &Tensor, key: &Tensor| {
        Sgd::new(0.001).stochastic_rounding(key).step(f, p, g);
    };
    let found = trained(stochastic, DType::BF16, 400);
    assert!((found - whole).abs() < 0.01, "{found} and {whole}");
}

/// A second moment with β₂ = 0.999 grows by less than a unit in the last place.
#[test]
fn moments_in_bf16_are_those_of_f32_on_average() {
    let adam = |moments: DType, is_stochastic: bool| {
        move |f: &mut FunctionBuilder, p: &Tensor, g: &Tensor, key: &Tensor| {
            let adam = AdamW::new(0.001).moments(moments);
            match is_stochastic {
                true => adam.stochastic_rounding(key).step(f, p, g),
                false => adam.step(f, p, g),
            }
        }
    };
    let whole = trained(adam(DType::F32, false), DType::F32, 600);
    let stochastic = trained(adam(DType::BF16, true), DType::F32, 600);
    let nearest = trained(adam(DType::BF16, false), DType::F32, 600);
    assert!((stochastic - whole).abs() < 0.01, "{stochastic} and {whole}");
    assert!((nearest - whole).abs() > 2.0 * (stochastic - whole).abs(), "{nearest} and {whole}");
    let both = trained(adam(DType::BF16, true), DType::BF16, 600);
    assert!((both - whole).abs() < 0.02, "{both} and {whole}");
}

#[test]
fn mistakes_are_errors() {
    let fails =
        |step: &dyn Fn(&mut FunctionBuilder, &Tensor, &Tensor), dtype: DType, text: &str| {
            let mut program = Program::new();
            let error = program.function("step", |f| {
                let ty = TensorType::new(dtype, [3]);
                let p = f.state("p", Tensor::variable(ty, Initializer::Ones));
                let key = f.key("key");
                step(f, &p, &key);
            });
            let error = error.unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("stored_halves.rs"), "{error}");
        };
    let stochastic = |f: &mut FunctionBuilder, p: &Tensor, key: &Tensor| {
        Sgd::new(0.1).stochastic_rounding(key).step(f, p, &p.convert(DType::F32));
    };
    fails(&stochastic, DType::F16, "stochastic rounding from f32 to f16");
    let integers = |f: &mut FunctionBuilder, p: &Tensor, _: &Tensor| {
        AdamW::new(0.1).moments(DType::I32).step(f, p, p);
    };
    fails(&integers, DType::F32, "moments of i32: a moment is a float");
}

/// A regression whose parameters a policy stores in halves; the moments are in f32.
fn regression() -> Program {
    let mut program = Program::new();
    let layer = || Linear::new(3, 2);
    program
        .function("step", |f| {
            let (x, y) = (f.input("x", f32("8,3")), f.input("y", f32("8,2")));
            let layer = f.state("layer", layer());
            let (loss, gradient) =
                value_and_grad(&layer, |layer| (layer.call(&x) - &y).square().mean());
            AdamW::new(0.05).step(f, &layer, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    program
        .function("predict", |f| {
            let x = f.input("x", f32("8,3"));
            let layer = f.param("layer", layer());
            f.output("y", layer.call(&x));
        })
        .unwrap();
    program
}

fn stored(dtype: DType) -> Precision {
    Precision::bf16().param_dtype(dtype).unwrap()
}

/// A session with the variables of the program's initializer.
fn begun(program: &Program) -> Session {
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(program, 7).unwrap();
    session
}

#[test]
fn a_policy_stores_parameters_in_halves() {
    for dtype in [DType::BF16, DType::F16] {
        let mut program = regression();
        program.precision(&stored(dtype)).unwrap();
        let mut session = begun(&program);
        for (name, ty) in session.variable_types().into_iter().filter(|(_, ty)| ty.dtype.is_float())
        {
            let is_moment = name.starts_with("adam");
            assert_eq!(ty.dtype, if is_moment { DType::F32 } else { dtype }, "{name}");
        }
        let mut random = wengert_testing::Random(3);
        let x = random.scaled(&TensorType::new(DType::F32, [8, 3]), 1.0);
        let y = random.scaled(&TensorType::new(DType::F32, [8, 2]), 0.1);
        let mut step = session.compile(&program, "step", bind!()).unwrap();
        let losses: Vec<f64> = (0..80)
            .map(|_| {
                let outputs = step.run(&[("x", x.clone()), ("y", y.clone())]).unwrap();
                outputs.get("loss").unwrap().get(0).to_f64()
            })
            .collect();
        assert!(losses[79] < losses[0] / 4.0, "{dtype}: {losses:?}");
        assert_eq!(session.variable("layer.weight").unwrap().dtype(), dtype);
        session.compile(&program, "predict", bind!()).unwrap().run(&[("x", x)]).unwrap();
        // A function that is built later has to take the parameters as they are.
        let late = program.function("late", |f| {
            let layer = f.param("layer", Linear::new(3, 2));
            f.output("w", layer.weight);
        });
        let error = late.unwrap_err().to_string();
        assert!(error.contains("has type f32") && error.contains(dtype.name()), "{error}");
    }
}

#[test]
fn weights_in_f32_are_cast_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.safetensors");
    begun(&regression()).save_for(&path, &regression(), "predict").unwrap();
    let mut program = regression();
    let policy = stored(DType::F16);
    program.precision(&policy).unwrap();
    let mut session = begun(&program);
    let error = session.load_partial(&path).unwrap_err().to_string();
    assert!(error.contains("variable `layer.") && error.contains("cast_to_param"), "{error}");
    let mut weights = wengert::data::read_all(&path).unwrap();
    let cast = wengert::precision::cast_to_param(&policy, &program, &weights).unwrap();
    for (name, value) in cast.iter() {
        assert_eq!(*value, weights[name].convert(DType::F16), "{name}");
        session.set_variable(name, value).unwrap();
    }
    // The same numbers as of the initializer, which rounds them, too.
    assert_eq!(cast["layer.weight"], begun(&program).variable("layer.weight").unwrap());
    let large = Literal::from_vec(&[2], vec![1e6f32, 0.0]).unwrap();
    weights.insert("layer.bias".into(), large);
    let error = wengert::precision::cast_to_param(&policy, &program, &weights).unwrap_err();
    let says = "a weight of `layer.bias` is beyond the largest number of f16";
    assert!(error.message.contains(says) && error.help.unwrap().contains("keep_param"));
}
