//! A small network after 100 steps of each optimiser and schedule. `optim.py` wrote the file.

use super::{apart, arrays, doubles};
use wengert::data::Arrays;
use wengert::optim::{Ema, Groups, LEARNING_RATE, Rate, clip_by_value};
use wengert::prelude::*;

const STEPS: usize = 100;
const RATE: f64 = 0.02;
/// The bound of rates, which are computed in f32, and of what follows from them.
const SCHEDULED: f64 = 2e-6;

#[derive(Differentiable)]
struct Network {
    a: Tensor,
    bias: Tensor,
    cube: Tensor,
    b: Tensor,
}

impl Network {
    fn new(columns: usize) -> Self {
        let zeros = |shape: &[usize]| Tensor::variable(f64_of(shape), Initializer::Zeros);
        Network {
            a: zeros(&[6, 6]),
            bias: zeros(&[6]),
            cube: zeros(&[2, 6, 6]),
            b: zeros(&[6, columns]),
        }
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let h = (x.dot(&self.a) + &self.bias).tanh();
        let h = Tensor::einsum("be,kec->kbc", &[&h, &self.cube]).tanh().mean_axes(0);
        (h.dot(&self.b) - y).square().mean()
    }
}

fn f64_of(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F64, shape.iter().copied())
}

type Step<'a> = &'a dyn Fn(&mut FunctionBuilder, &Network, &Network);

