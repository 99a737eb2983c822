//! Layers and losses beyond their values in double precision, which `torch` compares: caches,
//! edges, half precision, devices.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod lengths;

use wengert::nn::loss::{BinaryCrossEntropy, CrossEntropy, Ctc, Reduction};
use wengert::nn::{
    CrossAttention, GroupNorm, GroupedQueryAttention, Gru, KeyValueCache, MixtureOfExperts, Rotary,
    with_dtype,
};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::random::floats;

/// The outputs of a function of these inputs, with variables of seed 3.
fn run(
    device: Device,
    inputs: &[(&str, Literal)],
    build: impl FnOnce(&mut FunctionBuilder, &[Tensor]),
) -> Vec<Vec<f64>> {
    let mut program = Program::new();
    program
        .function("f", |f| {
            let given: Vec<Tensor> =
                inputs.iter().map(|(name, value)| f.input(name, value.ty())).collect();
            build(f, &given);
        })
        .unwrap();
    let mut session = Session::open(device).unwrap();
    if program.get("init").is_ok() {
        session.initialize(&program, 3).unwrap();
    }
    let outputs = session.compile(&program, "f", bind!()).unwrap().run(inputs).unwrap();
    outputs.iter().unwrap().map(|(_, value)| floats(value)).collect()
}

fn draw(seed: u64, dtype: DType, shape: &[usize]) -> Literal {
    Random(seed).scaled(&TensorType::new(dtype, shape.iter().copied()), 1.0)
}

fn integers(shape: &[usize], numbers: &[i32]) -> Literal {
    Literal::from_vec(shape, numbers.to_vec()).unwrap()
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() <= tolerance * (1.0 + expected.abs()),
            "{found} {expected}"
        );
    }
}

const WIDTH: usize = 12;

fn grouped() -> GroupedQueryAttention {
    with_dtype(&GroupedQueryAttention::new(WIDTH, 6, 2).rotary(Rotary::new(2)), DType::F64)
}

#[test]
fn convolutions_of_sequences_are_sums_over_their_kernels() {
    let (x, weight) = (draw(1, DType::F64, &[1, 7, 2]), draw(2, DType::F64, &[3, 2, 1]));
    let inputs = [("x", x.clone()), ("weight", weight.clone())];
    let layer = || Conv1d::new(2, 1, [3]).dilation([2]).without_bias();
    for device in [Device::Interpreter, Device::Cpu] {
        let found = run(device, &inputs, |f, given| {
            let layers = [
                ("same", layer().same()),
                ("causal", layer().causal()),
                ("stride", layer().same().stride([3])),
            ];
            for (name, mut layer) in layers {
                layer.weight = given[1].clone();
                f.output(name, layer.call(&given[0]));
            }
        });
        let (x, weight) = (floats(&x), floats(&weight));
        // The kernel's element k lies 2·k steps after the first, which is `before` steps back.
        let at = |step: usize, before: usize| -> f64 {
            let terms = (0..3).flat_map(|k| (0..2).map(move |c| (k, c)));
            let terms = terms.filter_map(|(k, c)| {
                let from = (step + 2 * k).checked_sub(before).filter(|from| *from < 7)?;
                Some(x[2 * from + c] * weight[2 * k + c])
            });
            terms.sum()
        };
        let steps = |before: usize, stride: usize| -> Vec<f64> {
            (0..7).step_by(stride).map(|step| at(step, before)).collect()
        };
        assert_close(&found[0], &steps(2, 1), 1e-12);
        assert_close(&found[1], &steps(4, 1), 1e-12);
        assert_close(&found[2], &steps(2, 3), 1e-12);
    }
}

