//! The backward pass of attention, given its result in place of sums of it.

use super::shapes::{f32s, works};
use super::{assert_close, run};
use wengert_compiler::autodiff::operators::grad;
use wengert_compiler::kernels::Kernels;
use wengert_compiler::pipeline::{Options, compile_kernels};
use wengert_core::build::FunctionBuilder;
use wengert_core::call::Call;
use wengert_core::graph::Function;
use wengert_core::op::{Attention, AttentionKind};
use wengert_core::{DType, Literal, Scalar, Target, Tensor};
use wengert_testing::{Random, targets};

/// The gradient of a function of attention's results.
fn gradient(dtype: DType, loss: impl Fn(&Tensor, &Tensor) -> Tensor) -> Function {
    FunctionBuilder::build("f", |f| {
        let inputs = ["q", "k", "v"].map(|name| f.input(name, f32s(&[2, 5, 3, 8])));
        let gradients = grad(&inputs.to_vec(), |x: &Vec<Tensor>| {
            let x: Vec<Tensor> = x.iter().map(|x| x.convert(dtype)).collect();
            let (kind, scale) = (AttentionKind::Value, Scalar::of(0.7f64));
            let op = Attention { kind, causal: true, bias: false, prefix: false, scale };
            let results = Tensor::apply_many(op, &x.iter().collect::<Vec<_>>());
            loss(&results[0].convert(DType::F32), &results[1])
        });
        for (n, gradient) in gradients.iter().enumerate() {
            f.output(&format!("y{n}"), gradient);
        }
    })
    .unwrap()
}

fn compiled(function: &Function, target: &Target) -> Kernels {
    compile_kernels(function, target, &Options::default()).unwrap_or_else(|e| panic!("{e}")).kernels
}

/// Whether the call of the backward pass is given out.
fn out_given(kernels: &Kernels) -> bool {
    let mut backward = kernels.kernels.iter().filter_map(|kernel| match kernel.call() {
        Some(Call::Attention(attention)) if attention.backward => Some(attention.out_given),
        _ => None,
    });
    backward.next().unwrap_or_else(|| panic!("no backward pass:\n{kernels}"))
}

#[test]
fn the_call_adds_up_what_the_graph_would() {
    let without = Target { attention_out: false, ..targets::gpu() };
    for dtype in [DType::F32, DType::BF16] {
        let function = gradient(dtype, |out, _| (out * out).sum() + out.sin().sum());
        let (given, summed) = (compiled(&function, &targets::gpu()), compiled(&function, &without));
        assert!(out_given(&given), "{given}");
        assert!(!out_given(&summed), "{summed}");
        assert!(works(&given).len() < works(&summed).len(), "{given}");
        let mut random = Random(3);
        let inputs: Vec<Literal> =
            (0..3).map(|n| random.elements(function.input_type(n))).collect();
        for (x, y) in run(&given, &inputs).iter().zip(&run(&summed, &inputs)) {
            // The gradients are f32, but what they are made of may be halves.
            assert_close(&x.convert(dtype), &y.convert(dtype), dtype.name());
        }
    }
}

#[test]
fn a_cotangent_of_the_logarithms_is_part_of_the_sums() {
    let function = gradient(DType::F32, |out, l| (out * out).sum() + (l * l).sum());
    let kernels = compiled(&function, &targets::gpu());
    assert!(!out_given(&kernels), "{kernels}");
}

#[test]
fn cpus_are_given_the_sums() {
    let function = gradient(DType::F32, |out, _| (out * out).sum());
    assert!(!out_given(&compiled(&function, &Target::cpu())));
}
