//! Functions that GPUs approximate on request: their errors are within the certificate's bounds,
//! and nothing changes without the request or on the CPU.

use wengert::certificate::Certificate;
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert::{DType, DeviceOptions, Evaluation};

/// A product whose activation follows it, a norm, and a softmax.
fn program() -> Program {
    let mut program = Program::new();
    let built = program.function("f", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [16, 24]));
        let w = f.input("w", TensorType::new(DType::F32, [24, 32]));
        let hidden = x.dot(&w).tanh();
        let centred = &hidden - hidden.mean_keepdims(1);
        let normal = &centred / (centred.square().mean_keepdims(1) + 1e-5).sqrt();
        f.output("y", normal.gelu_tanh().softmax(1));
        f.output("z", (hidden.square() + 0.5).log());
    });
    built.unwrap();
    program
}

fn inputs() -> [Literal; 2] {
    [([16, 24], 3), ([24, 32], 7)].map(|(shape, step): ([usize; 2], usize)| {
        let value = |n: usize| ((n * 7919 * step + 13) % 1009) as f32 / 1009.0 - 0.5;
        Literal::from_vec(&shape, (0..shape[0] * shape[1]).map(value).collect()).unwrap()
    })
}

fn options(approximate_functions: bool) -> DeviceOptions {
    DeviceOptions { approximate_functions, ..DeviceOptions::default() }
}

/// The bytes of the results.
fn run(device: Device, approximate: bool) -> Vec<Vec<u8>> {
    let mut session = Session::open_with(device, &options(approximate)).unwrap();
    let mut compiled = session.compile(&program(), "f", bind!()).unwrap();
    let [x, w] = inputs();
    let results = compiled.run(&[("x", x), ("w", w)]).unwrap();
    ["y", "z"].map(|name| results.get(name).unwrap().to_bytes()).into()
}

fn certificate(device: Device, approximate: bool) -> Certificate {
    let (program, binding, inputs) = (program(), bind!(), inputs());
    let on = Evaluation::new(device, &program, "f", &binding, &inputs);
    on.with(&options(approximate)).certify().unwrap()
}

/// Results are within the bound of the certificate, which is greater with approximate functions.
fn check(device: Device) {
    let [exact, approximate] = [false, true].map(|approximate| certificate(device, approximate));
    for (exact, approximate) in exact.outputs.iter().zip(&approximate.outputs) {
        let [least, most] = [exact, approximate].map(|output| {
            let bound = output.worst_case.as_ref().unwrap().absolute;
            let observed = output.observed.greatest;
            assert!(observed <= bound, "{}: {observed:e} > {bound:e}", output.name);
            bound
        });
        assert!(most > 2.0 * least, "{}: {most:e} beside {least:e}", exact.name);
    }
    assert_ne!(run(device, true), run(device, false));
}

#[test]
fn on_the_emulator() {
    check(Device::Emulator);
}

#[test]
fn on_the_device() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        let device: Device = name.parse().unwrap();
        if matches!(device, Device::Cuda(_)) {
            check(device);
        }
    }
}

#[test]
fn nothing_changes_where_there_are_no_such_instructions() {
    for device in [Device::Cpu, Device::Interpreter] {
        assert_eq!(run(device, true), run(device, false), "{device}");
        let [exact, approximate] =
            [false, true].map(|approximate| format!("{:?}", certificate(device, approximate)));
        assert_eq!(exact, approximate, "{device}");
    }
}

/// A plan states whether it has approximate functions. One without them is no substitute for one
/// that has.
#[test]
fn a_plan_keeps_to_what_it_was_compiled_for() {
    let exact = wengert::target("sm_90").unwrap();
    let approximate = exact.clone().with_approximate_functions();
    let texts = [exact, approximate].map(|target| {
        let plan = compile(&program(), "f", &bind!(), &target, &Options::default()).unwrap();
        let (text, ptx) = (plan.to_string(), wengert::ptx(&plan).unwrap());
        let asked = Session::open_with(Device::Emulator, &options(true)).unwrap().load_plan(plan);
        (text, ptx, asked.err().map(|error| error.to_string()))
    });
    let [(exact, exact_ptx, refused), (approximate, approximate_ptx, loaded)] = texts;
    assert!(refused.unwrap().contains("without approximate functions"));
    assert_eq!(loaded, None);
    assert!(!exact.contains("approx") && approximate.contains("approximate_functions=true"));
    for name in ["ex2.approx", "tanh.approx", "lg2.approx", "div.full"] {
        assert!(!exact_ptx.contains(name) && approximate_ptx.contains(name), "{name}");
    }
}

/// The initial values of variables do not depend on the option, although normally distributed ones
/// are computed by logarithms and roots.
#[test]
fn initial_values_stay() {
    let mut program = Program::new();
    let built = program.function("f", |f| {
        let x = f.input("x", i32("B"));
        let table = f.param("table", Embedding::new(16, 16));
        f.output("y", table.call(&x));
    });
    built.unwrap();
    let value = |approximate: bool| {
        let mut session = Session::open_with(Device::Emulator, &options(approximate)).unwrap();
        session.initialize(&program, 3).unwrap();
        session.variable("table.weight").unwrap().to_bytes()
    };
    assert_eq!(value(true), value(false));
}
