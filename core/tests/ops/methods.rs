//! Methods of tensors that consist of several ops.

use wengert_core::build::FunctionBuilder;
use wengert_core::build::indexing::{
    GatherDimensionNumbers, GatherMode, ScatterDimensionNumbers, ScatterMode, ScatterOptions,
};
use wengert_core::op::{BitcastConvertType, ConvGeneralDilated, DotGeneral};
use wengert_core::{
    Binding, DType, Dim, Literal, Op, Tensor, TensorType, cross_entropy, interpret,
};

/// Runs a function of one input, which may have dimension variables.
fn run(
    ty: TensorType,
    binding: &Binding,
    x: &Literal,
    f: impl FnOnce(&Tensor) -> Tensor,
) -> Literal {
    let function = FunctionBuilder::build("f", |b| {
        let x = b.input("x", ty);
        b.output("y", f(&x));
    })
    .unwrap();
    interpret::run(&function.bind(binding).unwrap(), std::slice::from_ref(x))
        .unwrap()
        .swap_remove(0)
}

fn plain(x: &Literal, f: impl FnOnce(&Tensor) -> Tensor) -> Literal {
    run(x.ty(), &Binding::new(), x, f)
}

fn matrix(rows: usize, values: &[f32]) -> Literal {
    Literal::from_vec(&[rows, values.len() / rows], values.to_vec()).unwrap()
}

#[test]
fn means_count_variable_extents() {
    let ty = TensorType::new(
        DType::F32,
        [Dim::variable("B"), Dim::linear(1, [("T".into(), 2)]).unwrap()],
    );
    let binding = Binding::new().with("B", 2).with("T", 1);
    let x = matrix(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 9.0]);
    assert_eq!(run(ty.clone(), &binding, &x, Tensor::mean), Literal::from(4.0f32));
    let rows = run(ty.clone(), &binding, &x, |x| x.mean_axes(&[1]));
    assert_eq!(rows.as_slice::<f32>().unwrap(), [2.0, 6.0]);
    assert_eq!(
        run(ty, &binding, &x, |x| x.var_axes(&[1])).as_slice::<f32>().unwrap(),
        [2.0 / 3.0, 14.0 / 3.0]
    );
}

#[test]
fn a_mean_of_halves_does_not_overflow() {
    let x = Literal::full(&[100_000], half::f16::from_f32(10.0).into());
    assert_eq!(plain(&x, Tensor::mean), Literal::from(half::f16::from_f32(10.0)));
}

#[test]
fn operators_broadcast_and_take_numbers() {
    let x = matrix(2, &[1.0, -2.0, 3.0, -4.0]);
    let relu = plain(&x, |x| x.max(0.0));
    assert_eq!(relu.as_slice::<f32>().unwrap(), [1.0, 0.0, 3.0, 0.0]);
    let positive = plain(&x, |x| x.gt(0).select(x, &(x * 10)));
    assert_eq!(positive.as_slice::<f32>().unwrap(), [1.0, -20.0, 3.0, -40.0]);
    let clamped = plain(&x, |x| x.clamp(-1.0, 2.0));
    assert_eq!(clamped.as_slice::<f32>().unwrap(), [1.0, -1.0, 2.0, -1.0]);
    let rows = plain(&x, |x| x.min(x.mean_axes(&[0]).reshape([1usize, 2])));
    assert_eq!(rows.as_slice::<f32>().unwrap(), [1.0, -3.0, 2.0, -4.0]);
}

