//! The kernels that fusion forms, and their nests.

use super::{compiled, run};
use wengert_compiler::autodiff::operators::{value_and_grad, vjp};
use wengert_compiler::kernels::{Kernel, Kernels, Work};
use wengert_core::build::FunctionBuilder;
use wengert_core::call::Addends;
use wengert_core::graph::Function;
use wengert_core::op::{Softmax, SoftmaxCrossEntropy, SoftmaxKind};
use wengert_core::{DType, Literal, Tensor, TensorType};
use wengert_testing::Random;

pub(super) fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().copied())
}

fn i32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::I32, shape.iter().copied())
}

/// Builds a function, checks that fusion changes no bit, and returns the fused kernels.
pub(super) fn fused(f: impl FnOnce(&mut FunctionBuilder)) -> Kernels {
    let function: Function = FunctionBuilder::build("f", f).unwrap();
    let kernels = compiled(&function, true);
    let mut random = Random(7);
    let inputs: Vec<Literal> =
        (0..function.inputs.len()).map(|n| random.elements(function.input_type(n))).collect();
    assert_eq!(run(&kernels, &inputs), run(&compiled(&function, false), &inputs));
    kernels
}

/// The kind of each kernel, as a word.
pub(super) fn works(kernels: &Kernels) -> Vec<&'static str> {
    let word = |work: &Work| match work {
        Work::Nest(_) => "nest",
        Work::Call(call) => call.name(),
        Work::Followed(_) => "gemm, nest",
        Work::Control(_) => "control",
    };
    kernels.kernels.iter().map(|k| word(&k.work)).collect()
}

/// The text of the only nest.
fn nest(kernels: &Kernels) -> String {
    match kernels.kernels.as_slice() {
        [kernel] => match &kernel.work {
            Work::Nest(nest) => nest.to_string(),
            Work::Call(_) | Work::Followed(_) | Work::Control(_) => panic!("one call:\n{kernels}"),
        },
        _ => panic!("more than one kernel:\n{kernels}"),
    }
}

pub(super) fn layer_norm(x: &Tensor, scale: &Tensor, bias: &Tensor) -> Tensor {
    let last = x.rank() - 1;
    let rows: Vec<usize> = (0..last).collect();
    let along = |t: &Tensor| t.broadcast_in_dim(x.shape().to_vec(), &rows);
    let n = x.shape()[last].as_constant().unwrap() as f64;
    let centred = x - along(&(x.sum_axes(&[last]) / n));
    let variance = (&centred * &centred).sum_axes(&[last]) / n;
    centred * along(&(variance + 1e-5).rsqrt()) * scale + bias
}

#[test]
fn elementwise_chains_are_one_loop() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[64, 10]));
        let y = f.input("y", f32s(&[64, 10]));
        f.output("z", (&x * 2.0 + &y).tanh());
    });
    assert_eq!(
        nest(&kernels),
        "nest @mul_add_tanh_0(in %x: f32[640], in %x_2: f32[640], out %y: f32[640]) {
  parallel i: 640
  phase {
    %0: f32 = load %x[i]
    %1: f32 = const 2.0
    %2: f32 = mul %0, %1
    %3: f32 = load %x_2[i]
    %4: f32 = add %2, %3
    %5: f32 = tanh %4
    store %y[i], %5
  }
}
"
    );
}

#[test]
fn softmax_is_one_nest() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[4, 16, 10]));
        f.output("y", Tensor::apply(Softmax { kind: SoftmaxKind::Softmax, axis: 2 }, &[&x]));
    });
    assert_eq!(
        nest(&kernels),
        "nest @softmax_0(in %x: f32[64,10], out %y: f32[64,10]) {
  row %r: f32[10]
  parallel i: 64
  phase k: 10 {
    %0: f32 = load %x[i, k]
    %1: f32 = reduce(%0) max tree(16)
  }
  phase {
    %2: f32 = abs %1
    %3: f32 = const inf
    %4: bool = lt %2, %3
    %5: f32 = const 0.0
    %6: f32 = select %4, %1, %5
  }
  phase k: 10 {
    %7: f32 = load %x[i, k]
    %8: f32 = sub %7, %6
    %9: f32 = exp %8
    store %r[k], %9
    %10: f32 = reduce(%9) sum tree(16)
  }
  phase {
    %11: f32 = const 1.0
    %12: f32 = div %11, %10
  }
  phase k: 10 {
    %13: f32 = load %r[k]
    %14: f32 = mul %13, %12
    store %y[i, k], %14
  }
}
"
    );
}

