//! Sessions: variables, checks of inputs, caching.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::graph::Program;
use wengert::core::{Initializer, Tensor};
use wengert::{Binding, DType, Device, DeviceOptions, Literal, Session, TensorType, bind};

fn vector(values: &[f32]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

/// `init`: w = ones, without a random key. `step`: w ← w + 0.5·x, loss = Σ w. `read`: Σ w·x.
fn program() -> Program {
    let f32s = |dim: &'static str| TensorType::new(DType::F32, [dim]);
    let w = || Tensor::variable(TensorType::new(DType::F32, [3usize]), Initializer::Ones);
    let mut program = Program::new();
    program
        .function("init", |f| f.create("w", &Tensor::constant(vector(&[1.0, 1.0, 1.0]))))
        .unwrap();
    program
        .function("step", |f| {
            let x = f.input("x", TensorType::new(DType::F32, [3usize]));
            let w = f.state("w", w());
            let next = &w + &(0.5 * &x);
            f.update("w", &next);
            f.output("loss", next.sum());
        })
        .unwrap();
    program
        .function("read", |f| {
            let x = f.input("x", TensorType::new(DType::F32, [3usize]));
            let w = f.param("w", w());
            f.output("y", (&w * &x).sum());
        })
        .unwrap();
    program
        .function("double", |f| {
            let x = f.input("x", f32s("B"));
            f.output("y", &x + &x);
        })
        .unwrap();
    program
}

fn devices() -> Vec<Device> {
    Device::all()
}

#[test]
fn a_device_of_the_cpu_has_its_own_threads() {
    let open = |threads| {
        let options = DeviceOptions { threads, ..DeviceOptions::default() };
        Session::open_with(Device::Cpu, &options)
    };
    for threads in [0, 4097] {
        let error = open(Some(threads)).unwrap_err();
        assert_eq!(error.message, format!("{threads} threads"));
        assert!(error.help.is_some_and(|help| help.contains("1 to 4096 threads")));
    }
    let x = Literal::from_vec(&[70_000], (0..70_000).map(|n| n as f32).collect()).unwrap();
    let doubled = |threads| {
        let mut session = open(threads).unwrap();
        let mut double = session.compile(&program(), "double", bind!(B = 70_000)).unwrap();
        double.run(&[("x", &x)]).unwrap().get("y").unwrap().clone()
    };
    assert_eq!(doubled(Some(1)), doubled(None));
    assert_eq!(doubled(Some(3)), doubled(None));
}

#[test]
fn state_is_shared_and_replaced() {
    for device in devices() {
        let program = program();
        let mut session = Session::open(device).unwrap();
        let mut step = session.compile(&program, "step", bind!()).unwrap();
        let x = vector(&[2.0, 4.0, 6.0]);
        let error = step.run(&[("x", &x)]).unwrap_err().to_string();
        assert!(
            error.contains("@step: variable `w` has no value") && error.contains("`init`"),
            "{error}"
        );

        session.compile(&program, "init", bind!()).unwrap().run::<Literal>(&[]).unwrap();
        assert_eq!(session.variable("w").unwrap(), vector(&[1.0, 1.0, 1.0]));
        assert_eq!(step.run(&[("x", &x)]).unwrap().scalar("loss").unwrap(), 9.0);
        let mut read = session.compile(&program, "read", bind!()).unwrap();
        assert_eq!(
            read.run(&[("x", &x)]).unwrap().scalar("y").unwrap(),
            2.0 * 2.0 + 3.0 * 4.0 + 4.0 * 6.0
        );

        // A failed run changes no variable. Nor does a run that only reads.
        assert!(step.run(&[("x", &Literal::zeros(DType::F64, &[3]))]).is_err());
        assert_eq!(session.variable("w").unwrap(), vector(&[2.0, 3.0, 4.0]));
        session.set_variable("w", &vector(&[0.0])).unwrap();
        let error = step.run(&[("x", &x)]).unwrap_err().to_string();
        assert!(
            error.contains("variable `w` is f32[3] here, the tensor given is f32[1]"),
            "{error}"
        );
    }
}

#[test]
fn inputs_are_checked_by_name_and_type() {
    for device in devices() {
        let program = program();
        let mut session = Session::open(device).unwrap();
        let mut double = session.compile(&program, "double", bind!(B = 2)).unwrap();
        let x = vector(&[1.0, 2.0]);
        assert_eq!(double.run(&[("x", &x)]).unwrap().get("y").unwrap(), &vector(&[2.0, 4.0]));
        let mut says = |inputs: &[(&str, &Literal)], text: &str| {
            let error = double.run(inputs).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        says(&[], "input `x` (f32[2]) is not given");
        says(&[("z", &x)], "inputs are `x`");
        says(&[("x", &x), ("x", &x)], "twice");
        says(&[("x", &vector(&[1.0]))], "input `x` is f32[2] here, the tensor given is f32[1]");
        let outputs = double.run(&[("x", &x)]).unwrap();
        assert!(outputs.get("z").unwrap_err().to_string().contains("outputs are `y`"));
        assert!(outputs.scalar("y").unwrap_err().message.contains("not a single number"));
        assert_eq!(outputs.iter().unwrap().map(|(name, _)| name).collect::<Vec<_>>(), ["y"]);

        let mut compile = |binding: Binding| {
            session.compile(&program, "double", binding).unwrap_err().to_string()
        };
        assert!(compile(bind!()).contains("not bound"));
        assert!(compile(bind!(B = 2, C = 3)).contains("no dimension variable `C`"));
        assert!(
            session
                .compile(&program, "triple", bind!())
                .unwrap_err()
                .to_string()
                .contains("@double")
        );
    }
}

#[test]
fn one_program_serves_any_batch_size() {
    for device in devices() {
        let program = program();
        let mut session = Session::open(device).unwrap();
        for size in [1usize, 3, 7, 3] {
            let mut double = session.compile(&program, "double", bind!(B = size as i64)).unwrap();
            let x: Vec<f32> = (0..size).map(|i| i as f32).collect();
            let y: Vec<f32> = x.iter().map(|v| v * 2.0).collect();
            assert_eq!(double.run(&[("x", vector(&x))]).unwrap().get("y").unwrap(), &vector(&y));
        }
    }
}

#[test]
fn variables_travel_through_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let program = program();
    let mut session = Session::open(Device::Interpreter).unwrap();
    session.set_variable("w", &vector(&[1.0, 2.0, 3.0])).unwrap();
    session.set_variable("optimizer.step", &7u32.into()).unwrap();
    session.save(&path).unwrap();
    let mut other = Session::open(Device::Interpreter).unwrap();
    other.load(&path).unwrap();
    assert_eq!(other.variables().unwrap(), session.variables().unwrap());
    session.save_for(&path, &program, "read").unwrap();
    let mut third = Session::open(Device::Interpreter).unwrap();
    third.load(&path).unwrap();
    assert_eq!(third.variables().unwrap().into_keys().collect::<Vec<_>>(), ["w"]);
    assert!(third.variable("optimizer.step").unwrap_err().to_string().contains("`w`"));
}

#[test]
fn kernels_are_timed_where_that_is_asked_for() {
    let program = program();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.compile(&program, "init", bind!()).unwrap().run::<Literal>(&[]).unwrap();
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let x = vector(&[2.0, 4.0, 6.0]);
    step.run(&[("x", &x)]).unwrap();
    assert!(step.profile().is_empty(), "nobody has asked");
    step.measure().unwrap();
    (0..3).for_each(|_| drop(step.run(&[("x", &x)]).unwrap()));
    let profile = step.profile();
    assert!(
        !profile.is_empty() && profile.iter().all(|k| k.runs == 3 && k.bytes > 0),
        "{profile:?}"
    );
    assert!(profile.windows(2).all(|pair| pair[0].time >= pair[1].time), "{profile:?}");
    // `measure` discards the earlier measurements.
    step.measure().unwrap();
    step.run(&[("x", &x)]).unwrap();
    assert!(step.profile().iter().all(|k| k.runs == 1));

    let mut on_the_interpreter = Session::open(Device::Interpreter).unwrap();
    let read = on_the_interpreter.compile(&program, "read", bind!()).unwrap();
    assert!(read.measure().unwrap_err().to_string().contains("on the CPU only"));
}
