//! Optimisers against their formulas, computed by plain loops over f64. `torch/optim.rs` compares
//! all of them with PyTorch.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod accumulate;
mod ema;
mod groups;
mod halves;

use wengert::optim::{GRAD_NORM, LEARNING_RATE, Rate, clip_by_global_norm, global_norm};
use wengert::prelude::*;

const N: usize = 4;

fn target() -> Tensor {
    Tensor::constant(Literal::from_vec(&[N], vec![1.0f64, -2.0, 0.5, 3.0]).unwrap())
}

/// A model with one vector `p`, and the gradient of Σ (p − target)⁴/4.
fn step_program(step: impl FnOnce(&mut FunctionBuilder, &Tensor, &Tensor)) -> Program {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let p =
                f.state("p", Tensor::variable(TensorType::new(DType::F64, [N]), Initializer::Ones));
            let gradient = grad(&p, |p: &Tensor| ((p - target()).square().square() * 0.25).sum());
            step(f, &p, &gradient);
        })
        .unwrap();
    program
}

const NONE: [(&str, Literal); 0] = [];

/// A session on the interpreter with the program's initial variables.
fn begun(program: &Program) -> Session {
    let mut session = Session::open(Device::Interpreter).unwrap();
    session.initialize(program, 1).unwrap();
    session
}

/// The numbers of a variable.
fn numbers(session: &mut Session, path: &str) -> Vec<f64> {
    session.variable(path).unwrap().scalars().map(|x| x.to_f64()).collect()
}

/// Runs `@init` and then several steps. Returns p after each step.
fn run(program: &Program, steps: usize) -> Vec<Vec<f64>> {
    let mut session = Session::open(Device::Interpreter).unwrap();
    let none = NONE;
    session.compile(program, "init", bind!()).unwrap().run(&none).unwrap();
    let mut step = session.compile(program, "step", bind!()).unwrap();
    (0..steps)
        .map(|_| {
            step.run(&none).unwrap();
            session.variable("p").unwrap().as_slice::<f64>().unwrap().to_vec()
        })
        .collect()
}

/// The same steps by a loop. `update(t, i, p, g)` gives the next value of element i.
fn by_hand(steps: usize, mut update: impl FnMut(usize, usize, f64, f64) -> f64) -> Vec<Vec<f64>> {
    let target = [1.0, -2.0, 0.5, 3.0];
    let mut p = vec![1.0; N];
    (1..=steps)
        .map(|t| {
            for i in 0..N {
                p[i] = update(t, i, p[i], (p[i] - target[i]).powi(3));
            }
            p.clone()
        })
        .collect()
}

fn assert_same(a: &[Vec<f64>], b: &[Vec<f64>]) {
    for (t, (a, b)) in a.iter().zip(b).enumerate() {
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "step {}: {a} and {b}", t + 1);
        }
    }
}

#[test]
fn sgd() {
    let program = step_program(|f, p, g| Sgd::new(0.01).step(f, p, g));
    assert_eq!(program.get("step").unwrap().inputs.len(), 1, "plain gradient descent has no state");
    assert_same(&run(&program, 5), &by_hand(5, |_, _, p, g| p - 0.01 * g));

    let program =
        step_program(|f, p, g| Sgd::new(0.01).momentum(0.9).weight_decay(0.1).step(f, p, g));
    let mut v = [0.0; N];
    let expected = by_hand(5, |_, i, p, g| {
        v[i] = 0.9 * v[i] + (g + 0.1 * p);
        p - 0.01 * v[i]
    });
    assert_same(&run(&program, 5), &expected);

    let program = step_program(|f, p, g| Sgd::new(0.01).nesterov(0.9).named("down").step(f, p, g));
    assert_eq!(program.get("step").unwrap().inputs[1].name, "down.velocity.p");
    let mut v = [0.0; N];
    let expected = by_hand(5, |_, i, p, g| {
        v[i] = 0.9 * v[i] + g;
        p - 0.01 * (g + 0.9 * v[i])
    });
    assert_same(&run(&program, 5), &expected);
}

fn adam_by_hand(steps: usize, decay: f64) -> Vec<Vec<f64>> {
    let (mut m, mut v) = ([0.0; N], [0.0; N]);
    by_hand(steps, |t, i, p, g| {
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.999 * v[i] + 0.001 * g * g;
        let (m, v) = (m[i] / (1.0 - 0.9f64.powi(t as i32)), v[i] / (1.0 - 0.999f64.powi(t as i32)));
        p - 0.02 * decay * p - 0.02 * m / (v.sqrt() + 1e-8)
    })
}

