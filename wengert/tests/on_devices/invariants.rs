//! Invariants are kept: the same bits as without, for every value of the variables.

use wengert::core::Initializer;
use wengert::core::op::ConvGeneralDilated;
use wengert::data::Arrays;
use wengert::prelude::*;
use wengert::{DType, DeviceOptions};

/// A convolution with channels first, a norm with fixed statistics and a large constant; a step
/// that changes the filter.
fn program() -> Program {
    let param = |shape: &[usize]| {
        Tensor::variable(TensorType::new(DType::F32, shape.iter().copied()), Initializer::Ones)
    };
    let mut program = Program::new();
    program
        .function("predict", |f| {
            let x = f.input("x", TensorType::new(DType::F32, ["B", "3", "8", "8"]));
            let filter = f.param("filter", param(&[6, 3, 3, 3]));
            let [variance, scale] = ["variance", "scale"].map(|name| f.param(name, param(&[6])));
            let channels_first: Vec<usize> = (0..4).collect();
            let op = ConvGeneralDilated {
                stride: vec![1, 1],
                padding: vec![(1.into(), 1.into()); 2],
                lhs_dilation: vec![],
                rhs_dilation: vec![],
                feature_group_count: 1.into(),
                batch_group_count: 1.into(),
                lhs_spec: channels_first.clone(),
                rhs_spec: channels_first.clone(),
                out_spec: channels_first,
                result: None,
            };
            let y = Tensor::apply(op, &[&x, &filter]);
            let scale = (scale * (variance + 1e-5).rsqrt()).unsqueeze(&[1, 2]);
            // More elements than are folded.
            let table = Tensor::constant(drawn(&[6, 8, 8], 9)).exp();
            f.output("y", (y * scale * table).relu());
        })
        .unwrap();
    program
        .function("step", |f| {
            let filter = f.state("filter", param(&[6, 3, 3, 3]));
            f.update("filter", &(&filter * 1.5));
        })
        .unwrap();
    program
}

fn drawn(shape: &[usize], seed: usize) -> Literal {
    let value = |n: usize| ((n * 7919 + seed * 13) % 1009) as f32 / 1009.0 + 0.25;
    Literal::from_vec(shape, (0..shape.iter().product()).map(value).collect()).unwrap()
}

/// Runs in which the variables change: by another function, by the user, all together.
fn outputs(device: Device, keep: bool) -> (Vec<Literal>, Arrays) {
    let program = program();
    let options = DeviceOptions { keep_invariants: keep, ..DeviceOptions::default() };
    let mut session = Session::open_with(device, &options).unwrap();
    let values = [
        ("filter", drawn(&[6, 3, 3, 3], 1)),
        ("variance", drawn(&[6], 2)),
        ("scale", drawn(&[6], 3)),
    ];
    for (name, value) in &values {
        session.set_variable(name, value).unwrap();
    }
    let mut one = session.compile(&program, "predict", bind!(B = 1)).unwrap();
    let mut two = session.compile(&program, "predict", bind!(B = 2)).unwrap();
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let mut found = Vec::new();
    let mut predict = || {
        for (compiled, batch) in [(&mut one, 1), (&mut two, 2)] {
            let results = compiled.run(&[("x", drawn(&[batch, 3, 8, 8], 4))]).unwrap();
            found.push(results.get("y").unwrap().clone());
        }
    };
    predict();
    predict();
    step.run::<Literal>(&[]).unwrap();
    predict();
    session.set_variable("variance", &drawn(&[6], 5)).unwrap();
    predict();
    let all = session.variables().unwrap();
    session.set_variables(&all).unwrap();
    predict();
    let error = session.set_variable("__invariant_0.0", &drawn(&[1], 0)).unwrap_err();
    assert!(error.to_string().contains("are reserved"), "{error}");
    (found, session.variables().unwrap())
}

fn check(device: Device) {
    let (wanted, variables) = outputs(device, false);
    let (found, kept) = outputs(device, true);
    assert!(wanted == found, "{device}: the bits differ");
    assert!(wanted[0] != wanted[4] && wanted[4] != wanted[6], "variables have an effect");
    let names: Vec<&String> = kept.keys().collect();
    assert_eq!(names, ["filter", "scale", "variance"], "invariants are not the user's");
    assert_eq!(variables, kept);
}

#[test]
fn on_the_cpu() {
    check(Device::Cpu);
}

#[test]
fn on_the_emulator() {
    check(Device::Emulator);
}

#[test]
fn on_the_interpreter() {
    check(Device::Interpreter);
}

#[test]
fn on_the_device_that_is_asked_for() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        check(name.parse().unwrap());
    }
}

/// Values of invariants do not come from files.
#[test]
fn a_file_with_a_reserved_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    wengert::data::safetensors::write(&path, [("__invariant_0.0", &drawn(&[2], 1))]).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let error = session.load(&path).unwrap_err().to_string();
    assert!(error.contains("are reserved"), "{error}");
    assert!(session.variables().unwrap().is_empty());
}

/// The convolution's filter is transposed once: no kernel of a run does it.
#[test]
fn a_run_does_not_repeat_it() {
    let kernels = |keep| {
        let options = DeviceOptions { keep_invariants: keep, ..DeviceOptions::default() };
        let mut session = Session::open_with(Device::Cpu, &options).unwrap();
        for (name, shape) in
            [("filter", &[6, 3, 3, 3][..]), ("variance", &[6][..]), ("scale", &[6][..])]
        {
            session.set_variable(name, &drawn(shape, 1)).unwrap();
        }
        let mut compiled = session.compile(&program(), "predict", bind!(B = 1)).unwrap();
        compiled.measure().unwrap();
        compiled.run(&[("x", drawn(&[1, 3, 8, 8], 4))]).unwrap();
        compiled.profile().len()
    };
    assert!(kernels(true) < kernels(false));
}
