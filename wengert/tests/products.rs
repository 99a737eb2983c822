//! How the products of a training step of GPT-2 124M are computed on a GPU, decided without one:
//! which cuBLASLt takes, with which addends, and the bytes that kernels beside them move.
//!
//! `cargo test -p wengert --test products -- --nocapture` prints the table.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use wengert::core::KeyPath;
use wengert::core::call::Call;
use wengert::models::{Gpt, GptSettings};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert_cuda::architecture::Architecture;
use wengert_cuda::driver::blas::Rules;
use wengert_cuda::executable::library_by_rule;
use wengert_cuda::lowered::{LoweredPlan, ProductChoice, ProductTable};

/// The step of `wengert-bench gpt2`: 32 sequences of 1024 tokens, layers in bf16, f32 parameters.
fn step() -> LoweredPlan {
    let settings = GptSettings { vocabulary: 50304, ..GptSettings::SMALL };
    let mut program = Program::new();
    program
        .function("step", |f| {
            let tokens = TensorType::new(DType::I32, [32, settings.positions]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(&settings));
            let (loss, gradient) = value_and_grad(&model, |m| {
                m.map_tensors(&KeyPath::default(), &mut |_, t| t.convert(DType::BF16)).loss(&x, &y)
            });
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    let target = wengert::target("sm_90").unwrap();
    let plan = compile(&program, "step", &bind!(), &target, &Options::default()).unwrap();
    let architecture = Architecture::from_name("sm_90").unwrap();
    LoweredPlan::new(&plan, architecture, &mut library_by_rule(Rules::STRICT)).unwrap()
}

#[test]
fn products_of_gpt2_with_addends_are_the_librarys() {
    let lowered = step();
    print!("{}", ProductTable(&lowered.products));
    println!("nests: {:.2} GB", lowered.nest_bytes as f64 / 1e9);
    let with_addends = |choice: &&ProductChoice| match &choice.call {
        Call::Gemm(gemm) => gemm.addends != Default::default(),
        _ => false,
    };
    // Four projections in each of twelve blocks.
    assert_eq!(lowered.products.iter().filter(with_addends).count(), 48);
}