#[test]
fn adam_and_adamw() {
    let program = step_program(|f, p, g| Adam::new(0.02).step(f, p, g));
    let names: Vec<&str> =
        program.get("step").unwrap().inputs.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["p", "adam.step", "adam.m.p", "adam.v.p"]);
    assert_same(&run(&program, 20), &adam_by_hand(20, 0.0));
    let program = step_program(|f, p, g| AdamW::new(0.02).weight_decay(0.3).step(f, p, g));
    assert_same(&run(&program, 20), &adam_by_hand(20, 0.3));
    let program =
        step_program(|f, p, g| AdamW::new(0.02).decay_where(|path, _| path != "p").step(f, p, g));
    assert_same(&run(&program, 20), &adam_by_hand(20, 0.0));
}

#[test]
fn rates_follow_their_schedule() {
    let rate = Rate::warmup_cosine(0.1, 4, 12, 0.01);
    let program = step_program(|f, p, g| Sgd::new(rate).step(f, p, g));
    let at = |t: usize| match t as f64 {
        t if t < 4.0 => 0.1 * t / 4.0,
        t => {
            let done = ((t - 4.0) / 8.0).min(1.0);
            0.01 + 0.5 * 0.09 * (1.0 + (std::f64::consts::PI * done).cos())
        }
    };
    let expected = by_hand(14, |t, _, p, g| p - at(t) * g);
    for (a, b) in run(&program, 14).iter().flatten().zip(expected.iter().flatten()) {
        assert!((a - b).abs() < 1e-5, "{a} and {b}: the rate is computed in f32");
    }
}

#[test]
fn halves_are_updated_in_f32_and_integers_stay() {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let p = Tensor::variable(TensorType::new(DType::F16, [2usize]), Initializer::Ones);
            let i = Tensor::variable(TensorType::new(DType::I32, [2usize]), Initializer::Ones);
            let model = f.state("model", (p, i));
            let gradient = grad(&model, |m: &(Tensor, Tensor)| m.0.convert(DType::F32).sum());
            Adam::new(0.5).step(f, &model, &gradient);
        })
        .unwrap();
    let step = program.get("step").unwrap();
    let moment = step.input_index("adam.m.model.0").unwrap();
    assert_eq!(step.input_type(moment).dtype, DType::F32);
    let mut session = Session::open(Device::Interpreter).unwrap();
    let none: [(&str, Literal); 0] = [];
    session.compile(&program, "init", bind!()).unwrap().run(&none).unwrap();
    session.compile(&program, "step", bind!()).unwrap().run(&none).unwrap();
    assert_eq!(session.variable("model.0").unwrap().get(0).to_f64(), 0.5);
    assert_eq!(session.variable("model.1").unwrap().as_slice::<i32>().unwrap(), [1, 1]);
}

#[test]
fn gradients_are_clipped_by_their_common_norm() {
    let mut program = Program::new();
    program
        .function("clip", |f| {
            let x = f.input("x", f64("2"));
            let y = f.input("y", f64(""));
            let ((a, b), norm) = clip_by_global_norm(&(x, y), 1.0);
            f.output("a", a);
            f.output("b", b);
            f.output("norm", norm);
        })
        .unwrap();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let mut clip = session.compile(&program, "clip", bind!()).unwrap();
    let mut run = |x: [f64; 2], y: f64| {
        let out = clip
            .run(&[("x", Literal::from_vec(&[2], x.to_vec()).unwrap()), ("y", y.into())])
            .unwrap();
        (
            out.get("a").unwrap().as_slice::<f64>().unwrap().to_vec(),
            out.scalar("b").unwrap(),
            out.scalar("norm").unwrap(),
        )
    };
    assert_eq!(run([2.0, 3.0], 6.0), (vec![2.0 / 7.0, 3.0 / 7.0], 6.0 / 7.0, 7.0));
    assert_eq!(run([0.0, 0.0], 0.5), (vec![0.0, 0.0], 0.5, 0.5));
    assert_eq!(run([0.0, 0.0], 0.0), (vec![0.0, 0.0], 0.0, 0.0));
}

