//! Probes: hidden outputs that are the same on every device and do not affect the results.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::control::{cond, fori, fori_upto, scan, scan_checkpointed, while_at_most, while_loop};
use wengert::core::op::ProbeKind;
use wengert::operators::{call, with_derivative};
use wengert::prelude::*;
use wengert::{Location, Outputs, Probed, pipeline, probes};

fn run(program: &Program, device: Device, x: &[f32]) -> Outputs {
    let x = Literal::from_vec(&[x.len()], x.to_vec()).unwrap();
    let mut session = Session::open(device).unwrap();
    session.compile(program, "f", bind!()).unwrap().run(&[("x", x)]).unwrap()
}

fn program(watched: bool) -> Program {
    let mut program = Program::new();
    let watch = move |t: &Tensor, name: &str| if watched { t.probe(name) } else { t.clone() };
    program
        .function("f", |f| {
            let x = f.input("x", f32("3"));
            let loss = |x: &Tensor| {
                let h = watch(&x.exp(), "h");
                // Also probes the cotangent, and a value inside a function.
                let h = with_derivative(&h, |ct| watch(ct, "ct"));
                let y = call("inner", &h, |h| watch(&h.log(), "inner") * 2.0);
                let y = if watched { y.probe_finite("y") } else { y };
                y.sum()
            };
            let (loss, gradient) = value_and_grad(&x, loss);
            f.output("loss", loss);
            f.output("gradient", gradient);
        })
        .unwrap();
    program
}

#[test]
fn probes_show_values_and_cotangents_and_change_no_result() {
    for device in [Device::Interpreter, Device::Cpu, Device::Emulator] {
        let x = [0.5f32, 1.0, 2.0];
        let (seen, unseen) = (run(&program(true), device, &x), run(&program(false), device, &x));
        assert_eq!(
            seen.iter().unwrap().collect::<Vec<_>>(),
            unseen.iter().unwrap().collect::<Vec<_>>(),
            "{device}"
        );
        assert!(unseen.probes().is_empty());
        let names: Vec<&str> = seen.probes().iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["h", "inner", "y", "ct"], "{device}");
        let probe = |name| seen.probes().iter().find(|p| p.name == name).unwrap();
        for (h, x) in probe("h").value.scalars().zip(x) {
            assert!((h.to_f64() - f64::from(x).exp()).abs() < 1e-5);
        }
        // d loss/dh = 2/h
        for (ct, h) in probe("ct").value.scalars().zip(probe("h").value.scalars()) {
            assert!((ct.to_f64() - 2.0 / h.to_f64()).abs() < 1e-6, "{device}");
        }
        assert_eq!((probe("y").kind, &probe("y").value), (ProbeKind::Finite, &Literal::from(true)));
        assert!(probe("h").location.to_string().contains("probes.rs:"), "{}", probe("h").location);
        assert!(seen.get("probe.print.h").is_err(), "a probe is no output");
    }
}

#[test]
fn a_probe_tells_of_what_is_not_finite() {
    for device in [Device::Interpreter, Device::Cpu, Device::Emulator] {
        // ln(eˣ) overflows at 200.
        let seen = run(&program(true), device, &[0.0, 200.0, 1.0]);
        let probe = seen.probes().iter().find(|p| p.name == "y").unwrap();
        assert_eq!(probe.value, Literal::from(false), "{device}");
    }
}

#[test]
fn probes_of_one_name_are_numbered_and_those_of_values_that_are_not_needed_are_seen_too() {
    let mut program = Program::new();
    program
        .function("f", |f| {
            let x = f.input("x", f32("3"));
            let last = (0..3).fold(x.clone(), |h, _| (h * 2.0).probe("h"));
            last.sqrt().probe("unused");
            f.output("y", last);
        })
        .unwrap();
    let seen = run(&program, Device::Cpu, &[1.0, 4.0, 9.0]);
    let names: Vec<&str> = seen.probes().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["h", "h.2", "h.3", "unused"]);
    assert_eq!(seen.probes()[2].value.as_slice::<f32>().unwrap(), [8.0, 32.0, 72.0]);
    // They are outputs of a plan, and remain so in its text and file.
    let plan = pipeline::compile(
        &program,
        "f",
        &bind!(),
        &wengert::core::Target::cpu(),
        &pipeline::Options::default(),
    )
    .unwrap();
    let outputs: Vec<_> = plan.outputs.iter().filter_map(|o| probes::of_output(&o.name)).collect();
    assert_eq!(outputs.len(), 4);
    let error = program.function("g", |f| {
        let x = f.input("x", i32("3"));
        f.output("y", x.probe_finite("x"));
    });
    assert!(error.unwrap_err().to_string().contains("probe"));
}

