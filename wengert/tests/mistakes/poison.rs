//! After an error, every method on a poisoned tensor works, and the function reports the error.

use crate::{building, says};
use wengert::core::build::Padding;
use wengert::nn::loss;
use wengert::optim::{Ema, accumulate};
use wengert::prelude::*;
use wengert::{Scalar, fft, linalg};

/// Builds a function with an error, then runs `then` on the poisoned tensor. The message must be
/// that of the error.
#[track_caller]
fn asked(then: impl FnOnce(&mut FunctionBuilder, &Tensor)) -> String {
    building(|f| {
        let a = f.input("a", f32("2,3"));
        let b = f.input("b", f32("4,5"));
        let y = a.dot(&b);
        then(f, &y);
    })
}

/// The message of that error, without the places.
const FIRST: &str = "@f: dot_general: axis 1 of f32[2,3] has extent 3, axis 0 of f32[4,5] has 4\n";

#[test]
fn its_shape_is_asked_for() {
    says(
        building(|f| {
            let a = f.input("a", f32("2,3")); //~ a
            let b = f.input("b", f32("4,5")); //~ b
            let y = a.dot(&b); //~ here
            let rows = y.shape()[0].clone();
            f.output("y", y.reshape([rows, y.dim(1)]).sum_axes(&[1]));
        }),
        "
        @f: dot_general: axis 1 of f32[2,3] has extent 3, axis 0 of f32[4,5] has 4
          --> {here}: dot_general
          --> {a}: an operand, f32[2,3], is made here
          --> {b}: an operand, f32[4,5], is made here
          help: extents of paired axes must be equal
        ",
    );
}

#[test]
fn a_program_reads_numbers_of_it() {
    let message = asked(|f, y| {
        let width = y.shape()[y.rank() - 1].as_extent().expect("widths are numbers");
        let layer = f.param("layer", Linear::new(width, 4));
        let heads = layer.call(y).reshape([y.shape()[0].clone(), 2.into(), 2.into()]);
        for axis in 0..heads.rank() {
            assert!(heads.dim(axis).at_least(1));
        }
        f.output("y", heads.permute(&[1, 0, 2]).convert(DType::F16));
    });
    assert!(message.starts_with(FIRST), "{message}");
}

#[test]
fn a_new_tensor_of_its_dimensions_has_its_error() {
    let message = asked(|f, y| {
        let zeros = Tensor::zeros(y.ty());
        let counted = Tensor::iota(DType::I32, [y.dim(0)], 0);
        let doubled = y.shape()[0].checked_scale(2).expect("doubled");
        let input = f.input("more", TensorType::new(DType::F32, [doubled]));
        let variable = f.param("w", Tensor::variable(y.ty().clone(), Initializer::Zeros));
        let number = Tensor::dim_as_value(y.dim(0), DType::F32);
        for made in [zeros, counted, input, variable, number] {
            assert_eq!(made.error(), y.error());
        }
    });
    assert!(message.starts_with(FIRST), "{message}");
}

#[test]
fn it_goes_through_loops_and_derivatives() {
    let message = asked(|f, y| {
        let (last, all) = control::scan(&y.sum(), y, |c, x| (c + x.sum(), x * 2.0));
        let looped = control::fori(y.dim(0), &last, |_, c| c * 2.0);
        let mapped = vmap(y, |row| row.dot(row));
        let branched = control::cond(&y.sum().gt(0.0), || all.clone(), || all.exp());
        let (value, gradient) = value_and_grad(y, |y| y.square().sum());
        let product = hvp(y, &gradient, |y| y.square().sum());
        for (i, t) in [looped, mapped, branched, value, gradient, product].iter().enumerate() {
            assert!(t.error().is_some(), "{i}");
            f.output(&format!("y{i}"), t);
        }
    });
    assert!(message.starts_with(FIRST), "{message}");
}