#[test]
fn only_state_can_be_updated() {
    let error = Program::new().function("step", |f| {
        let p = f
            .param("p", Tensor::variable(TensorType::new(DType::F32, [2usize]), Initializer::Ones));
        let gradient = grad(&p, |p: &Tensor| p.square().sum());
        Sgd::new(0.1).step(f, &p, &gradient);
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("it is not state") && text.contains("main.rs:"), "{text}");
}

/// `rows × inner` times `inner × columns`, by plain loops.
fn product(a: &[f64], b: &[f64], [rows, inner, columns]: [usize; 3]) -> Vec<f64> {
    let element = |n: usize| {
        (0..inner).map(|k| a[n / columns * inner + k] * b[k * columns + n % columns]).sum()
    };
    (0..rows * columns).map(element).collect()
}

fn transposed(a: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    (0..rows * columns).map(|n| a[n % rows * columns + n / rows]).collect()
}

/// The formulas of Muon with the given numbers. The matrix has no more rows than columns.
fn muon_by_hand(
    p: &mut [f64],
    m: &mut [f64],
    g: &[f64],
    [rows, columns]: [usize; 2],
    rate: f64,
    decay: f64,
) {
    m.iter_mut().zip(g).for_each(|(m, g)| *m = 0.95 * *m + g);
    let u: Vec<f64> = m.iter().zip(g).map(|(m, g)| g + 0.95 * m).collect();
    let norm = u.iter().map(|u| u * u).sum::<f64>().sqrt() + 1e-7;
    let mut x: Vec<f64> = u.iter().map(|u| u / norm).collect();
    for _ in 0..5 {
        let a = product(&x, &transposed(&x, [rows, columns]), [rows, columns, rows]);
        let a2 = product(&a, &a, [rows, rows, rows]);
        let odd: Vec<f64> = a.iter().zip(&a2).map(|(a, a2)| -4.7750 * a + 2.0315 * a2).collect();
        let odd = product(&odd, &x, [rows, rows, columns]);
        x.iter_mut().zip(&odd).for_each(|(x, odd)| *x = 3.4445 * *x + odd);
    }
    let scale = 0.2 * (columns as f64).sqrt();
    p.iter_mut().zip(&x).for_each(|(p, x)| *p -= rate * (decay * *p + scale * x));
}

/// A wide matrix, a tall matrix, and a vector, which AdamW updates.
#[test]
fn muon() {
    let shapes = [("wide", [2, 3]), ("tall", [3, 2])];
    let start = [0.5, -1.0, 2.0, 0.25, 1.5, -0.75];
    let mut program = Program::new();
    program
        .function("step", |f| {
            let [wide, tall] = shapes.map(|(name, shape)| {
                f.state(
                    name,
                    Tensor::variable(TensorType::new(DType::F64, shape), Initializer::Zeros),
                )
            });
            let p =
                f.state("p", Tensor::variable(TensorType::new(DType::F64, [N]), Initializer::Ones));
            let model = (wide, (tall, p));
            let quartic = |t: &Tensor| (t.square().square() * 0.25).sum();
            let gradient = grad(&model, |(wide, (tall, p))| {
                quartic(wide) + quartic(tall) + ((p - target()).square().square() * 0.25).sum()
            });
            Muon::new(0.01)
                .weight_decay(0.1)
                .rest(AdamW::new(0.02).weight_decay(0.0))
                .step(f, &model, &gradient);
        })
        .unwrap();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let none: [(&str, Literal); 0] = [];
    session.compile(&program, "init", bind!()).unwrap().run(&none).unwrap();
    for (name, shape) in shapes {
        session.set_variable(name, &Literal::from_vec(&shape, start.to_vec()).unwrap()).unwrap();
    }
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let vectors = adam_by_hand(4, 0.0);
    let mut by_hand = [start.to_vec(), transposed(&start, [3, 2])].map(|p| (p, vec![0.0; 6]));
    for vector in &vectors {
        step.run(&none).unwrap();
        for (p, m) in &mut by_hand {
            let g: Vec<f64> = p.iter().map(|p| p.powi(3)).collect();
            muon_by_hand(p, m, &g, [2, 3], 0.01, 0.1);
        }
        let found =
            |name: &str| session.variable(name).unwrap().as_slice::<f64>().unwrap().to_vec();
        assert_same(&[found("wide")], &[by_hand[0].0.clone()]);
        assert_same(&[transposed(&found("tall"), [3, 2])], &[by_hand[1].0.clone()]);
        assert_same(&[found("p")], std::slice::from_ref(vector));
    }
    let state = program.get("step").unwrap();
    let names: Vec<&str> = state.inputs.iter().map(|i| i.name.as_str()).collect();
    for name in ["muon.step", "muon.momentum.wide", "muon.momentum.tall", "adamw.m.p", "adamw.v.p"]
    {
        assert!(names.contains(&name), "{names:?}");
    }
}

/// Steps of Muon are nearly orthogonal: the diagonal of `ooᵀ` is close to one, for the step
/// `−0.2·√columns·o`.
#[test]
fn steps_of_muon_are_nearly_orthogonal() {
    let gradient = Literal::from_vec(&[2, 3], vec![0.3, 2.0, -0.1, 1.0, 0.2, 0.7]).unwrap();
    let mut program = Program::new();
    program
        .function("step", |f| {
            let zeros = TensorType::new(DType::F64, [2, 3]);
            let p = f.state("p", Tensor::variable(zeros, Initializer::Zeros));
            let loss = |p: &Tensor| (p * Tensor::constant(gradient.clone())).sum();
            let gradient = grad(&p, loss);
            Muon::new(1.0)
                .weight_decay(0.0)
                .rest(AdamW::new(1.0).weight_decay(0.0))
                .step(f, &p, &gradient);
        })
        .unwrap();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let none: [(&str, Literal); 0] = [];
    session.compile(&program, "init", bind!()).unwrap().run(&none).unwrap();
    session.compile(&program, "step", bind!()).unwrap().run(&none).unwrap();
    let p = session.variable("p").unwrap();
    let o: Vec<f64> =
        p.as_slice::<f64>().unwrap().iter().map(|p| -p / (0.2 * 3f64.sqrt())).collect();
    let gram = product(&o, &transposed(&o, [2, 3]), [2, 3, 2]);
    assert!(
        gram[1].abs() < 0.35 && (gram[0] - 1.0).abs() < 0.6 && (gram[3] - 1.0).abs() < 0.6,
        "{gram:?}"
    );
}

/// Reported numbers are outputs only: the updates keep every bit.
#[test]
fn reports_change_no_update() {
    let rate = || Rate::warmup_cosine(0.1, 3, 10, 0.01);
    let step = |reports: bool| {
        step_program(move |f, p, gradient| {
            let optimiser = AdamW::new(rate());
            match reports {
                true => {
                    optimiser.report_rate().step(f, p, gradient);
                    f.output(GRAD_NORM, global_norm(gradient));
                }
                false => optimiser.step(f, p, gradient),
            }
        })
    };
    assert_eq!(run(&step(true), 6), run(&step(false), 6));
    let constant = step_program(|f, p, g| Sgd::new(0.1).report_rate().step(f, p, g));
    let muon = step_program(|f, p, g| Muon::new(rate()).report_rate().step(f, p, g));
    for (program, wanted) in [(constant, [0.1, 0.1]), (muon, [0.1 / 3.0, 0.2 / 3.0])] {
        let mut session = Session::open(Device::Interpreter).unwrap();
        let none: [(&str, Literal); 0] = [];
        session.compile(&program, "init", bind!()).unwrap().run(&none).unwrap();
        let mut step = session.compile(&program, "step", bind!()).unwrap();
        for wanted in wanted {
            let found = step.run(&none).unwrap().scalar(LEARNING_RATE).unwrap();
            assert!((found - wanted).abs() < 1e-6, "{found}, not {wanted}");
        }
    }
    // The norm of (p − target)³ at p = 1.
    let mut session = Session::open(Device::Interpreter).unwrap();
    let none: [(&str, Literal); 0] = [];
    let program = step(true);
    session.compile(&program, "init", bind!()).unwrap().run(&none).unwrap();
    let outputs = session.compile(&program, "step", bind!()).unwrap().run(&none).unwrap();
    let norm = [0.0f64, 27.0, 0.125, -8.0].iter().map(|g| g * g).sum::<f64>().sqrt();
    assert!((outputs.scalar(GRAD_NORM).unwrap() - norm).abs() < 1e-12);
}