#[test]
fn shapes() {
    let x = matrix(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(plain(&x, |x| x.flatten(0)).shape(), [6]);
    assert_eq!(plain(&x, |x| x.reshape([1usize, 2, 3]).flatten(1)).shape(), [1, 6]);
    let padded = plain(&x, |x| x.pad(&[(1, 0), (-1, 1)], 7.0));
    assert_eq!(padded, matrix(3, &[7.0, 7.0, 7.0, 2.0, 3.0, 7.0, 5.0, 6.0, 7.0]));
    let reversed = plain(&x, |x| x.reverse(&[0]));
    assert_eq!(reversed, matrix(2, &[4.0, 5.0, 6.0, 1.0, 2.0, 3.0]));
}

#[test]
fn lookups_and_classes() {
    let x = matrix(3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let rows = plain(&x, |x| {
        x.gather_rows(&Tensor::constant(Literal::from_vec(&[2, 1], vec![2u8, 0]).unwrap()))
    });
    assert_eq!(rows.shape(), [2, 1, 2]);
    assert_eq!(rows.as_slice::<f32>().unwrap(), [5.0, 6.0, 1.0, 2.0]);
    let labels = Literal::from_vec(&[3], vec![1i8, 0, 5]).unwrap();
    let hot = plain(&labels, |x| x.one_hot(2, DType::F32));
    assert_eq!(hot, matrix(3, &[0.0, 1.0, 1.0, 0.0, 0.0, 0.0]));
    let best = plain(&x, |x| x.argmax(1));
    assert_eq!(best.as_slice::<i32>().unwrap(), [1, 1, 1]);
    let loss = plain(&x, |x| cross_entropy(x, &x.argmax(1)));
    let expected = (1.0 + (-1.0f64).exp()).ln();
    assert!((loss.get(0).to_f64() - expected).abs() < 1e-7);
}

fn constant<T: wengert_core::Element>(shape: &[usize], values: Vec<T>) -> Tensor {
    Tensor::constant(Literal::from_vec(shape, values).unwrap())
}

#[test]
fn dynamic_slices_clamp_their_starts() {
    let x = matrix(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let at = |i: i32, j: i32| {
        plain(&x, |x| x.dynamic_slice(&[&constant(&[2], vec![i, j])], [1usize, 2]))
    };
    assert_eq!(at(1, 1), matrix(1, &[5.0, 6.0]));
    assert_eq!(at(-1, 9), matrix(1, &[2.0, 3.0]));
    let scalars = |x: &Tensor| {
        x.dynamic_slice(&[&Tensor::constant(1u64), &Tensor::constant(-7i8)], [1usize, 2])
    };
    assert_eq!(plain(&x, scalars), matrix(1, &[4.0, 5.0]));
    let column = plain(&x, |x| x.dynamic_slice_in_dim(&Tensor::constant(2i64), 1usize, 1));
    assert_eq!(column, matrix(2, &[3.0, 6.0]));
    let row = plain(&x, |x| x.dynamic_index_in_dim(&Tensor::constant(5i32), 0));
    assert_eq!(row, Literal::from_vec(&[3], vec![4.0f32, 5.0, 6.0]).unwrap());
    let update = constant(&[1, 2], vec![8.0f32, 9.0]);
    let zero = Tensor::constant(0i32);
    let updated = plain(&x, |x| x.dynamic_update_slice(&update, &[&zero, &Tensor::constant(2i32)]));
    assert_eq!(updated, matrix(2, &[1.0, 8.0, 9.0, 4.0, 5.0, 6.0]));
    let column = constant(&[2, 1], vec![8.0f32, 9.0]);
    let updated =
        plain(&x, |x| x.dynamic_update_slice_in_dim(&column, &Tensor::constant(-3i32), 1));
    assert_eq!(updated, matrix(2, &[8.0, 2.0, 3.0, 9.0, 5.0, 6.0]));
}

#[test]
fn gathers_fill_what_lies_outside() {
    let x = matrix(3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let numbers = GatherDimensionNumbers {
        offset_dims: vec![1],
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        ..Default::default()
    };
    let ids = || constant(&[3, 1], vec![2u32, 7, 0]);
    let rows = |x: &Literal, mode| plain(x, |x| x.gather(&ids(), &numbers, [1usize, 2], mode));
    for mode in [GatherMode::Clip, GatherMode::PromiseInBounds] {
        assert_eq!(rows(&x, mode), matrix(3, &[5.0, 6.0, 5.0, 6.0, 1.0, 2.0]));
    }
    let filled = rows(&x, GatherMode::FillWith(7.0f32.into()));
    assert_eq!(filled, matrix(3, &[5.0, 6.0, 7.0, 7.0, 1.0, 2.0]));
    let filled: Vec<bool> =
        rows(&x, GatherMode::Fill).scalars().map(|s| s.to_f64().is_nan()).collect();
    assert_eq!(filled, [false, false, true, true, false, false]);
    let outside = |x: Literal| rows(&x, GatherMode::Fill).get(2);
    assert_eq!(outside(Literal::zeros(DType::I32, &[3, 2])), i32::MIN.into());
    assert_eq!(outside(Literal::zeros(DType::U64, &[3, 2])), u64::MAX.into());
    assert_eq!(outside(Literal::zeros(DType::Bool, &[3, 2])), true.into());
}

#[test]
fn scatters_of_every_kind() {
    let x = Literal::from_vec(&[4], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let numbers = ScatterDimensionNumbers {
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        ..Default::default()
    };
    // Two updates of element 2, one of element 0, and one out of bounds.
    let at = || constant(&[4, 1], vec![2i32, 0, 9, 2]);
    let updates = || constant(&[4], vec![5.0f32, -6.0, 7.0, 0.5]);
    let run = |f: &dyn Fn(&Tensor, &Tensor, &Tensor) -> Tensor| {
        plain(&x, |x| f(x, &at(), &updates())).as_slice::<f32>().unwrap().to_vec()
    };
    let drop = ScatterMode::Drop;
    assert_eq!(run(&|x, i, u| x.scatter(i, u, &numbers, drop)), [-6.0, 2.0, 0.5, 4.0]);
    assert_eq!(run(&|x, i, u| x.scatter_add(i, u, &numbers, drop)), [-5.0, 2.0, 8.5, 4.0]);
    assert_eq!(run(&|x, i, u| x.scatter_mul(i, u, &numbers, drop)), [-6.0, 2.0, 7.5, 4.0]);
    assert_eq!(run(&|x, i, u| x.scatter_min(i, u, &numbers, drop)), [-6.0, 2.0, 0.5, 4.0]);
    let clip = ScatterOptions { mode: ScatterMode::Clip, unique_indices: false };
    assert_eq!(run(&|x, i, u| x.scatter_max(i, u, &numbers, clip)), [1.0, 2.0, 5.0, 7.0]);
    let promised = ScatterMode::PromiseInBounds;
    assert_eq!(run(&|x, i, u| x.scatter_add(i, u, &numbers, promised)), [-5.0, 2.0, 8.5, 4.0]);
}

fn numbers(shape: usize, draw: impl FnOnce(&Tensor) -> Tensor) -> Vec<f64> {
    let key = Literal::from_vec(&[2], vec![17u32, 4]).unwrap();
    let values: Vec<f64> = plain(&key, draw).scalars().map(|s| s.to_f64()).collect();
    assert_eq!(values.len(), shape);
    values
}

fn moments(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / x.len() as f64)
}

#[test]
fn uniform_numbers_fill_the_half_open_interval() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = numbers(40_000, |key| key.uniform(dtype, [200usize, 200]));
        assert!(x.iter().all(|v| (0.0..1.0).contains(v)), "{dtype}");
        let (mean, variance) = moments(&x);
        // Four standard errors, plus half a step of the half's mantissa.
        assert!(
            (mean - 0.5).abs() < 0.006 + 0.004 && (variance - 1.0 / 12.0).abs() < 0.003,
            "{dtype}: {mean} {variance}"
        );
        let below: usize = x.iter().filter(|v| **v < 0.25).count();
        assert!((below as f64 / 40_000.0 - 0.25).abs() < 0.01, "{dtype}: {below}");
    }
}

#[test]
fn normal_numbers_have_the_moments_of_the_normal_distribution() {
    for dtype in [DType::BF16, DType::F32, DType::F64] {
        let x = numbers(40_000, |key| key.normal(dtype, [40_000usize]));
        let (mean, variance) = moments(&x);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{dtype}: {mean} {variance}");
        let fourth = x.iter().map(|v| v.powi(4)).sum::<f64>() / x.len() as f64;
        assert!((fourth - 3.0).abs() < 0.25, "{dtype}: {fourth}");
        let within = x.iter().filter(|v| v.abs() < 1.0).count() as f64 / x.len() as f64;
        assert!((within - 0.6827).abs() < 0.01, "{dtype}: {within}");
    }
}

#[test]
fn new_keys_differ_from_one_another() {
    let x = numbers(30, |key| {
        let keys = key.split_key(3);
        let draws: Vec<Tensor> = keys.iter().map(|k| k.uniform(DType::F64, [10usize])).collect();
        Tensor::concatenate(&draws.iter().collect::<Vec<_>>(), 0)
    });
    let mut sorted = x.clone();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    assert_eq!(sorted.len(), 30);
}

#[test]
fn mistakes_are_explained() {
    let message = |f: &dyn Fn(&Tensor) -> Tensor| {
        let built = FunctionBuilder::build("f", |b| {
            let x =
                b.input("x", TensorType::new(DType::I32, [Dim::variable("B"), Dim::variable("T")]));
            b.output("y", f(&x));
        });
        built.unwrap_err().to_string()
    };
    assert!(message(&Tensor::mean).contains("mean of i32[B,T], which is not of floats"));
    assert!(message(&|x| x.flatten(3)).contains("flatten: i32[B,T] has no axis 3"));
    assert!(message(&|x| x.exp()).contains("exp: takes floats, found i32"));
    assert!(message(&|x| x.mean_axes(&[5])).contains("methods.rs"));
    assert!(message(&|x| x.uniform(DType::F32, [2usize])).contains("a key is u32[2]"));
    assert!(message(&|x| x.softmax(2)).contains("softmax"));
}

#[test]
fn results_that_a_product_cannot_give_are_explained() {
    let types = |dtype: DType, shapes: [&[usize]; 2]| {
        shapes.map(|s| TensorType::new(dtype, s.iter().copied()))
    };
    let dot = |operand, result| {
        let op = DotGeneral { result: Some(result), ..DotGeneral::matmul(2) };
        Op::from(op).infer(&types(operand, [&[2, 3], &[3, 4]]), &[])
    };
    let conv = |operand, result| {
        let op = ConvGeneralDilated { result, ..ConvGeneralDilated::new(1) };
        Op::from(op).infer(&types(operand, [&[1, 3, 2], &[2, 2, 4]]), &[])
    };
    for operand in DType::IN_KERNELS {
        for result in DType::IN_KERNELS {
            // The rule of lax: the result is not narrower, floats give floats, and signed integers
            // give signed integers.
            let kind = match (operand, result) {
                (DType::Bool, _) => true,
                (_, DType::Bool) => false,
                _ if operand.is_float() => result.is_float(),
                _ => {
                    result.is_float() || !operand.is_signed_integer() || result.is_signed_integer()
                }
            };
            let takes = kind && result.size() >= operand.size();
            let found = dot(operand, result);
            assert_eq!(found.is_ok(), takes, "{operand} to {result}: {found:?}");
            assert!(found.map_or(true, |r| r[0].dtype == result));
            assert_eq!(
                conv(operand, Some(result)).is_ok(),
                takes && result != DType::Bool,
                "{operand} to {result}"
            );
        }
    }
    let error = dot(DType::I64, DType::F32).unwrap_err().to_string();
    assert!(
        error.contains("a product of i64 cannot give f32")
            && error.contains("convert_element_type"),
        "{error}"
    );
    let error = conv(DType::Bool, None).unwrap_err().to_string();
    assert!(error.contains("found bool") && error.contains("give a `result`"), "{error}");
}

/// The bytes of a literal's elements, in little-endian order.
fn bytes(literal: &Literal) -> Vec<u8> {
    let size = literal.dtype().size();
    literal.scalars().flat_map(|s| s.bits().to_le_bytes()[..size].to_vec()).collect()
}

#[test]
fn bits_of_other_sizes_are_parts_along_a_last_axis() {
    // 8192 numbers of each half format, none of them NaN. Their bits give numbers of all other
    // dtypes.
    let halves: Vec<half::f16> = (0..=u16::MAX)
        .map(half::f16::from_bits)
        .filter(|h| !h.is_nan())
        .step_by(5)
        .take(8192)
        .collect();
    let bfloats: Vec<half::bf16> = (0..=u16::MAX)
        .map(half::bf16::from_bits)
        .filter(|h| !h.is_nan())
        .step_by(7)
        .take(8192)
        .collect();
    let wide: Vec<f64> = (0..512).map(|i| (f64::from(i) - 250.5) * 1.37e-3).collect();
    let integers: Vec<i64> =
        (0..512i64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64)).collect();
    let small: Vec<i8> = (0..512).map(|i| (i * 7) as i8).collect();
    let literals = [
        Literal::from_vec(&[halves.len()], halves).unwrap(),
        Literal::from_vec(&[bfloats.len()], bfloats).unwrap(),
        Literal::from_vec(&[512], wide).unwrap(),
        Literal::from_vec(&[512], integers).unwrap(),
        Literal::from_vec(&[512], small).unwrap(),
    ];
    let mut compared = 0;
    for x in literals {
        for dtype in DType::ALL.into_iter().filter(|d| *d != DType::Bool) {
            let (from, to) = (x.dtype().size(), dtype.size());
            let operand = if to > from {
                x.reshape(&[x.len() * from / to, to / from]).unwrap()
            } else {
                x.clone()
            };
            let there = plain(&operand, |x| x.bitcast(dtype));
            let extents =
                if to < from { vec![x.len(), from / to] } else { vec![x.len() * from / to] };
            assert_eq!(
                (there.dtype(), there.shape()),
                (dtype, extents.as_slice()),
                "{} to {dtype}",
                x.dtype()
            );
            // The bytes are the same, except that NaNs become canonical.
            let nan = there.scalars().any(|s| dtype.is_float() && s.to_f64().is_nan());
            if !nan {
                assert_eq!(bytes(&there), bytes(&x), "{} to {dtype}", x.dtype());
                assert_eq!(
                    plain(&there, |y| y.bitcast(x.dtype())).scalars().collect::<Vec<_>>(),
                    x.scalars().collect::<Vec<_>>()
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 25, "{compared}");
    let wrong = Literal::from_vec(&[3], vec![1u8, 2, 3]).unwrap();
    let built = FunctionBuilder::build("f", |b| {
        let x = b.input("x", wrong.ty());
        b.output("y", x.bitcast(DType::F32));
    });
    assert!(built.unwrap_err().to_string().contains("has the bits of 4 of u8[3]"));
    // The axis of the parts must have a known extent. A bitcast to bool is refused.
    let infer = |dtype, x: TensorType| Op::from(BitcastConvertType { dtype }).infer(&[x], &[]);
    let variable = TensorType::new(DType::U8, [Dim::from(2usize), Dim::variable("B")]);
    let error = infer(DType::F32, variable).unwrap_err().to_string();
    assert!(error.contains("give the operand a last axis of extent 4"), "{error}");
    assert!(infer(DType::F16, TensorType::scalar(DType::U8)).is_err());
    let error = infer(DType::Bool, TensorType::scalar(DType::U8)).unwrap_err().to_string();
    assert!(error.contains("bool is no other dtype's bits"), "{error}");
    let shape = infer(DType::U8, TensorType::new(DType::F32, [Dim::variable("B")])).unwrap();
    assert_eq!(shape[0].to_string(), "u8[B,4]");
}
