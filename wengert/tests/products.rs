//! How the products of a training step of GPT-2 124M are computed on a GPU, decided without one:
//! which cuBLASLt takes, with which addends, and the bytes that kernels beside them move. And the
//! bits of a product of halves with addends.
//!
//! `cargo test -p wengert --test products -- --nocapture` prints the table.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use wengert::core::call::Call;
use wengert::core::{KeyPath, Scalar};
use wengert::models::{Gpt, GptSettings};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert_cuda::architecture::Architecture;
use wengert_cuda::driver::blas::Rules;
use wengert_cuda::executable::ByRule;
use wengert_cuda::lowered::{LoweredPlan, ProductChoice, ProductTable};

/// The step of `wengert-bench gpt2`: 32 sequences of 1024 tokens, f32 parameters, layers in
/// `dtype`.
fn step(dtype: DType) -> Program {
    let settings = GptSettings { vocabulary: 50304, ..GptSettings::SMALL };
    let mut program = Program::new();
    program
        .function("step", |f| {
            let tokens = TensorType::new(DType::I32, [32, settings.positions]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(&settings));
            let (loss, gradient) = value_and_grad(&model, |m| {
                m.map_tensors(&KeyPath::default(), &mut |_, t| t.convert(dtype)).loss(&x, &y)
            });
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    program
}

/// The program for sm_90, and the bytes of its arena.
fn lowered(program: &Program) -> (LoweredPlan, u64) {
    let target = wengert::target("sm_90").unwrap();
    let plan = compile(program, "step", &bind!(), &target, &Options::default()).unwrap();
    let architecture = Architecture::from_name("sm_90").unwrap();
    let lowered = LoweredPlan::new(&plan, architecture, &mut ByRule(Rules::STRICT));
    (lowered.unwrap(), plan.arena as u64)
}

/// Checks how many products kernels of the project compute, and that followers are the reason.
fn only_followers_take_products(lowered: &LoweredPlan, count: usize) {
    let own: Vec<_> = lowered.products.iter().filter(|choice| choice.library.is_err()).collect();
    assert_eq!(own.len(), count, "{}", ProductTable(&lowered.products));
    for choice in own {
        let reason = choice.library.as_ref().unwrap_err();
        assert!(reason.starts_with("its follower saves"), "{reason}");
        assert!(matches!(choice.follower, Some((_, true))), "{choice:?}");
    }
}

fn with_addends(lowered: &LoweredPlan) -> usize {
    let has = |choice: &&ProductChoice| match &choice.call {
        Call::Gemm(gemm) => gemm.addends != Default::default(),
        _ => false,
    };
    lowered.products.iter().filter(has).count()
}

#[test]
fn products_of_gpt2_with_addends_need_no_kernels_beside_them() {
    let (lowered, _) = lowered(&step(DType::BF16));
    print!("{}", ProductTable(&lowered.products));
    println!("nests: {:.2} GB", lowered.nest_bytes as f64 / 1e9);
    // Four projections in each of twelve blocks.
    assert_eq!(with_addends(&lowered), 48);
    // The GELU of each block, and its derivative.
    only_followers_take_products(&lowered, 24);
    // Beside the library's products there is the update of one weight of each block, which reads
    // the gradient in bf16, and reads and writes three tensors in f32; and two numbers of f32. The
    // updates of smaller weights are at the end, where they share launches.
    let weights = 4 * 768 * 768;
    let beside: u64 = lowered.products.iter().map(|choice| choice.beside).sum();
    assert_eq!(beside, 12 * (weights * (2 + 2 * 3 * 4) + 2 * 4));
    assert!(lowered.products.iter().all(|choice| choice.left == Default::default()));
    assert!(lowered.nest_bytes < 23_000_000_000, "{}", lowered.nest_bytes);
}

/// A network in f32 under a policy is as fast as one whose layers are written in bf16.
#[test]
fn a_policy_gives_the_same_products() {
    let mut program = step(DType::F32);
    program.precision(&Precision::bf16()).unwrap();
    let (lowered, arena) = lowered(&program);
    print!("{}", ProductTable(&lowered.products));
    println!("nests: {:.2} GB; arena: {arena} bytes", lowered.nest_bytes as f64 / 1e9);
    assert_eq!(with_addends(&lowered), 48);
    // The sum of the embeddings and the first block follows a product as well.
    only_followers_take_products(&lowered, 25);
    // 14.04 GB if the layers are written in bf16; the last cotangent of the embeddings is in f32.
    assert!(arena < 14_200_000_000, "{arena}");
}

/// The sum, the residual and the bias are added in f32, and the result is rounded once, whatever
/// the device. Sums are exact.
#[test]
fn halves_are_rounded_once_on_every_device() {
    const M: usize = 37;
    const N: usize = 45;
    const K: usize = 64;
    let half = |shape: &[usize]| TensorType::new(DType::BF16, shape.iter().copied());
    let mut program = Program::new();
    program
        .function("f", |f| {
            let (x, w) = (f.input("x", half(&[M, K])), f.input("w", half(&[K, N])));
            let (b, r) = (f.input("b", half(&[N])), f.input("r", half(&[M, N])));
            f.output("y", x.dot(&w) + &b + &r);
        })
        .unwrap();
    let rounded = |x: f64| Scalar::from_f64(DType::BF16, x);
    let values = |count: usize, scale: f64, seed: usize| -> Vec<f64> {
        (0..count)
            .map(|n| ((n * 37 + seed * 11 + n / 7) % 17) as f64 * scale - 8.0 * scale)
            .collect()
    };
    let [mut x, mut w] = [values(M * K, 1.0, 1), values(K * N, 1.0, 2)];
    let [mut b, r] = [values(N, 0.25, 3), values(M * N, 0.125, 4)];
    // Sums of the first column are 2²⁴. In f32 they lose a part of the residual, which comes first.
    (0..M).for_each(|i| x[i * K] = 4096.0);
    w[..N].fill(0.0);
    (0..K).for_each(|k| w[k * N] = 0.0);
    (w[0], b[0]) = (4096.0, -(2f64.powi(24)));
    let literal = |shape: &[usize], values: &[f64]| {
        let values: Vec<Scalar> = values.iter().map(|v| rounded(*v)).collect();
        Literal::from_scalars(DType::BF16, shape, &values).unwrap()
    };
    let element = |at: usize| {
        let (i, j) = (at / N, at % N);
        let sum: f64 = (0..K).map(|k| x[i * K + k] * w[k * N + j]).sum();
        let sum = (sum as f32 + r[at] as f32) + b[j] as f32;
        f64::from(sum)
    };
    let elements: Vec<f64> = (0..M * N).map(element).collect();
    let wanted = literal(&[M, N], &elements);
    let given = [
        ("x", &literal(&[M, K], &x)),
        ("w", &literal(&[K, N], &w)),
        ("b", &literal(&[N], &b)),
        ("r", &literal(&[M, N], &r)),
    ];
    for device in [Device::Cpu, Device::Emulator] {
        let mut session = Session::open(device).unwrap();
        let mut function = session.compile(&program, "f", bind!()).unwrap();
        let found = function.run(&given).unwrap();
        assert_eq!(found.get("y").unwrap(), &wanted, "{device}");
    }
}