/// Attention to all positions at once, which PyTorch confirms, is attention part by part with a
/// cache that is state of the session.
#[test]
fn a_cache_replaces_earlier_positions() {
    let (batch, length) = (2, 7);
    let x = draw(1, DType::F64, &[batch, length, WIDTH]);
    let mut program = Program::new();
    program
        .function("whole", |f| {
            let x = f.input("x", x.ty());
            let layer = f.param("layer", grouped());
            f.output("y", layer.call(&x));
        })
        .unwrap();
    for parts in [vec![1; 7], vec![3, 1, 1, 2], vec![7]] {
        let mut session = Session::open(Device::Cpu).unwrap();
        let mut steps = Program::new();
        // A function for each number of new positions.
        for part in [1, 2, 3, 7] {
            steps
                .function(&format!("part{part}"), |f| {
                    let x = f.input("x", TensorType::new(DType::F64, [batch, part, WIDTH]));
                    let position = f.input("position", i32(""));
                    // The cache is longer than the sequence.
                    let cache = f.state("cache", grouped().first_cache(batch, length + 2));
                    let layer = f.param("layer", grouped());
                    let (y, cache) = layer.call_cached(&x, &cache, &position);
                    f.output("y", y);
                    f.update("cache.keys", &cache.keys);
                    f.update("cache.values", &cache.values);
                })
                .unwrap();
        }
        session.initialize(&steps, 5).unwrap();
        let whole = session.compile(&program, "whole", bind!()).unwrap().run(&[("x", &x)]).unwrap();
        let whole = floats(whole.get("y").unwrap());
        let mut first = 0;
        for part in parts {
            let mut step = session.compile(&steps, &format!("part{part}"), bind!()).unwrap();
            let rows = |numbers: &[f64], example: usize| {
                let from = (example * length + first) * WIDTH;
                numbers[from..from + part * WIDTH].to_vec()
            };
            let of_part = |numbers: &[f64]| [rows(numbers, 0), rows(numbers, 1)].concat();
            let new = Literal::from_vec(&[batch, part, WIDTH], of_part(&floats(&x))).unwrap();
            let given = [("x", new), ("position", Literal::from(first as i32))];
            let y = step.run(&given).unwrap();
            assert_close(&floats(y.get("y").unwrap()), &of_part(&whole), 1e-13);
            first += part;
        }
        assert_eq!(first, length);
    }
}

#[test]
fn results_beyond_a_cache_are_not_a_number() {
    for (position, finite) in [(-1, false), (0, true), (5, true), (6, false)] {
        let inputs =
            [("x", draw(1, DType::F64, &[1, 3, WIDTH])), ("position", Literal::from(position))];
        let y = run(Device::Cpu, &inputs, |f, given| {
            let layer = f.param("layer", grouped());
            let cache = layer.zero_cache(1usize, 8usize);
            f.output("y", layer.call_cached(&given[0], &cache, &given[1]).0);
        });
        let numbers = y[0].iter().filter(|y| !y.is_nan()).count();
        assert_eq!(numbers, if finite { 3 * WIDTH } else { 0 }, "{position}");
    }
}

/// The losses of ten examples: the four mistakes that only a run shows, and what is impossible.
#[test]
fn labels_that_cannot_be_spelt() {
    let inputs = [
        ("x", draw(2, DType::F32, &[3, 6, 4])),
        ("labels", integers(&[6, 2], &[1, 2, 3, 3, 1, 4, 1, 0, 1, 2, 1, 2])),
        // The second needs a blank between its two labels; the others are mistakes.
        ("steps", integers(&[6], &[3, 2, 3, 3, 4, 3])),
        ("counts", integers(&[6], &[2, 2, 2, 2, 2, 3])),
    ];
    let losses = |loss: Ctc| {
        run(Device::Cpu, &inputs, |f, given| {
            let [x, labels, steps, counts] = given else { unreachable!("four inputs") };
            let call = |x: &Tensor| loss.call(&x.log_softmax(2), labels, steps, counts);
            f.output("loss", call(x));
            f.output("gradient", grad(x, |x| call(x).slice_axis(0, 0, 2).sum()));
        })
    };
    let loss = Ctc { reduction: Reduction::None, ..Default::default() };
    let infinite = losses(loss);
    assert!(infinite[0][0].is_finite() && infinite[0][1] == f64::INFINITY, "{infinite:?}");
    assert!(infinite[0][2..].iter().all(|loss| loss.is_nan()), "{infinite:?}");
    let zero = losses(Ctc { zero_infinity: true, ..loss });
    assert_eq!(zero[0][..2], [infinite[0][0], 0.0]);
    // The gradient of the impossible example is 0.
    for gradient in [&infinite[1], &zero[1]] {
        let of_example = |example: usize| {
            let of_step = (0..3).map(move |step| (step * 6 + example) * 4);
            of_step.flat_map(|from| gradient[from..from + 4].to_vec()).collect::<Vec<f64>>()
        };
        assert!(of_example(0).iter().all(|g| g.abs() > 1e-6));
        assert!(of_example(1).iter().all(|g| *g == 0.0));
    }
}