/// The probed values of a program with probes in control flow, on every device. The outputs are
/// those of the program without probes.
fn watched(build: impl Fn(&mut FunctionBuilder, &dyn Fn(&Tensor, &str) -> Tensor)) -> Vec<Probed> {
    let program = |watches: bool| {
        let mut program = Program::new();
        let watch = move |t: &Tensor, name: &str| if watches { t.probe(name) } else { t.clone() };
        program.function("f", |f| build(f, &watch)).unwrap();
        program
    };
    let mut all: Vec<Vec<Probed>> = Vec::new();
    for device in [Device::Interpreter, Device::Cpu, Device::Emulator] {
        let x = [0.5f32, 1.0, 2.0];
        let (seen, unseen) = (run(&program(true), device, &x), run(&program(false), device, &x));
        assert_eq!(
            seen.iter().unwrap().collect::<Vec<_>>(),
            unseen.iter().unwrap().collect::<Vec<_>>(),
            "{device}"
        );
        let mut probes = seen.probes().to_vec();
        probes.iter_mut().for_each(|p| p.location = Location::Unknown);
        all.push(probes);
    }
    assert!(all.iter().all(|probes| *probes == all[0]), "{all:?}");
    all.swap_remove(0)
}

fn numbers(literal: &Literal) -> Vec<f64> {
    literal.scalars().map(|s| s.to_f64()).collect()
}

#[test]
fn a_probe_in_a_loop_shows_every_step() {
    let probes = watched(|f, watch| {
        let x = f.input("x", f32("3"));
        let (last, _) = scan(&Tensor::constant(0.0f32), &x, |sum, x| {
            let sum = watch(&(sum + x), "sum");
            (sum.probe_finite("finite"), sum)
        });
        f.output("last", last);
    });
    let sum = probes.iter().find(|p| p.name == "sum").unwrap();
    assert_eq!((numbers(&sum.value), &sum.seen), (vec![0.5, 1.5, 3.5], &None));
    let finite = probes.iter().find(|p| p.name == "finite").unwrap();
    assert_eq!((&finite.value, &finite.seen), (&Literal::from(true), &None));
}