#[test]
fn losses_and_their_gradients_are_one_nest() {
    let kernels = fused(|f| {
        let logits = f.input("logits", f32s(&[64, 10]));
        let labels = f.input("labels", i32s(&[64]));
        let (losses, back) = vjp(&logits, |x| Tensor::apply(SoftmaxCrossEntropy {}, &[x, &labels]));
        let gradient = back(&losses.full_like(1.0 / 64.0));
        f.output("losses", losses);
        f.output("gradient", gradient);
    });
    assert_eq!(works(&kernels), ["nest"], "{kernels}");
    // The mean of the losses is a second nest, which reads only the losses.
    let kernels = fused(|f| {
        let logits = f.input("logits", f32s(&[64, 10]));
        let labels = f.input("labels", i32s(&[64]));
        let (loss, gradient) = value_and_grad(&logits, |x| {
            Tensor::apply(SoftmaxCrossEntropy {}, &[x, &labels]).sum() / 64.0
        });
        f.output("loss", loss);
        f.output("gradient", gradient);
    });
    assert_eq!(works(&kernels), ["nest", "nest"], "{kernels}");
    assert_eq!(kernels.kernels[1].reads.len(), 1, "{kernels}");
}

#[test]
fn log_softmax_is_one_nest_with_its_gradient() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[32, 5]));
        let cotangent = f.input("cotangent", f32s(&[32, 5]));
        let (y, back) =
            vjp(&x, |x| Tensor::apply(Softmax { kind: SoftmaxKind::LogSoftmax, axis: 1 }, &[x]));
        f.output("dx", back(&cotangent));
        f.output("y", y);
    });
    assert_eq!(works(&kernels), ["nest"], "{kernels}");
}

#[test]
fn layer_norm_is_one_nest_and_so_is_its_dx() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[4, 8, 48]));
        let (scale, bias) = (f.input("scale", f32s(&[48])), f.input("bias", f32s(&[48])));
        f.output("y", layer_norm(&x, &scale, &bias));
    });
    assert_eq!(works(&kernels), ["nest"], "{kernels}");
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[4, 8, 48]));
        let (scale, bias) = (f.input("scale", f32s(&[48])), f.input("bias", f32s(&[48])));
        let cotangent = f.input("cotangent", f32s(&[4, 8, 48]));
        let (_, back) = vjp(&x, |x| layer_norm(x, &scale, &bias));
        f.output("dx", back(&cotangent));
    });
    assert_eq!(works(&kernels), ["nest"], "{kernels}");
}

#[test]
fn a_residual_is_added_in_the_norm_that_follows() {
    let kernels = fused(|f| {
        let (x, y) = (f.input("x", f32s(&[32, 48])), f.input("y", f32s(&[32, 48])));
        let (scale, bias) = (f.input("scale", f32s(&[48])), f.input("bias", f32s(&[48])));
        let sum = x + y;
        f.output("normed", layer_norm(&sum, &scale, &bias));
        f.output("sum", sum);
    });
    assert_eq!(works(&kernels), ["nest"], "{kernels}");
}

#[test]
fn reductions_over_columns_take_their_producers_along() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[100, 48]));
        let y = f.input("y", f32s(&[100, 48]));
        // Two reductions over rows that share the operand x, and an op on each column of a result.
        let product = &x * &y;
        f.output("a", product.sum_axes(&[0]) * 0.5);
        f.output("b", x.sum_axes(&[0]));
    });
    assert_eq!(works(&kernels), ["nest"], "{kernels}");
    let text = nest(&kernels);
    assert!(text.contains("parallel j: 48") && text.contains("phase i: 100"), "{text}");
}

#[test]
fn a_tensor_that_a_whole_sum_scales_is_another_kernel() {
    // One row of many elements. Fused, it would run on one processor.
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[9000]));
        f.output("y", &x / (&x * &x).sum());
    });
    assert_eq!(works(&kernels), ["nest", "nest"], "{kernels}");
}

/// A scalar that one kernel reads is computed in that kernel. If several kernels read it, it gets
/// its own kernel. Inside of one of them it would delay the others until that kernel's operands are
/// ready.
#[test]
fn a_number_for_many_keeps_nobody_waiting() {
    let update = |readers: usize| {
        fused(|f| {
            let rate = f.input("t", f32s(&[])).exp();
            for n in 0..readers {
                let x = f.input(&format!("x{n}"), f32s(&[24 + n]));
                f.output(&format!("y{n}"), &x - &x * rate.broadcast_to(x.shape()));
            }
        })
    };
    assert_eq!(works(&update(1)), ["nest"]);
    let kernels = update(3);
    assert_eq!(works(&kernels), ["nest"; 4], "{kernels}");
    assert!(kernels.kernels.iter().all(|k| k.writes.len() == 1), "{kernels}");
}

#[test]
fn what_is_accessed_elsewhere_is_another_kernel() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[32, 32]));
        let y = (&x + f.input("w", f32s(&[32, 32]))).exp();
        f.output("z", &y + y.permute(&[1, 0]));
    });
    // Stored once, read twice.
    assert_eq!(works(&kernels), ["nest", "nest"], "{kernels}");
}

