//! Probes: hidden outputs, the same on every device, without an effect on anything.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

use wengert::core::op::ProbeKind;
use wengert::operators::{call, with_derivative};
use wengert::prelude::*;
use wengert::{Outputs, pipeline, probes};

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
                // Watches the cotangent, too, and a value within a function.
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
        assert_eq!(seen.iter().collect::<Vec<_>>(), unseen.iter().collect::<Vec<_>>(), "{device}");
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
    // A plan has them as outputs, in its text and file too.
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