/// Trains the network as the file did, and returns the greatest distance of a variable from that of
/// the file, and the rates.
fn trained(file: &Arrays, name: &str, step: Step<'_>) -> (f64, Vec<f64>) {
    let columns = file[&format!("end.{name}.b")].shape()[1];
    let mut program = Program::new();
    program
        .function("step", |f| {
            let (x, y) = (f.input("x", f64_of(&[8, 6])), f.input("y", f64_of(&[8, columns])));
            let network = f.state("network", Network::new(columns));
            let gradient = grad(&network, |network| network.loss(&x, &y));
            step(f, &network, &gradient);
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let batch = |all: &Literal, number: usize, shape: &[usize]| {
        let count: usize = shape.iter().product();
        let numbers = doubles(all)[number * count..][..count].to_vec();
        Literal::from_vec(shape, numbers).unwrap()
    };
    for path in ["a", "bias", "cube", "b"] {
        let begin = &file[&format!("begin.{path}")];
        let begin = match path {
            "b" => {
                let all = doubles(begin);
                let kept = |row: usize| all[6 * row..6 * row + columns].to_vec();
                let rows: Vec<f64> = (0..6).flat_map(kept).collect();
                Literal::from_vec(&[6, columns], rows).unwrap()
            }
            _ => begin.clone(),
        };
        session.set_variable(&format!("network.{path}"), &begin).unwrap();
    }
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let reports = program.get("step").unwrap().outputs.iter().any(|o| o.name == LEARNING_RATE);
    let mut rates = vec![];
    for n in 0..STEPS {
        let x = batch(&file["x"], n % 4, &[8, 6]);
        let y = batch(&file[&format!("y.{columns}")], n % 4, &[8, columns]);
        let outputs = step.run(&[("x", x), ("y", y)]).unwrap();
        if reports {
            rates.push(outputs.scalar(LEARNING_RATE).unwrap());
        }
    }
    let mut furthest: f64 = 0.0;
    for (prefix, path) in [("end", "network"), ("average", "ema.network")] {
        for variable in ["a", "bias", "cube", "b"] {
            if let Some(wanted) = file.get(&format!("{prefix}.{name}.{variable}")) {
                let found = session.variable(&format!("{path}.{variable}")).unwrap();
                furthest = furthest.max(apart(&found, wanted));
            }
        }
    }
    (furthest, rates)
}

/// Compares cases with the file, and prints a table of distances.
fn compare(bound: f64, cases: &[(&str, Step<'_>)]) {
    let file = arrays("optim");
    let mut wrong = vec![];
    for (name, step) in cases {
        let (apart, rates) = trained(&file, name, step);
        println!("| {name} | {apart:.1e} |");
        if apart > bound {
            wrong.push(format!("{name}: weights are {apart:.1e} apart"));
        }
        let Some(wanted) = file.get(&format!("rate.{name}")) else { continue };
        assert_eq!(rates.len(), STEPS);
        for (n, (rate, wanted)) in rates.into_iter().zip(doubles(wanted)).enumerate() {
            if rate.is_nan() || (rate - wanted).abs() > SCHEDULED * RATE {
                wrong.push(format!("{name}: the rate of step {} is {rate}, not {wanted}", n + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! with {
    ($optimiser:expr) => {
        &|f, network, gradient| $optimiser.step(f, network, gradient)
    };
}

#[test]
fn optimisers() {
    compare(
        super::BOUND,
        &[
            ("sgd", with!(Sgd::new(RATE))),
            ("sgd_nesterov", with!(Sgd::new(RATE).nesterov(0.9).weight_decay(0.1))),
            ("adam", with!(Adam::new(RATE))),
            ("adamw", with!(AdamW::new(RATE).betas(0.8, 0.95).weight_decay(0.1))),
            ("lion", with!(Lion::new(0.003))),
            ("lion_decay", with!(Lion::new(0.003).betas(0.95, 0.98).weight_decay(0.3))),
            ("rmsprop", with!(RmsProp::new(0.003))),
            (
                "rmsprop_centered",
                with!(
                    RmsProp::new(0.003)
                        .alpha(0.9)
                        .momentum(0.8)
                        .centered()
                        .weight_decay(0.1)
                        .epsilon(1e-3)
                ),
            ),
            ("adagrad", with!(Adagrad::new(RATE))),
            (
                "adagrad_decay",
                with!(
                    Adagrad::new(RATE)
                        .rate_decay(0.05)
                        .weight_decay(0.1)
                        .initial_sum(0.01)
                        .epsilon(1e-4)
                ),
            ),
            ("adafactor", with!(Adafactor::new(RATE))),
            (
                "adafactor_decay",
                with!(
                    Adafactor::new(0.2)
                        .exponent(0.6)
                        .epsilons(1e-3, 0.5)
                        .clipping(1.2)
                        .weight_decay(0.1)
                ),
            ),
            (
                "adafactor_absolute",
                with!(
                    Adafactor::new(0.003).epsilons(1e-10, 0.0).clipping(None).relative_step(false)
                ),
            ),
            (
                "adafactor_clipped",
                with!(
                    Adafactor::new(0.01)
                        .epsilons(1e-10, 0.0)
                        .exponent(0.7)
                        .clipping(0.5)
                        .relative_step(false)
                ),
            ),
        ],
    );
}

#[test]
fn soap() {
    compare(
        super::BOUND,
        &[
            ("soap", with!(Soap::new(RATE))),
            ("soap_often", with!(Soap::new(RATE).betas(0.9, 0.98).weight_decay(0.2).interval(3))),
            ("soap_columns", with!(Soap::new(RATE).largest(5))),
        ],
    );
}

#[test]
fn groups_averages_and_clipped_values() {
    let groups =
        || Groups::new().no_decay("*.bias").freeze("network.b").scale_rate("network.cube", 10.0);
    compare(
        super::BOUND,
        &[
            ("groups", with!(AdamW::new(RATE).weight_decay(0.1).groups(groups()))),
            ("ema", &|f, network, gradient| {
                AdamW::new(RATE).step(f, network, gradient);
                Ema::new(0.9).step(f, network);
            }),
            ("clip", &|f, network, gradient| {
                Sgd::new(0.1).step(f, network, &clip_by_value(gradient, 0.05));
            }),
        ],
    );
}

#[test]
fn schedules() {
    let rates = [
        ("linear", Rate::linear(0.1 * RATE, 0.8 * RATE, 60)),
        ("exponential", Rate::exponential(RATE, 0.95)),
        ("step_decay", Rate::step_decay(RATE, 30, 0.3)),
        ("restarts", Rate::cosine_restarts(RATE, 1e-3, 15, 1)),
        ("restarts_doubled", Rate::cosine_restarts(RATE, 1e-3, 10, 2)),
        ("restarts_tripled", Rate::cosine_restarts(RATE, 0.0, 7, 3)),
        ("one_cycle", Rate::one_cycle(RATE, 100, 0.3)),
        ("inverse_square_root", Rate::inverse_square_root(RATE, 16)),
        ("warmup", Rate::exponential(RATE, 0.97).warmup(20)),
    ];
    for (name, rate) in rates {
        compare(SCHEDULED, &[(name, with!(Sgd::new(rate.clone()).report_rate()))]);
    }
}