/// A GELU and its derivative read the layer's sums. The values between them are recomputed.
#[test]
fn a_function_of_one_tensor_is_not_stored() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[16, 8]));
        let (w, v) = (f.input("w", f32s(&[8, 12])), f.input("v", f32s(&[12, 4])));
        let (loss, (dw, dv)) =
            value_and_grad(&(w, v), |(w, v)| x.dot(w).gelu_tanh().dot(v).square().sum());
        f.output("loss", loss);
        f.output("dw", dw);
        f.output("dv", dv);
    });
    // The GELU, the loss with its derivative, the derivative of the GELU.
    let wide =
        |k: &Kernel| k.writes.iter().filter(|b| kernels.buffers[**b].ty == f32s(&[16, 12])).count();
    let written: Vec<usize> = kernels.kernels.iter().map(wide).collect();
    // The layer's sums, their GELU, and the cotangents of both.
    assert_eq!(written.iter().sum::<usize>(), 4, "{written:?}\n{kernels}");
}

/// One half of the uniform numbers gives radii, the other half angles. Each number is used once,
/// although both halves belong to one tensor.
#[test]
fn uniform_numbers_of_which_normal_ones_are_made_are_not_stored() {
    let kernels = fused(|f| {
        let key = f.key("key");
        f.output("x", &(key.normal(DType::F32, [8, 5]) * 0.02));
    });
    assert_eq!(works(&kernels), ["nest"], "{kernels}");
    // Numbers with two uses are drawn once.
    let kernels = fused(|f| {
        let uniform = f.key("key").uniform(DType::F32, [8, 6]);
        f.output("y", uniform.exp());
        f.output("z", uniform.matrix_transpose().exp());
    });
    assert_eq!(works(&kernels), ["nest", "nest"], "{kernels}");
    // A multiplier of Philox.
    assert_eq!(kernels.to_string().matches("const 3528531795").count(), 1, "{kernels}");
}

#[test]
fn a_dense_layer_and_its_update() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[16, 8]));
        let w = f.input("w", f32s(&[8, 4]));
        let b = f.input("b", f32s(&[4]));
        let (loss, (dw, db)) = value_and_grad(&(w.clone(), b.clone()), |(w, b)| {
            let y = (x.dot(w) + b).tanh();
            (&y * &y).sum()
        });
        f.output("loss", loss);
        f.output("w", w - dw * 0.1);
        f.output("b", b - db * 0.1);
    });
    // x·w; the activation and its gradient; the loss; the bias with its update; xᵀ·dy; the weights'
    // update.
    assert_eq!(kernels.kernels.iter().filter(|k| k.call().is_some()).count(), 2, "{kernels}");
    assert!(works(&kernels).len() <= 6, "{kernels}");
}

/// The call of the only GEMM.
fn gemm(kernels: &Kernels) -> wengert_core::call::Gemm {
    let mut calls = kernels.kernels.iter().filter_map(|k| match k.call() {
        Some(wengert_core::Call::Gemm(gemm)) => Some(gemm.clone()),
        _ => None,
    });
    let found = calls.next().expect("there is a product");
    assert!(calls.next().is_none(), "{kernels}");
    found
}

#[test]
fn a_layer_is_one_product_with_a_follower() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[6, 8]));
        let w = f.input("w", f32s(&[8, 5]));
        let b = f.input("b", f32s(&[5]));
        let r = f.input("r", f32s(&[6, 5]));
        f.output("y", (x.dot(&w) + b).max(0.0) + r);
    });
    assert_eq!(works(&kernels), ["gemm, nest"], "{kernels}");
    assert_eq!(gemm(&kernels).addends, Addends { bias: true, residual: false });
}

#[test]
fn addends_end_where_a_value_has_another_use() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[6, 8]));
        let w = f.input("w", f32s(&[8, 5]));
        let b = f.input("b", f32s(&[5]));
        let before = x.dot(&w) + b;
        f.output("y", before.tanh());
        f.output("before", before);
    });
    assert_eq!(works(&kernels), ["gemm, nest"], "{kernels}");
    assert_eq!(gemm(&kernels).addends, Addends { bias: true, residual: false });
}

#[test]
fn a_product_of_halves_rounds_where_the_graph_does() {
    let half = |shape: &[usize]| TensorType::new(DType::BF16, shape.iter().copied());
    let kernels = fused(|f| {
        let x = f.input("x", half(&[6, 8]));
        let w = f.input("w", half(&[8, 5]));
        let b = f.input("b", half(&[5]));
        f.output("y", (x.dot(&w) + b).tanh());
    });
    assert_eq!(works(&kernels), ["gemm, nest"], "{kernels}");
    assert!(gemm(&kernels).addends.bias, "{kernels}");
}

