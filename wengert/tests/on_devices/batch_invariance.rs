//! Batch invariance: the bits of a row do not depend on the number of rows that are computed with
//! it, on every device that is asked for it.

use wengert::core::build::FunctionBuilder;
use wengert::prelude::*;
use wengert::{DType, DeviceOptions};

/// The rows of a batch through products, norms, softmax, and a sum over many columns.
fn program(batch: usize, dtype: DType) -> Program {
    let mut program = Program::new();
    let rows = |f: &mut FunctionBuilder| {
        let x = f.input("x", TensorType::new(dtype, [batch, 96]));
        let w = f.input("w", TensorType::new(dtype, [96, 2100]));
        let v = f.input("v", TensorType::new(dtype, [2100, 72]));
        let wide = x.dot(&w).gelu_tanh();
        let y = wide.softmax(1).dot(&v) + wide.sum_axes(&[1]).unsqueeze(1);
        f.output("y", &y);
    };
    program.function("rows", rows).unwrap();
    program
}

/// The bytes of each row.
fn run(device: Device, batch: usize, first: usize, dtype: DType) -> Vec<Vec<u8>> {
    let options = DeviceOptions { batch_invariant: true, ..DeviceOptions::default() };
    let mut session = Session::open_with(device, &options).unwrap();
    let program = program(batch, dtype);
    let mut compiled = session.compile(&program, "rows", bind!()).unwrap();
    let drawn = |from: usize, shape: [usize; 2]| {
        let value = |n: usize| ((n * 7919 + 13) % 1009) as f32 / 1009.0 - 0.5;
        let values: Vec<f32> = (from..from + shape[0] * shape[1]).map(value).collect();
        Literal::from_vec(&shape, values).unwrap().convert(dtype)
    };
    let inputs = [
        ("x", drawn(first * 96, [batch, 96])),
        ("w", drawn(0, [96, 2100])),
        ("v", drawn(5, [2100, 72])),
    ];
    let y = compiled.run(&inputs).unwrap();
    let bytes = y.get("y").unwrap().to_bytes();
    bytes.chunks(bytes.len() / batch).map(<[u8]>::to_vec).collect()
}

fn check(device: Device) {
    for dtype in [DType::F32, DType::BF16] {
        let all = run(device, 70, 0, dtype);
        for (batch, first) in [(1, 0), (1, 69), (3, 20), (8, 62)] {
            let some = run(device, batch, first, dtype);
            assert!(some[..] == all[first..first + batch], "{dtype}: {batch} from {first}");
        }
    }
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
fn on_the_device() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        check(name.parse().unwrap());
    }
}

/// A plan states whether it keeps the promise, and one without it is no substitute.
#[test]
fn a_plan_without_the_promise_is_refused() {
    let options = DeviceOptions { batch_invariant: true, ..DeviceOptions::default() };
    let mut session = Session::open_with(Device::Cpu, &options).unwrap();
    let plain = wengert::target("cpu").unwrap();
    for (target, loads) in [(plain.clone().with_batch_invariance(), true), (plain, false)] {
        let options = wengert::pipeline::Options::default();
        let program = program(2, DType::F32);
        let plan = wengert::pipeline::compile(&program, "rows", &bind!(), &target, &options);
        let loaded = session.load_plan(plan.unwrap());
        assert_eq!(loaded.is_ok(), loads);
        if let Err(error) = loaded {
            assert!(error.to_string().contains("without batch invariance"), "{error}");
        }
    }
}