#[test]
fn rows_that_do_not_count() {
    let inputs = [
        ("x", draw(3, DType::F32, &[3, 4])),
        ("labels", integers(&[3], &[1, 4, -7])),
        ("ignored", integers(&[3], &[-7, -7, -7])),
    ];
    let results = run(Device::Cpu, &inputs, |f, given| {
        let each = CrossEntropy { reduction: Reduction::None, ..Default::default() };
        let ignoring = CrossEntropy { ignored: Some(-7), ..each.clone() };
        let mean = CrossEntropy { reduction: Reduction::Mean, ..ignoring.clone() };
        f.output("each", each.call(&given[0], &given[1]));
        f.output("ignoring", ignoring.call(&given[0], &given[1]));
        f.output("none", mean.call(&given[0], &given[2]));
    });
    let [each, ignoring, none] = &results[..] else { panic!("three results") };
    assert!(each[0].is_finite() && each[1].is_nan() && each[2].is_nan(), "{each:?}");
    assert!(ignoring[0] == each[0] && ignoring[1].is_nan() && ignoring[2] == 0.0, "{ignoring:?}");
    assert!(none[0].is_nan());
}

/// The loss of a logit that is far from its target is its size, also in f32 and f16.
#[test]
fn logits_of_any_size() {
    for dtype in [DType::F32, DType::F16] {
        let number = |numbers: Vec<f32>| Literal::from_vec(&[4], numbers).unwrap().convert(dtype);
        let inputs =
            [("x", number(vec![1e4, -1e4, 1e4, -1e4])), ("t", number(vec![0.0, 1.0, 1.0, 0.0]))];
        let results = run(Device::Cpu, &inputs, |f, given| {
            let loss = BinaryCrossEntropy { reduction: Reduction::None, ..Default::default() };
            let losses = loss.call(&given[0], &given[1]);
            assert_eq!(losses.dtype(), DType::F32);
            f.output("loss", losses);
            f.output("gradient", grad(&given[0], |x| loss.call(x, &given[1]).sum()));
        });
        let large = given_size(dtype);
        assert_eq!(results, [vec![large, large, 0.0, 0.0], vec![1.0, -1.0, 0.0, 0.0]]);
    }
}

/// 10,000 in a dtype.
fn given_size(dtype: DType) -> f64 {
    floats(&Literal::from(1e4f32).convert(dtype))[0]
}

/// Experts with enough capacity and equal variables are one expert, and a router of equal
/// probabilities has the least auxiliary loss, 1.
#[test]
fn equal_experts_are_one_expert() {
    let x = [("x", draw(4, DType::F64, &[3, 5, 4]))];
    let results = run(Device::Cpu, &x, |f, given| {
        let one = f.param("one", with_dtype(&nn::SwiGlu::new(4, 6), DType::F64));
        let all = |linear: &Linear| {
            let [rows, columns] = [0, 1].map(|axis| linear.weight.shape()[axis].clone());
            linear.weight.broadcast_in_dim(vec![3.into(), rows, columns], &[1, 2])
        };
        let mixture = MixtureOfExperts {
            router: f.param("router", with_dtype(&Linear::new(4, 3), DType::F64)).weight,
            gate_proj: all(&one.gate_proj),
            up_proj: all(&one.up_proj),
            down_proj: all(&one.down_proj),
            top_k: 2,
            capacity_factor: 10.0,
        };
        f.output("one", one.call(&given[0]));
        f.output("mixture", mixture.call(&given[0]).0);
        let router = mixture.router.zeros_like();
        f.output("balance", MixtureOfExperts { router, ..mixture }.call(&given[0]).1);
    });
    assert_close(&results[1], &results[0], 1e-13);
    // All first choices are expert 0: 3 · (1 · 1/3).
    assert_close(&results[2], &[1.0], 1e-13);
}