#[test]
fn a_product_of_halves_takes_a_residual_and_a_bias_in_any_order() {
    let half = |shape: &[usize]| TensorType::new(DType::BF16, shape.iter().copied());
    for bias_first in [false, true] {
        let kernels = fused(|f| {
            let x = f.input("x", half(&[2, 6, 8]));
            let w = f.input("w", half(&[8, 5]));
            let b = f.input("b", half(&[5]));
            let r = f.input("r", half(&[2, 6, 5]));
            let y = if bias_first { x.dot(&w) + &b + &r } else { &r + x.dot(&w) + &b };
            // The residual is also converted elsewhere.
            f.output("mean", r.convert(DType::F32).mean());
            f.output("y", y);
        });
        assert!(works(&kernels).contains(&"gemm"), "{kernels}");
        let gemm = gemm(&kernels);
        assert_eq!(gemm.addends, Addends { bias: true, residual: true }, "{kernels}");
        assert!(gemm.narrows() && gemm.result == DType::BF16, "{kernels}");
    }
}

/// A library that adds a residual before a bias takes the bias alone.
#[test]
fn a_residual_after_a_bias_is_a_nest_where_the_library_is_asked() {
    use wengert_compiler::pipeline::{Options, compile_kernels};
    let build = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32s(&[6, 8]));
        let w = f.input("w", f32s(&[8, 5]));
        let b = f.input("b", f32s(&[5]));
        let r = f.input("r", f32s(&[6, 5]));
        f.output("y", x.dot(&w) + b + r);
    };
    let function = FunctionBuilder::build("f", build).unwrap();
    for (target, work, residual) in [
        (wengert_core::Target::cpu(), "gemm", true),
        (wengert_testing::targets::gpu(), "gemm, nest", false),
    ] {
        let kernels = compile_kernels(&function, &target, &Options::default()).unwrap().kernels;
        assert_eq!(works(&kernels), [work], "{kernels}");
        let gemm = match kernels.kernels[0].call() {
            Some(wengert_core::Call::Gemm(gemm)) => gemm.addends,
            _ => panic!("{kernels}"),
        };
        assert_eq!(gemm, Addends { bias: true, residual });
    }
}

#[test]
fn a_bias_of_rows_is_no_addend() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[5, 8]));
        let w = f.input("w", f32s(&[8, 5]));
        let b = f.input("b", f32s(&[5]));
        f.output("y", x.dot(&w) + b.broadcast_in_dim(vec![5usize.into(), 5usize.into()], &[0]));
    });
    assert_eq!(works(&kernels), ["gemm, nest"], "{kernels}");
    assert_eq!(gemm(&kernels).addends, Addends::default());
}

#[test]
fn a_product_adds_to_another() {
    let kernels = fused(|f| {
        let (x, y) = (f.input("x", f32s(&[6, 8])), f.input("y", f32s(&[6, 4])));
        let (w, v) = (f.input("w", f32s(&[8, 5])), f.input("v", f32s(&[4, 5])));
        f.output("z", x.dot(&w) + y.dot(&v));
    });
    assert_eq!(works(&kernels), ["gemm", "gemm"], "{kernels}");
}

#[test]
fn permutations_move_into_products() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[8, 6]));
        let w = f.input("w", f32s(&[5, 8]));
        f.output("y", w.dot(&x).permute(&[1, 0]));
        f.output("z", x.permute(&[1, 0]).dot(&w.permute(&[1, 0])));
    });
    // Both are the same product.
    assert_eq!(works(&kernels), ["gemm"], "{kernels}");
}

#[test]
fn a_long_sum_is_cut_in_two() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[300, 301]));
        f.output("y", (&x * &x).sum());
    });
    assert_eq!(works(&kernels), ["nest", "nest"], "{kernels}");
    // The sum is cut into rows of about a block. That would give 23 rows. 25 rows have equal
    // lengths, so they need no guard.
    let Work::Nest(first) = &kernels.kernels[0].work else { panic!("{kernels}") };
    assert_eq!(first.rows(), 25, "{first}");
    assert!(!first.to_string().contains("in 0.."), "{first}");
}

#[test]
fn an_index_that_only_two_guards_bound_together_gets_its_own() {
    // Element (a, b) of the padded tensor is (a + 1, b − 2) of [3, 4]. Its position in [2, 2, 3] is
    // 4·a + b + 2, which is below 12 if a < 2 and b < 4.
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[2, 2, 3]));
        let moved = x.reshape([3, 4]).pad(&[(-1, 1), (2, -2)], 0.5f32).reshape([2, 2, 3]);
        // Both accesses keep its three axes.
        f.output("y", moved * x.permute(&[1, 0, 2]));
    });
    let text = nest(&kernels);
    assert!(text.contains("6*i+3*j+k+2 in 0..12"), "{text}");
}
