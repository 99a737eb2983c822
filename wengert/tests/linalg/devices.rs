//! Linear algebra in f32 on the CPU and on the emulated GPU with its sanitizers, compared with the
//! plan interpreter.

use super::{draw, eye, function, spd, turned};
use wengert::core::Target;
use wengert::core::graph::Program;
use wengert::core::plan::interpret;
use wengert::linalg::{cholesky, det, eigh, matrix_exp, qr, solve, svd};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;

type Function = fn(&Tensor) -> Vec<Tensor>;

const FUNCTIONS: &[(&str, usize, Function)] = &[
    ("cholesky", 5, |a| vec![cholesky(&spd(a))]),
    ("cholesky in blocks", 34, |a| vec![cholesky(&spd(a))]),
    ("solve", 5, |a| vec![solve(&(a + turned(a)), a)]),
    ("solve in blocks", 33, |a| vec![solve(&(a + turned(a)), &a.slice_axis(1, 0, 2))]),
    ("eigh", 4, |a| {
        let (w, v) = eigh(&(a + a.matrix_transpose()));
        vec![w, &v * &v]
    }),
    ("qr", 4, |a| {
        let (q, r) = qr(a, false);
        vec![q, r]
    }),
    ("svd", 3, |a| vec![svd(a, false).1]),
    ("matrix_exp", 3, |a| vec![matrix_exp(a)]),
    ("gradients", 3, |a| {
        vec![
            grad(a, |a| cholesky(&spd(a)).sum()),
            grad(a, |a| solve(&(a + eye(a) * 3.0), a).sum()),
            grad(a, |a| eigh(a).1.square().square().sum()),
            grad(a, det),
        ]
    }),
];

fn check(device: Device, target: &Target) {
    for (name, n, f) in FUNCTIONS {
        let a = draw(*n as u64 + 40, &[*n, *n]).convert(DType::F32);
        let function = function(&[a.ty()], |x| f(&x[0])).unwrap_or_else(|e| panic!("{name}: {e}"));
        let program = Program::from_functions(vec![function]).unwrap();
        let plan = compile(&program, "f", &bind!(), target, &Options::default()).unwrap();
        let expected = interpret(&plan, std::slice::from_ref(&a), &[]).unwrap().outputs;
        let mut session = Session::open(device).unwrap();
        let mut compiled = session.load_plan(plan).unwrap();
        // Twice: state left by the first run must not affect the second.
        for _ in 0..2 {
            let found =
                compiled.run(&[("x0", &a)]).unwrap_or_else(|e| panic!("{name} on {device}: {e}"));
            for ((output, found), expected) in found.iter().unwrap().zip(&expected) {
                for (x, y) in found.scalars().zip(expected.scalars()) {
                    let (x, y) = (x.to_f64(), y.to_f64());
                    assert!(
                        (x - y).abs() <= 2e-4 * y.abs().max(1.0),
                        "{name}.{output} on {device}: {x}, not {y}"
                    );
                }
            }
        }
    }
}

#[test]
fn on_the_cpu() {
    check(Device::Cpu, &Target::cpu());
}

#[test]
fn on_the_emulator() {
    check(Device::Emulator, &wengert::target("sm_90").unwrap());
}