/// The layers and losses made of indices, loops and attention, with their gradients.
fn several(f: &mut FunctionBuilder, given: &[Tensor]) {
    let [x, logits, labels, steps] = given else { unreachable!("four inputs") };
    let layers = (
        GroupedQueryAttention::new(WIDTH, 6, 2).rotary(Rotary::new(2)),
        MixtureOfExperts::new(WIDTH, 8, 4, 2),
        (GroupNorm::new(3, WIDTH), Gru::new(WIDTH, 5)),
        CrossAttention::new(WIDTH, WIDTH, 2),
    );
    let layers = f.param("layers", with_dtype(&layers, x.dtype()));
    let (loss, (gradient, by_logits)) =
        value_and_grad(&(layers, logits.clone()), |((grouped, experts, rest, cross), logits)| {
            let (norm, gru) = rest;
            let y = grouped.call(&norm.call(x));
            let cache = grouped.zero_cache(2usize, 8usize);
            let (y, _) = grouped.call_cached(&y, &cache, &steps.slice_axis(0, 1, 2).sum());
            let (y, balance) = experts.call(&cross.call(&y, x, None));
            let (all, _) = gru.call(&y.permute(&[1, 0, 2]), &gru.zero_state(2usize));
            let ctc = Ctc::default().call(&logits.log_softmax(2), labels, steps, &(steps - 1));
            let smooth = CrossEntropy { label_smoothing: 0.1, ..Default::default() };
            let classes = smooth.call(&all.slice_axis(0, 0, 2), labels);
            let wide = |t: Tensor| t.convert(DType::F32);
            wide(all.square().mean()) + wide(balance) + wide(ctc) + wide(classes)
        });
    f.output("loss", loss);
    f.output("by_logits", by_logits);
    for (path, tensor) in gradient.tensors() {
        f.output(&format!("by.{path}"), tensor);
    }
}

/// Compares results with the interpreter's. The tolerance is relative to the greatest number of a
/// result, or to `least`: the gradient of the bias of keys is 0 but for rounding.
fn devices_agree_in(dtype: DType, devices: &[Device], tolerance: f64, least: f64) {
    let inputs = [
        ("x", draw(5, dtype, &[2, 6, WIDTH])),
        ("logits", draw(6, dtype, &[3, 2, 5])),
        ("labels", integers(&[2, 2], &[1, 2, 4, 3])),
        ("steps", integers(&[2], &[3, 2])),
    ];
    let expected = run(Device::Interpreter, &inputs, several);
    assert!(expected.iter().all(|result| result.iter().any(|number| *number != 0.0)));
    for device in devices {
        let found = run(*device, &inputs, several);
        for (found, expected) in found.iter().zip(&expected) {
            let scale = expected.iter().fold(0.0f64, |max, x| max.max(x.abs()));
            for (x, y) in found.iter().zip(expected) {
                assert!((x - y).abs() <= tolerance * scale.max(least), "{device}: {x}, not {y}");
            }
        }
    }
}

#[test]
fn devices_agree() {
    devices_agree_in(DType::F32, &[Device::Cpu, Device::Emulator], 1e-4, 1e-3);
    devices_agree_in(DType::BF16, &[Device::Cpu], 5e-2, 5e-3);
}