#[test]
fn a_panic_after_the_error_does_not_hide_it() {
    let message = asked(|_, y| assert_eq!(y.rank(), 2, "the program is sure of two axes"));
    assert!(message.starts_with(FIRST), "{message}");
    let message = asked(|_, y| {
        let [_rows, _columns] = y.shape() else { panic!("the program is sure of two axes") };
    });
    assert!(message.starts_with(FIRST), "{message}");
    let message = asked(|_, y| drop(y.value().expect("the program is sure of a value")));
    assert!(message.starts_with(FIRST), "{message}");
}

#[test]
#[should_panic(expected = "nothing was wrong before")]
fn a_panic_without_an_error_goes_on() {
    building(|_| panic!("nothing was wrong before"));
}

#[test]
fn an_error_made_outside_is_reported_by_the_function_that_uses_it() {
    let outside = Tensor::constant(1.0f32) + Tensor::constant(2.0f32); //~ here
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            f.output("y", (x * &outside).reshape([outside.dim(0)]));
        }),
        "
        @f: add: there is no function to put it in
          --> {here}: add
          help: operate on tensors inside `Program::function`
        ",
    );
}

/// Every method that takes a tensor, on a poisoned one.
#[test]
fn every_operation_passes_the_error_on() {
    let message = asked(|f, y| {
        let y = y.clone();
        let good = f.input("good", f32("2,3"));
        let (rows, at) = (f.input("rows", i32("3")), f.input("at", i32("")));
        let key = f.key("key");
        let several: Vec<Vec<Tensor>> = vec![
            y.split_key(2),
            y.unstack(0),
            y.split([1, 2], 0),
            y.chunk(2, -1),
            Tensor::sort_by(&[&good, &y], 0, 1),
            Tensor::reduce_with(&[&y], &[Scalar::of(0f32)], &[0], |a, b| vec![&a[0] + &b[0]]),
        ];
        let results = vec![
            y.unsqueeze(-1),
            y.squeeze(99),
            y.flatten_axes(0, 1),
            y.unflatten(0, [2, -1]),
            y.reshape([-1, 5]),
            y.slice(s![0, 1..]),
            Tensor::einsum("ij,jk", &[&good, &y]),
            Tensor::einsum("nonsense!", &[&y]),
            good.matmul(&y),
            y.matmul(&good),
            y.outer(&good),
            good.outer(&y),
            Tensor::stack(&[&good, &y], 0),
            y.tile([2]),
            good.tile([y.dim(0)]),
            y.repeat_interleave(2, 0),
            good.repeat_interleave(y.dim(0) * 2, 0),
            y.flip(-1),
            y.roll(1, 0),
            y.tril(0),
            y.triu(0),
            y.diagonal(0, 0, 1),
            y.trace(),
            Tensor::eye(DType::F32, y.dim(0), 2),
            y.sum_keepdims(-1),
            y.min_axes(..),
            y.prod_axes([0, 1]),
            y.any(),
            y.all_axes(-1),
            y.var_with_correction(-1, 1.0),
            y.std(),
            y.norm(),
            y.norm_keepdims(0, 1.0),
            y.masked_fill(&good.gt(0.0), 0.0),
            good.masked_fill(&y, 0.0),
            y.select(0.0, 1.0),
            y.index_select(0, &rows),
            good.index_select(-1, &y),
            &y + &good,
            &good - &y,
            &y * 2.0,
            1.0 / &y,
            -&y,
            y.full_like(1.0),
            y.broadcast_to(good.shape()),
            good.broadcast_to(y.shape()),
            y.broadcast_in_dim(vec![2.into()], &[0]),
            y.gt(0.0).select(&y, &good),
            good.gt(0.0).select(&good, &y),
            rows.select_n(&[&good, &y]),
            y.integer_pow(2),
            y.polygamma(1),
            y.nextafter(&good),
            y.reduce_precision(8, 7),
            y.clamp(0.0, 1.0),
            good.clamp(&y, 1.0),
            y.scaled_by(&good),
            good.scaled_by(&y),
            y.mean(),
            y.mean_axes(&[40]),
            y.var(),
            y.restore_axes(good.shape(), &[0]),
            y.relu(),
            y.gelu(),
            y.gelu_tanh(),
            y.silu(),
            y.softplus(),
            !&y,
            &y & &good,
            &good | &y,
            &y ^ 1,
            y.softmax(1),
            y.log_softmax(99),
            y.logsumexp(0),
            y.standardize(0, 1e-5),
            y.rms_normalize(0, 1e-5),
            y.softmax_cross_entropy(&rows),
            good.softmax_cross_entropy(&y),
            y.cumsum(0),
            y.cumlogsumexp(0),
            y.one_hot(3, DType::F32),
            y.gather_rows(&rows),
            good.gather_rows(&y),
            y.pad(&[(1, 1)], 0.0),
            good.pad(&[(1, 1), (0, 0)], &y),
            y.flatten(1),
            y.flatten(40),
            y.reshape([2, 3]),
            y.permute(&[1, 0]),
            y.matrix_transpose(),
            y.slice_axis(50, 0, 1),
            good.slice_axis(0, y.dim(0), 2),
            Tensor::concatenate(&[&good, &y], 0),
            y.convert(DType::I32),
            y.bitcast(DType::U32),
            y.reverse(&[0]),
            y.is_finite(),
            y.argmax(0),
            y.sum(),
            y.sum_axes(&[9]),
            y.max_axes(&[0]),
            y.dot(&good),
            good.dot(&y),
            y.sort(0),
            y.argsort(0),
            y.take_along_axis(&rows, 0),
            good.take_along_axis(&y, 0),
            y.top_k(1, 0).1,
            y.dynamic_slice(&[&at], [1]),
            good.dynamic_slice(&[&y, &at], [1, 1]),
            y.dynamic_slice_in_dim(&at, 1, 60),
            y.dynamic_index_in_dim(&at, 0),
            y.dynamic_update_slice(&good, &[&at, &at]),
            y.dynamic_update_slice_in_dim(&good, &at, 0),
            y.max_pool(&[2], &[2], &Padding::Same),
            y.avg_pool(&[2], &[0], &Padding::Same),
            y.uniform(DType::F32, [2]),
            y.uniform_between(DType::F32, [2], 2.0, 1.0),
            y.normal(DType::I32, [2]),
            y.truncated_normal(DType::F32, [2], -1.0, 1.0),
            key.truncated_normal(DType::F32, [2], &y, 1.0),
            y.exponential(DType::F32, [2]),
            y.gumbel(DType::F32, [2]),
            y.bernoulli(0.5, [2]),
            key.bernoulli(&y, [2]),
            y.categorical(&good, 1),
            key.categorical(&y, 1),
            y.permutation(4),
            key.permutation(y.dim(0)),
            y.shuffle(&good),
            key.shuffle(&y),
            y.dropout_mask(DType::F32, [2], 2.0),
            y.fold_in(1),
            key.fold_in(&y),
            key.normal(DType::F32, y.shape().to_vec()),
            y.probe("seen"),
            y.stop_gradient(),
            y.checkpoint_name("kept"),
            cross_entropy(&y, &rows),
            linalg::cholesky(&y),
            linalg::solve(&y, &good),
            linalg::solve(&linalg::inv(&y), &y),
            linalg::svd(&y, true).0,
            linalg::slogdet(&y).1,
            fft::rfft(&y).0,
            fft::fft(&(good.clone(), y.clone())).1,
            fft::irfft(&(y.clone(), y.clone()), 7),
            Linear::new(3, 4).call(&y),
            Conv2d::new(3, 4, [3, 3]).call(&y),
            Conv1d::new(3, 4, [3]).dilation([2]).causal().call(&y),
            LayerNorm::new(3).call(&y),
            Embedding::new(3, 4).call(&y),
            nn::RmsNorm::new(3).call(&y),
            nn::SelfAttention::new(8, 2, nn::Mask::Causal).call(&y),
            nn::SelfAttention::new(8, 2, nn::Mask::None).call_padded(&y, &rows),
            nn::SelfAttention::new(8, 2, nn::Mask::Causal).call_padded(&good, &y),
            nn::dot_product_attention(&good, &y, &y, nn::Mask::None, None),
            nn::dot_product_attention(&good, &good, &good, nn::VisibleKeys::Lengths(&y), None),
            nn::BatchNorm::new(3).train(&y, &nn::BatchNorm::new(3).first_statistics()).0,
            nn::GroupNorm::new(1, 3).call(&y),
            nn::InstanceNorm::new(3).call(&y),
            nn::SwiGlu::new(3, 4).call(&y),
            nn::Rotary::new(2).call(&y, &rows),
            nn::Rotary::new(2).call(&good, &y),
            nn::CrossAttention::new(4, 4, 2).call(&good, &y, None),
            nn::CrossAttention::new(4, 4, 2).call(&good, &good, Some(&y)),
            nn::GroupedQueryAttention::new(4, 2, 1).call(&y),
            nn::GroupedQueryAttention::new(4, 2, 1)
                .call_cached(&good, &nn::GroupedQueryAttention::new(4, 2, 1).zero_cache(1, 1), &y)
                .1
                .keys,
            nn::MixtureOfExperts::new(3, 4, 2, 1).call(&y).1,
            nn::Gru::new(3, 4).call(&y, &nn::Gru::new(3, 4).zero_state(y.dim(1))).0,
            loss::Ctc::default().call(&good, &y, &rows, &rows),
            loss::linear_cross_entropy(&y, &good, &rows, 2),
            loss::MeanSquaredError::default().call(&y, &good),
            loss::MeanAbsoluteError::default().call(&good, &y),
            loss::Huber::default().call(&y, &good),
            loss::SmoothL1::default().call(&y, &good),
            loss::BinaryCrossEntropy::default().call(&good, &y),
            loss::BinaryCrossEntropy { weight: Some(y.clone()), ..Default::default() }
                .call(&good, &good),
            loss::Focal::default().call(&y, &good),
            loss::CrossEntropy { label_smoothing: 0.1, ignored: Some(0), ..Default::default() }
                .call(&y, &at),
            loss::CrossEntropy { class_weights: Some(y.clone()), ..Default::default() }
                .call(&good, &good.argmax(1)),
            loss::KlDivergence::default().call(&good, &y),
            loss::CosineEmbedding::default().call(&good, &good, &y),
            loss::TripletMargin::default().call(&good, &good, &y),
            Lstm::new(3, 4).call(&y, &Lstm::new(3, 4).zero_state(y.dim(1))).0,
            Dropout::new(0.5).call(&y, Some(&key)),
            optim::clip_by_global_norm(&y, 1.0).0,
            control::associative_scan(&y, |a, b| a + b),
            control::scan_unrolled(2, &good, &y, |c, x| (c + x, ())).0,
            control::while_loop(&y, |y| y.sum().lt(1.0), |y| y * 2.0),
            jacrev(&y, |y| y.exp()),
            jvp(&good, &y, |x| x.exp()).1,
            vjp(&y, |y| y.exp()).1(&y),
            nth_derivative(2, &y, |y| y.exp()),
            checkpoint(Checkpoint::nothing(), &y, |y| y.exp()),
            with_derivative(&y, |ct| ct.clone()),
        ];
        for (i, result) in several.into_iter().flatten().chain(results).enumerate() {
            let error = result.error().unwrap_or_else(|| panic!("result {i} is not poisoned"));
            assert_eq!(error.message, y.error().unwrap().message, "result {i}");
        }
        Sgd::new(0.1).step(f, &y, &y);
        Muon::new(0.1).step(f, &y, &y);
        Soap::new(0.1).step(f, &y, &y);
        Ema::new(0.9).step(f, &y);
        let parts = accumulate(2, &y, |y| y.sum());
        assert_eq!(parts.error().unwrap().message, y.error().unwrap().message);
    });
    assert!(message.starts_with(FIRST), "{message}");
}