#[test]
fn a_probe_in_a_loop_of_unknown_length_says_which_steps_ran() {
    let probes = watched(|f, watch| {
        let x = f.input("x", f32("3"));
        // y doubles until it is at least 5. From 3.5 the body runs once.
        let y = while_at_most(4usize, &x.sum(), |y| y.lt(5.0), |y| watch(&(y * 2.0), "y"));
        let count = x.sum().convert(DType::I32) - 1;
        let z = fori_upto(&count, 4usize, &x.sum(), |_, z| watch(&(z + 1.0), "z"));
        f.output("sum", y + z);
    });
    assert_eq!(probes.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["y", "z"]);
    assert_eq!(numbers(&probes[0].value), [7.0, 0.0, 0.0, 0.0]);
    assert_eq!(numbers(probes[0].seen.as_ref().unwrap()), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(numbers(&probes[1].value), [4.5, 5.5, 0.0, 0.0]);
    assert_eq!(numbers(probes[1].seen.as_ref().unwrap()), [1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn a_probe_in_a_branch_says_whether_it_was_taken() {
    let probes = watched(|f, watch| {
        let x = f.input("x", f32("3"));
        let taken = |name: &'static str, y: f64| {
            cond(&x.sum().gt(y), || watch(&(&x * 2.0), name), || watch(&(&x * 3.0), "otherwise"))
        };
        f.output("sum", taken("taken", 3.0) + taken("not", 4.0));
    });
    let names: Vec<&str> = probes.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["taken", "otherwise", "not", "otherwise.2"]);
    let seen: Vec<f64> = probes.iter().flat_map(|p| numbers(p.seen.as_ref().unwrap())).collect();
    assert_eq!(seen, [1.0, 0.0, 0.0, 1.0]);
    assert_eq!(numbers(&probes[0].value), [1.0, 2.0, 4.0]);
    assert_eq!(numbers(&probes[1].value), [0.0; 3]);
    assert_eq!(numbers(&probes[3].value), [1.5, 3.0, 6.0]);
}

#[test]
fn probes_in_nested_control_flow_are_stacked_from_the_outside() {
    let probes = watched(|f, watch| {
        let x = f.input("x", f32("3"));
        let step = |sum: &Tensor, x: &Tensor| {
            let inner = |i: &Tensor, y: &Tensor| {
                // In the second round of each step, inside a call.
                let other =
                    || call("other", y, |y| watch(&(y * 10.0), "y").log().probe_finite("log"));
                cond(&i.eq(1), other, || y - 1.0)
            };
            let y = fori(2usize, x, inner);
            (sum + &y, Vec::<Tensor>::new())
        };
        f.output("sum", scan(&Tensor::constant(0.0f32), &x, step).0);
    });
    let y = probes.iter().find(|p| p.name == "y").unwrap();
    assert_eq!(y.value.shape(), [3, 2]);
    assert_eq!(numbers(&y.value), [0.0, -5.0, 0.0, 0.0, 0.0, 10.0]);
    assert_eq!(numbers(y.seen.as_ref().unwrap()), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    // log −5 and log 0.
    assert_eq!(probes.iter().find(|p| p.name == "log").unwrap().value, Literal::from(false));
}

#[test]
fn a_while_without_a_bound_says_whether_all_of_its_values_were_finite() {
    let probes = watched(|f, _| {
        let x = f.input("x", f32("3"));
        let below = |y: &Tensor| y.lt(5.0);
        let finite = while_loop(&x.sum(), below, |y| (y * 2.0).probe_finite("finite"));
        // The first value is −∞, the second is finite.
        let start = Tensor::constant(0.0f32);
        let step = |y: &Tensor| (y.log().probe_finite("infinite") + x.sum()).max(1.0) + 4.0;
        // Also in a loop with a bound.
        let around = |_: &Tensor, y: &Tensor| y + while_loop(&start, below, step);
        f.output("y", finite + fori(2usize, &start, around));
    });
    let told: Vec<_> = probes.iter().map(|p| (p.name.as_str(), p.value.clone(), &p.seen)).collect();
    assert_eq!(told, [("finite", true.into(), &None), ("infinite", false.into(), &None)]);
}

#[test]
fn a_probe_whose_steps_have_no_bound_is_refused_with_its_line() {
    let refused = |build: &dyn Fn(&Tensor) -> Tensor| {
        let mut program = Program::new();
        program
            .function("f", |f| {
                let x = f.input("x", f32("3"));
                f.output("y", build(&x));
            })
            .unwrap();
        let mut session = Session::open(Device::Cpu).unwrap();
        session.compile(&program, "f", bind!()).err().unwrap().to_string()
    };
    let error = refused(&|x| while_loop(&x.sum(), |y| y.lt(5.0), |y| (y * 2.0).probe("y")));
    assert!(error.contains("no bound") && error.contains("probes.rs:"), "{error}");
    let error =
        refused(&|x| while_at_most(4usize, &x.sum(), |y| y.probe("y").lt(5.0), |y| y * 2.0));
    assert!(error.contains("in the condition") && error.contains("probes.rs:"), "{error}");
}

#[test]
fn what_a_checkpoint_computes_again_is_reported_once() {
    let probes = watched(|f, watch| {
        let x = f.input("x", f32("3"));
        let loss = |x: &Tensor| {
            let block = |x: &Tensor| watch(&x.sin(), "h").exp();
            let y = checkpoint(Checkpoint::nothing(), x, block);
            let step =
                |sum: &Tensor, x: &Tensor| (sum * watch(&x.cos(), "step"), Vec::<Tensor>::new());
            scan_checkpointed(1, &y.sum(), x, step).0
        };
        let (loss, gradient) = value_and_grad(&x, loss);
        f.output("loss", loss);
        f.output("gradient", gradient);
    });
    let names: Vec<&str> = probes.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["h", "step"]);
    let cosines = [0.5f64, 1.0, 2.0].map(f64::cos);
    assert!(numbers(&probes[1].value).iter().zip(cosines).all(|(got, x)| (got - x).abs() < 1e-6));
}
