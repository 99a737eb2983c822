//! Calls: text, and references against independent definitions.

use super::*;
use crate::build::FunctionBuilder;
use crate::dtype::DType;
use crate::interpret;
use crate::op::attribute::{Attribute, Attributes, Field};
use crate::pitch::{self, PaddedRows};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use proptest::prelude::*;

fn numbers(dtype: DType, shape: &[usize], seed: u64) -> Literal {
    let mut state = seed;
    let values: Vec<Scalar> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let small = (state >> 40) as i64 % 17 - 8;
            if dtype.is_float() {
                Scalar::from_f64(dtype, small as f64 / 4.0)
            } else {
                Scalar::from_i64(dtype, small)
            }
        })
        .collect();
    Literal::from_scalars(dtype, shape, &values).unwrap()
}

fn gemm(batch: usize, m: usize, n: usize, k: usize, dtype: DType) -> Gemm {
    Gemm {
        batch,
        m,
        n,
        k,
        lhs: Matrix { batch: m * k, row: k, column: 1 },
        rhs: Matrix { batch: k * n, row: n, column: 1 },
        operand: dtype,
        rhs_operand: None,
        scales: None,
        accumulate: dtype.wide(),
        result: dtype,
        addends: Addends::default(),
        pitch: None,
    }
}

/// Weights outside f16's range give unspecified results.
#[test]
fn weights_beyond_halves_have_no_bound() {
    let mut call = Attention {
        batch: 1,
        queries: 1,
        keys: 1,
        heads: 1,
        group: 1,
        width: 1,
        packed: false,
        bias: vec![],
        prefix: false,
        causal: false,
        backward: true,
        out_given: false,
        scale: Scalar::of(1.0),
        dtype: DType::F16,
    };
    let given = |call: &Attention, l: f64| {
        let one = |ty: &TensorType, x: f64| {
            Literal::from_scalars(
                ty.dtype,
                &ty.extents().unwrap(),
                &[Scalar::from_f64(ty.dtype, x)],
            )
        };
        let types = Call::Attention(call.clone()).operands();
        let values = [1.0, 1.0, 1.0, l, 1.0, 0.0];
        types.iter().zip(values).map(|(ty, x)| one(ty, x).unwrap()).collect::<Vec<_>>()
    };
    // exp(1 + 11) is more than 65504.
    for (dtype, l, bounded) in
        [(DType::F16, 0.0, true), (DType::F16, -11.0, false), (DType::BF16, -11.0, true)]
    {
        call.dtype = dtype;
        let references = Call::Attention(call.clone()).references(&given(&call, l)).unwrap();
        assert!(references.iter().all(|r| r.errors()[0].is_finite() == bounded), "{dtype} {l}");
    }
    call.dtype = DType::I32;
    let error = Call::Attention(call).verify().unwrap_err().to_string();
    assert!(error.contains("attention of i32") && error.contains("floats"), "{error}");
}

#[test]
fn addends_are_what_their_ops_are() {
    for (bias, residual) in [(false, true), (true, false), (true, true)] {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let addends = Addends { bias, residual };
            let call = Call::Gemm(Gemm { addends, ..gemm(1, 3, 5, 4, dtype) });
            let shapes: [&[usize]; 4] = [&[3, 4], &[4, 5], &[5], &[3, 5]];
            let given = [true, true, bias, residual];
            let shapes = shapes.into_iter().zip(given).filter(|(_, given)| *given);
            let literals: Vec<Literal> =
                shapes.enumerate().map(|(n, (s, _))| numbers(dtype, s, n as u64)).collect();
            let function = FunctionBuilder::build("f", |f| {
                let mut inputs =
                    literals.iter().enumerate().map(|(n, l)| f.input(&format!("x{n}"), l.ty()));
                let mut next = || inputs.next().unwrap();
                // The sum of halves is an f32 until all is added, and the residual comes first.
                let wide = if dtype.is_half() { DType::F32 } else { dtype };
                let (x, y) = (next(), next());
                let mut sum = x.convert(wide).dot(&y.convert(wide));
                let shape = vec![3usize.into(), 5usize.into()];
                let bias = bias.then(|| next().convert(wide).broadcast_in_dim(shape, &[1]));
                let residual = residual.then(|| next().convert(wide));
                let order = if dtype.is_half() { [residual, bias] } else { [bias, residual] };
                for addend in order.into_iter().flatten() {
                    sum = sum + addend;
                }
                f.output("y", sum.convert(dtype));
            })
            .unwrap();
            let wanted = interpret::run(&function, &literals)
                .unwrap()
                .remove(0)
                .reshape(&[1, 3, 5])
                .unwrap();
            let reference = call.reference(&literals).unwrap();
            reference.check(&wanted).unwrap_or_else(|e| panic!("{call:?}: {e}"));
            let worst = reference.errors().iter().fold(0.0f64, |a, b| a.max(*b));
            assert!(worst < if dtype == DType::BF16 { 3.0 } else { 2e-4 }, "{dtype}: {worst}");
        }
    }
}

/// Sums of halves are rounded once, after the residual and then the bias are added in f32; other
/// sums take the bias first.
#[test]
fn halves_are_rounded_after_their_addends() {
    let one = |dtype: DType, terms: [f64; 4]| {
        let addends = Addends { bias: true, residual: true };
        let call = Call::Gemm(Gemm { addends, ..gemm(1, 1, 1, 1, dtype) });
        let shapes: [&[usize]; 4] = [&[1], &[1], &[1], &[1, 1, 1]];
        let operands: Vec<Literal> = terms
            .iter()
            .zip(shapes)
            .map(|(x, shape)| {
                Literal::from_scalars(dtype, shape, &[Scalar::from_f64(dtype, *x)]).unwrap()
            })
            .collect();
        call.reference(&operands).unwrap().literal().get(0).to_f64()
    };
    let large = 2f64.powi(24);
    // 256 + 1 is 257 in f32, and 256 in bf16.
    assert_eq!(one(DType::BF16, [16.0, 16.0, 1.0, 1.0]), 258.0);
    // 2²⁴ + 1 is 2²⁴ in f32. With the bias first the result would be 1.
    assert_eq!(one(DType::BF16, [4096.0, 4096.0, -large, 1.0]), 0.0);
    assert_eq!(one(DType::F32, [4096.0, 4096.0, -large, 1.0]), 1.0);
}

/// Sums in f32, in several orders.
#[test]
fn every_order_of_f32_is_within_the_bound_and_little_else() {
    let k = 1000;
    let call = Call::Gemm(gemm(1, 1, 1, k, DType::F32));
    let wild = |seed: u64| {
        let values = numbers(DType::I64, &[k], seed);
        let scaled = values.scalars().enumerate();
        let scaled =
            scaled.map(|(i, v)| v.to_i64().unwrap() as f32 * 1.37f32.powi(i as i32 % 40 - 20));
        Literal::from_vec(&[k], scaled.collect()).unwrap()
    };
    let (x, y) = (wild(1), wild(2));
    let reference = call.reference(&[x.clone(), y.clone()]).unwrap();
    let (x, y) = (x.as_slice::<f32>().unwrap(), y.as_slice::<f32>().unwrap());
    let scalar = |v: f32| Literal::from_vec(&[1, 1, 1], vec![v]).unwrap();
    let forward = x.iter().zip(y).fold(0.0f32, |s, (a, b)| s + a * b);
    let backward = x.iter().zip(y).rev().fold(0.0f32, |s, (a, b)| a.mul_add(*b, s));
    let lanes = (0..8).map(|l| (l..k).step_by(8).fold(0.0f32, |s, i| s + x[i] * y[i])).sum::<f32>();
    for sum in [forward, backward, lanes] {
        reference.check(&scalar(sum)).unwrap();
    }
    let magnitude: f32 = x.iter().zip(y).map(|(a, b)| (a * b).abs()).sum();
    assert!(reference.check(&scalar(forward + magnitude * 1e-3)).is_err());
    assert!(reference.check(&scalar(f32::NAN)).is_err());
}

#[test]
fn sums_that_are_not_finite() {
    let call = Call::Gemm(gemm(1, 1, 1, 2, DType::F32));
    let run = |x: [f32; 2], y: [f32; 2]| {
        let literal = |v: [f32; 2]| Literal::from_vec(&[2], v.to_vec()).unwrap();
        call.reference(&[literal(x), literal(y)]).unwrap()
    };
    let scalar = |v: f32| Literal::from_vec(&[1, 1, 1], vec![v]).unwrap();
    let infinite = run([f32::INFINITY, 1.0], [1.0, 5.0]);
    assert!(
        infinite.check(&scalar(f32::INFINITY)).is_ok() && infinite.check(&scalar(5.0)).is_err()
    );
    let nan = run([f32::INFINITY, 1.0], [1.0, f32::NEG_INFINITY]);
    assert!(nan.check(&scalar(f32::NAN)).is_ok() && nan.check(&scalar(0.0)).is_err());
    // An intermediate sum may overflow or not. So any result is allowed, and none can be checked.
    let large = run([3e38, 3e38], [1.0, -1.0]);
    assert!(large.errors()[0].is_infinite());
    let error = large.check(&scalar(0.0)).unwrap_err().to_string();
    assert!(error.contains("1 of 1 elements have no error bound"), "{error}");
    let empty = Call::Gemm(gemm(1, 1, 1, 0, DType::F32));
    let zero = empty
        .reference(&[Literal::zeros(DType::F32, &[0]), Literal::zeros(DType::F32, &[0])])
        .unwrap();
    assert!(zero.check(&scalar(0.0)).is_ok() && zero.check(&scalar(1e-45)).is_err());
}

fn convolution(
    direction: Direction,
    window: Vec<Window>,
    groups: usize,
    dtype: DType,
) -> Convolution {
    Convolution {
        direction,
        batch: 2,
        groups,
        input_channels: 3,
        output_channels: 2,
        window,
        dtype,
        wide: false,
    }
}

/// The definition with explicit arrays: dilate, pad, then correlate. One spatial axis.
fn plain(c: &Convolution, input: &[i64], filter: &[i64]) -> Vec<i64> {
    let (w, g) = (c.window[0], c.groups);
    let (cin, cout) = (g * c.input_channels, g * c.output_channels);
    let mut result = vec![0; c.batch * w.output * cout];
    for b in 0..c.batch {
        // A signal long enough for every window; it begins `low` before the input.
        let reach = w.output * w.stride + w.filter * w.rhs_dilation + w.input * w.lhs_dilation + 64;
        let mut line = vec![vec![0; cin]; reach];
        for p in 0..w.input {
            let at = (p * w.lhs_dilation) as i64 + w.low;
            if at >= 0 {
                line[at as usize].copy_from_slice(&input[(b * w.input + p) * cin..][..cin]);
            }
        }
        for o in 0..w.output {
            for channel in 0..cout {
                let group = channel / c.output_channels;
                result[(b * w.output + o) * cout + channel] = (0..w.filter)
                    .flat_map(|k| (0..c.input_channels).map(move |i| (k, i)))
                    .map(|(k, i)| {
                        let x =
                            line[o * w.stride + k * w.rhs_dilation][group * c.input_channels + i];
                        x * filter[(k * c.input_channels + i) * cout + channel]
                    })
                    .sum();
            }
        }
    }
    result
}

fn windows() -> impl Strategy<Value = Window> {
    (1usize..7, 1usize..4, 1usize..6, 1usize..4, -3i64..4, 1usize..3, 1usize..3).prop_map(
        |(input, filter, output, stride, low, lhs_dilation, rhs_dilation)| Window {
            input,
            filter,
            output,
            stride,
            low,
            lhs_dilation,
            rhs_dilation,
        },
    )
}

fn dot(a: &Literal, b: &Literal) -> i64 {
    a.scalars().zip(b.scalars()).map(|(x, y)| x.to_i64().unwrap() * y.to_i64().unwrap()).sum()
}

proptest! {
    #[test]
    fn convolutions_are_what_they_say(window in windows(), groups in 1usize..3, seed: u64) {
        let c = convolution(Direction::Forward, vec![window], groups, DType::I64);
        let [x, w, _] = tensors(&c, seed);
        let found =
            Call::Convolution(c.clone()).reference(&[x.clone(), w.clone()]).unwrap().literal();
        let wanted = plain(&c, x.as_slice().unwrap(), w.as_slice().unwrap());
        prop_assert_eq!(found.as_slice::<i64>().unwrap(), wanted);
    }

    #[test]
    fn directions_are_transposes(a in windows(), b in windows(), groups in 1usize..3, seed: u64) {
        let c = convolution(Direction::Forward, vec![a, b], groups, DType::I64);
        let [x, w, y] = tensors(&c, seed);
        let run = |direction: Direction, first: &Literal, second: &Literal| {
            let call = Call::Convolution(Convolution { direction, ..c.clone() });
            call.reference(&[first.clone(), second.clone()]).unwrap().literal()
        };
        // ⟨y, conv(x, w)⟩ is linear in x and in w.
        let product = dot(&run(Direction::Forward, &x, &w), &y);
        prop_assert_eq!(dot(&run(Direction::InputGradient, &w, &y), &x), product);
        prop_assert_eq!(dot(&run(Direction::FilterGradient, &x, &y), &w), product);
    }

    #[test]
    fn calls_round_trip(call in calls()) {
        let owned = |a: Attributes| {
            a.into_iter().map(|(k, v)| (k.to_string(), v)).collect::<BTreeMap<_, _>>()
        };
        let back = Call::from_attributes(call.name(), owned(call.attributes())).unwrap();
        prop_assert_eq!(back, call);
    }
}

/// A wide convolution of halves gives the sums of the same numbers in f32.
#[test]
fn wide_convolutions_are_not_rounded() {
    let window = Window {
        input: 5,
        filter: 2,
        output: 4,
        stride: 1,
        low: 0,
        lhs_dilation: 1,
        rhs_dilation: 1,
    };
    for direction in Direction::ALL {
        let of = convolution(direction, vec![window], 1, DType::BF16);
        let call = Call::Convolution(Convolution { wide: true, ..of.clone() });
        assert!(call.verify().is_ok());
        let operands: Vec<Literal> = call
            .operands()
            .iter()
            .map(|ty| numbers(DType::BF16, &ty.extents().unwrap(), 4))
            .collect();
        let in_f32 = operands.iter().map(|x| {
            let all: Vec<Scalar> = x.scalars().map(|x| Scalar::of(x.to_f64() as f32)).collect();
            Literal::from_scalars(DType::F32, x.shape(), &all).unwrap()
        });
        let plain = Call::Convolution(Convolution { dtype: DType::F32, ..of });
        let wanted = plain.reference(&in_f32.collect::<Vec<_>>()).unwrap();
        assert_eq!(call.reference(&operands).unwrap().literal(), wanted.literal());
    }
    let of = convolution(Direction::Forward, vec![window], 1, DType::F32);
    let error = Convolution { wide: true, ..of }.verify().unwrap_err().to_string();
    assert!(error.contains("a wide convolution of f32"), "{error}");
}

/// The memory of a literal with a pitch; the padding holds NaNs or −1.
fn padded_memory(dense: &Literal, rows: PaddedRows) -> Literal {
    let size = dense.dtype().size();
    let bytes = pitch::pad(&dense.to_bytes(), rows, size, 0xff);
    Literal::from_bytes(dense.dtype(), &[bytes.len() / size], &bytes).unwrap()
}

#[test]
fn a_product_reads_the_same_elements_of_a_padded_operand() {
    let (rows, x) = (PaddedRows { extent: 5, pitch: 8 }, numbers(DType::F32, &[2, 3, 5], 1));
    let other = numbers(DType::F32, &[64], 2);
    let plain = gemm(1, 1, 1, 1, DType::F32);
    let by = |batch, row, column| Matrix { batch, row, column };
    // lhs is x as it lies, transposed, without its last columns, and one row for all products.
    let cases = [
        Gemm { batch: 2, m: 3, n: 4, k: 5, lhs: by(15, 5, 1), rhs: by(0, 4, 1), ..plain.clone() },
        Gemm { batch: 2, m: 5, n: 4, k: 3, lhs: by(15, 1, 5), rhs: by(0, 4, 1), ..plain.clone() },
        Gemm { m: 6, n: 4, k: 4, lhs: by(0, 5, 1), rhs: by(0, 4, 1), ..plain.clone() },
        Gemm { batch: 3, m: 2, n: 4, k: 5, lhs: by(5, 15, 1), rhs: by(0, 4, 1), ..plain.clone() },
        Gemm { batch: 4, m: 1, n: 4, k: 5, lhs: by(0, 7, 1), rhs: by(0, 4, 1), ..plain.clone() },
    ];
    for dense in cases {
        let wanted = Call::Gemm(dense.clone()).reference(&[x.clone(), other.clone()]).unwrap();
        let padded = dense.padded(0, rows).unwrap();
        assert!(padded.stays_in_rows(0, rows), "{padded:?}");
        let memory = padded_memory(&x, rows);
        let found = padded.reference(&[memory.clone(), other.clone()]).unwrap();
        assert_eq!(found.literal(), wanted.literal(), "{dense:?}");
        // The same with the operands exchanged, and so transposed.
        let exchanged = |m: Matrix| Matrix { row: m.column, column: m.row, ..m };
        let (lhs, rhs) = (exchanged(dense.rhs), exchanged(dense.lhs));
        let turned = Gemm { m: dense.n, n: dense.m, lhs, rhs, ..dense };
        let wanted = Call::Gemm(turned.clone()).reference(&[other.clone(), x.clone()]).unwrap();
        let padded = turned.padded(1, rows).unwrap();
        assert!(padded.stays_in_rows(1, rows));
        let found = padded.reference(&[other.clone(), memory]).unwrap();
        assert_eq!(found.literal(), wanted.literal(), "{turned:?}");
    }
    // Rows that run over the ends of those in memory, and an addend.
    let across = Gemm { m: 2, n: 4, k: 6, lhs: by(0, 5, 1), rhs: by(0, 4, 1), ..plain.clone() };
    assert_eq!(across.padded(0, rows), None);
    let flat = Gemm { m: 10, k: 3, lhs: by(0, 3, 1), rhs: by(0, 1, 1), ..plain.clone() };
    assert_eq!(flat.padded(0, rows), None);
    let bias = Addends { bias: true, residual: false };
    assert_eq!(Gemm { n: 5, addends: bias, ..plain.clone() }.padded(2, rows), None);
    // The strides of the dense operand reach into the padding.
    let dense = Gemm { m: 3, k: 5, lhs: by(0, 5, 1), rhs: by(0, 1, 1), ..plain };
    assert!(!dense.stays_in_rows(0, rows) && !dense.stays_in_rows(2, rows));
}

#[test]
fn a_result_has_a_pitch_if_its_rows_have() {
    let rows = PaddedRows { extent: 5, pitch: 8 };
    let product = gemm(2, 3, 5, 4, DType::F32);
    assert_eq!(product.padded(2, rows).unwrap().pitch(), Some(8));
    assert_eq!(gemm(2, 3, 10, 4, DType::F32).padded(2, rows), None);
    let addends = Addends { bias: true, residual: true };
    let residual = Gemm { addends, ..product.clone() };
    assert_eq!(residual.padded(4, rows), None);
    let pitch = Some(8);
    assert!(Gemm { pitch, ..product.clone() }.verify().is_ok());
    assert!(Gemm { pitch, ..residual }.verify().is_err());
    assert!(Gemm { pitch: Some(5), ..product.clone() }.verify().is_err());
    assert!(Gemm { pitch: Some(usize::MAX / 8), ..product }.verify().is_err());
}

fn tensors(c: &Convolution, seed: u64) -> [Literal; 3] {
    let types = c.tensors();
    [0, 1, 2].map(|t| numbers(c.dtype, &types[t].extents().unwrap(), seed.wrapping_add(t as u64)))
}

fn calls() -> impl Strategy<Value = Call> {
    let dtype = (0..DType::IN_KERNELS.len()).prop_map(|i| DType::IN_KERNELS[i]);
    let addends =
        (any::<bool>(), any::<bool>()).prop_map(|(bias, residual)| Addends { bias, residual });
    let size = || 0usize..1 << 40;
    let gemms = (size(), size(), size(), size(), [size(), size(), size()], dtype.clone(), addends)
        .prop_map(|(batch, m, n, k, [x, y, z], dtype, addends)| {
            let lhs = Matrix { batch: x, row: y, column: z };
            let pitch = (x % 2 == 1).then_some(y);
            let gemm = gemm(batch, m % 1000, n % 1000, k % 1000, dtype);
            Call::Gemm(Gemm { lhs, addends, pitch, ..gemm })
        });
    let convolution = (0usize..3, prop::collection::vec(windows(), 0..4), 0usize..9, dtype.clone())
        .prop_map(|(d, window, groups, dtype)| {
            let wide = dtype.is_half() && groups > 1;
            let of = convolution(Direction::ALL[d], window, groups, dtype);
            Call::Convolution(Convolution { wide, ..of })
        });
    let list = || prop::collection::vec(0usize..100, 0..4);
    let scatter = (list(), list(), list(), list(), dtype.clone(), 0usize..5).prop_map(
        |(operand, indices, updates, dims, dtype, kind)| {
            Call::Scatter(Scatter {
                kind: ScatterKind::ALL[kind],
                operand,
                indices,
                updates,
                update_window_dims: dims.clone(),
                inserted_window_dims: dims.clone(),
                scatter_dims_to_operand_dims: dims,
                dtype,
                index: DType::I32,
                clip: false,
            })
        },
    );
    let keys = prop::collection::vec(dtype.clone(), 0..4);
    let sorts = (size(), size(), size(), keys, any::<bool>()).prop_map(
        |(outer, length, inner, keys, descending)| {
            Call::Sort(Sort { outer, length, inner, keys, descending })
        },
    );
    let tops = (size(), size(), size(), dtype)
        .prop_map(|(outer, length, k, dtype)| Call::TopK(TopK { outer, length, k, dtype }));
    let bias = prop::collection::vec(size(), 0..5);
    let attentions =
        (prop::array::uniform5(size()), prop::array::uniform4(any::<bool>()), any::<f64>(), bias)
            .prop_map(
                |(
                    [batch, queries, keys, heads, width],
                    [packed, prefix, causal, backward],
                    scale,
                    bias,
                )| {
                    let (scale, dtype) =
                        (Scalar::of(scale), if backward { DType::BF16 } else { DType::F64 });
                    Call::Attention(Attention {
                        batch,
                        queries,
                        keys,
                        heads,
                        group: 1 + heads % 3,
                        width,
                        packed,
                        bias,
                        prefix,
                        causal,
                        backward,
                        out_given: backward && causal,
                        scale,
                        dtype,
                    })
                },
            );
    prop_oneof![gemms, convolution, scatter, sorts, tops, attentions]
}

#[test]
fn bad_attributes_are_named() {
    let good = Call::Gemm(gemm(1, 2, 2, 2, DType::F32)).attributes();
    let error = |change: &dyn Fn(&mut BTreeMap<String, Attribute>)| {
        let mut map = good.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        change(&mut map);
        Call::from_attributes("gemm", map).unwrap_err().to_string()
    };
    assert!(error(&|m| drop(m.remove("lhs"))).contains("`lhs` is missing"));
    assert!(
        error(&|m| drop(m.insert("x".into(), 1usize.to_attribute()))).contains("no attribute `x`")
    );
    assert!(
        error(&|m| drop(m.insert("lhs".into(), vec![1usize].to_attribute())))
            .contains("[batch, row, column]")
    );
    let steps = |names: &[&str]| {
        Attribute::List(names.iter().map(|name| Attribute::Text((*name).into())).collect())
    };
    assert!(
        error(&|m| drop(m.insert("addends".into(), steps(&["residual", "bias"]))))
            .contains("then \"residual\"")
    );
    // The attribute's name in older plans, which could have activations.
    let old = |addends: &[&str]| {
        let mut map: BTreeMap<_, _> =
            good.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        map.insert("epilogue".into(), steps(addends));
        Call::from_attributes("gemm", map)
    };
    let both = Addends { bias: true, residual: true };
    assert!(matches!(old(&["bias", "residual"]), Ok(Call::Gemm(g)) if g.addends == both));
    assert!(old(&["bias", "relu"]).unwrap_err().to_string().contains("compile again"));
    assert!(
        Call::from_attributes("fft", BTreeMap::new())
            .unwrap_err()
            .to_string()
            .contains("scatter_add")
    );
    // The kind of a scatter is its name, not an attribute.
    let call = Call::Scatter(scatter(&[1], &[1, 0], &[1]));
    assert!(!call.attributes().contains_key("kind"));
    let mut map: BTreeMap<String, Attribute> =
        call.attributes().into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    map.insert("kind".into(), Attribute::Text("scatter_max".into()));
    let error = Call::from_attributes("scatter_mul", map).unwrap_err();
    assert!(error.to_string().contains("`scatter_mul` has no attribute `kind`"), "{error}");
}

fn scatter(operand: &[usize], indices: &[usize], updates: &[usize]) -> Scatter {
    Scatter {
        kind: ScatterKind::Add,
        operand: operand.to_vec(),
        indices: indices.to_vec(),
        updates: updates.to_vec(),
        update_window_dims: vec![],
        inserted_window_dims: vec![],
        scatter_dims_to_operand_dims: vec![],
        dtype: DType::F32,
        index: DType::I32,
        clip: false,
    }
}

#[test]
fn rows_are_added_at_their_indices() {
    // The gradient of an embedding: rows of updates into rows of a table, twice into row 2, once
    // out of bounds.
    let call = Call::Scatter(Scatter {
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        ..scatter(&[4, 2], &[5, 1], &[5, 2])
    });
    let table = Literal::from_vec(&[4, 2], (0..8).map(|i| i as f32).collect()).unwrap();
    let indices = Literal::from_vec(&[5, 1], vec![2i32, 0, 2, 4, -1]).unwrap();
    let updates = Literal::from_vec(&[5, 2], (0..10).map(|i| 10.0 * i as f32).collect()).unwrap();
    let reference = call.reference(&[table, indices, updates]).unwrap();
    assert_eq!(
        reference.literal().as_slice::<f32>().unwrap(),
        [20.0, 31.0, 2.0, 3.0, 4.0 + 0.0 + 40.0, 5.0 + 10.0 + 50.0, 6.0, 7.0]
    );
    assert!(reference.errors().iter().all(|e| *e == 0.0), "the order is part of the meaning");
}

#[test]
fn windows_are_skipped_whole() {
    // 2×2 windows at (row, column), in an operand of 3×3.
    let call = Call::Scatter(Scatter {
        update_window_dims: vec![1, 2],
        scatter_dims_to_operand_dims: vec![1, 0],
        ..scatter(&[3, 3], &[3, 2], &[3, 2, 2])
    });
    let operand = Literal::zeros(DType::F32, &[3, 3]);
    // Components are (column, row). The last window is partly out of bounds.
    let indices = Literal::from_vec(&[3, 2], vec![1i32, 0, 0, 1, 2, 0]).unwrap();
    let updates = Literal::from_vec(&[3, 2, 2], (1..13).map(|i| i as f32).collect()).unwrap();
    let found = call.reference(&[operand, indices, updates]).unwrap().literal();
    assert_eq!(found.as_slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 5.0, 9.0, 4.0, 7.0, 8.0, 0.0]);
}

#[test]
fn what_meets_an_element_comes_in_order() {
    let found = |kind, dtype: DType, values: &[Scalar]| {
        let call = Call::Scatter(Scatter {
            kind,
            inserted_window_dims: vec![0],
            scatter_dims_to_operand_dims: vec![0],
            dtype,
            ..scatter(&[1], &[values.len() - 1, 1], &[values.len() - 1])
        });
        let literal =
            |values: &[Scalar]| Literal::from_scalars(dtype, &[values.len()], values).unwrap();
        let indices = Literal::zeros(DType::I32, &[values.len() - 1, 1]);
        let operands = [literal(&values[..1]), indices, literal(&values[1..])];
        call.reference(&operands).map(|r| r.literal().get(0))
    };
    let floats = |values: &[f32]| values.iter().map(|v| Scalar::of(*v)).collect::<Vec<_>>();
    let float =
        |kind, values: &[f32]| found(kind, DType::F32, &floats(values)).unwrap().get::<f32>();
    // The order determines which products overflow.
    assert_eq!(float(ScatterKind::Mul, &[1e30, 1e30, 1e-30]), f32::INFINITY);
    assert_eq!(float(ScatterKind::Mul, &[1e30, 1e-30, 1e30]), 1e30f32 * 1e-30 * 1e30);
    assert_eq!(float(ScatterKind::Replace, &[1.0, 2.0, 3.0]), 3.0);
    assert_eq!(float(ScatterKind::Min, &[1.0, 2.0, 0.5, 3.0]), 0.5);
    assert!(float(ScatterKind::Max, &[1.0, f32::NAN, 3.0]).is_nan());
    assert_eq!(float(ScatterKind::Max, &[-0.0, 0.0]).to_bits(), 0);
    assert_eq!(float(ScatterKind::Min, &[0.0, -0.0]).to_bits(), 1 << 31);
    let bools = |kind, values: [bool; 2]| found(kind, DType::Bool, &values.map(Scalar::of));
    assert_eq!(bools(ScatterKind::Max, [false, true]).unwrap(), Scalar::of(true));
    assert_eq!(bools(ScatterKind::Min, [false, true]).unwrap(), Scalar::of(false));
    assert_eq!(bools(ScatterKind::Replace, [true, false]).unwrap(), Scalar::of(false));
    for kind in [ScatterKind::Add, ScatterKind::Mul] {
        assert!(
            bools(kind, [true, true])
                .unwrap_err()
                .to_string()
                .contains("neither sums nor products")
        );
    }
    let greatest =
        found(ScatterKind::Max, DType::U64, &[Scalar::of(3u64), Scalar::of(u64::MAX)]).unwrap();
    assert_eq!(greatest, Scalar::of(u64::MAX));
}

#[test]
fn additions_round_in_their_order() {
    let call = Call::Scatter(Scatter {
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        dtype: DType::F16,
        ..scatter(&[1], &[3, 1], &[3])
    });
    let halves = |v: &[f64]| {
        Literal::from_vec(&[v.len()], v.iter().map(|x| half::f16::from_f64(*x)).collect()).unwrap()
    };
    let indices = Literal::zeros(DType::I32, &[3, 1]);
    // 2048 + 1 rounds to 2048, twice. Adding the two ones first would give 2050.
    let found =
        call.reference(&[halves(&[2048.0]), indices, halves(&[1.0, 1.0, 0.0])]).unwrap().literal();
    assert_eq!(found.get(0).to_f64(), 2048.0);
}

#[test]
fn operands_are_checked() {
    let call = Call::Gemm(gemm(1, 2, 2, 2, DType::F32));
    let of = |n: usize| Literal::zeros(DType::F32, &[n]);
    assert!(call.reference(&[of(4), of(6)]).is_ok(), "matrices may lie in larger buffers");
    for bad in [vec![of(4)], vec![of(4), of(3)], vec![of(4), Literal::zeros(DType::F64, &[4])]] {
        assert!(call.reference(&bad).is_err());
    }
}

/// The indices of a sort or a top-k with one key.
fn order_of<T: crate::literal::Element>(call: &Call, values: &[T]) -> Vec<i32> {
    let key = Literal::from_vec(&[values.len()], values.to_vec()).unwrap();
    let reference = call.reference(&[key]).unwrap();
    assert!(reference.errors().iter().all(|e| *e == 0.0), "there is one right result");
    reference.literal().as_slice::<i32>().unwrap().to_vec()
}

fn sort(length: usize, keys: &[DType], descending: bool) -> Sort {
    Sort { outer: 1, length, inner: 1, keys: keys.to_vec(), descending }
}

#[test]
fn floats_are_sorted_with_equal_zeros_and_nans_last() {
    let negative_nan = f32::from_bits(0xffc0_0001);
    let values =
        [f32::NAN, 0.0, -1.0, f32::INFINITY, -0.0, negative_nan, f32::NEG_INFINITY, 1e-45, 0.0];
    let up = order_of(&Call::Sort(sort(9, &[DType::F32], false)), &values);
    assert_eq!(up, [6, 2, 1, 4, 8, 7, 3, 0, 5]);
    // Not the reverse: equal elements keep their order.
    let down = order_of(&Call::Sort(sort(9, &[DType::F32], true)), &values);
    assert_eq!(down, [0, 5, 3, 7, 1, 4, 8, 2, 6]);
    let top =
        |k| order_of(&Call::TopK(TopK { outer: 1, length: 9, k, dtype: DType::F32 }), &values);
    assert_eq!(top(4), [0, 5, 3, 7]);
    assert_eq!(top(9), down);
    assert!(top(0).is_empty());
}

#[test]
fn every_dtype_is_in_its_order() {
    let up = |dtype, key: Literal| {
        let call = Call::Sort(sort(key.len(), &[dtype], false));
        call.reference(&[key]).unwrap().literal().as_slice::<i32>().unwrap().to_vec()
    };
    for dtype in DType::IN_KERNELS {
        let values = [
            Scalar::highest(dtype),
            Scalar::one(dtype),
            Scalar::lowest(dtype),
            Scalar::zero(dtype),
        ];
        // The highest bool is one, the lowest unsigned integer zero.
        let wanted = if dtype == DType::Bool { [2, 3, 0, 1] } else { [2, 3, 1, 0] };
        assert_eq!(
            up(dtype, Literal::from_scalars(dtype, &[4], &values).unwrap()),
            wanted,
            "{dtype}"
        );
    }
    // Differences below the precision of an f64 or the range of an i64.
    let large = [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1];
    assert_eq!(up(DType::U64, Literal::from_vec(&[4], large.to_vec()).unwrap()), [3, 2, 1, 0]);
    let large = [i64::MAX, i64::MAX - 1, -1, i64::MIN + 1, i64::MIN];
    assert_eq!(up(DType::I64, Literal::from_vec(&[5], large.to_vec()).unwrap()), [4, 3, 2, 1, 0]);
}

#[test]
fn later_keys_decide_where_earlier_ones_are_equal() {
    let call = Call::Sort(sort(6, &[DType::Bool, DType::I32, DType::F32], false));
    let keys = [
        Literal::from_vec(&[6], vec![true, false, true, false, true, false]).unwrap(),
        Literal::from_vec(&[6], vec![2, 7, 1, 7, 2, 7]).unwrap(),
        Literal::from_vec(&[6], vec![-0.0f32, 1.0, 5.0, 0.5, 0.0, 1.0]).unwrap(),
    ];
    let found = call.reference(&keys).unwrap().literal();
    assert_eq!(found.as_slice::<i32>().unwrap(), [3, 1, 5, 2, 0, 4]);
}

#[test]
fn the_sorted_axis_may_be_in_the_middle() {
    let call =
        Call::Sort(Sort { outer: 2, length: 3, inner: 2, keys: vec![DType::I8], descending: true });
    let key = Literal::from_vec(&[2, 3, 2], vec![1i8, 9, 3, 8, 2, 7, 0, 0, 0, 1, 5, 0]).unwrap();
    let found = call.reference(&[key]).unwrap().literal();
    assert_eq!(found.shape(), [2, 3, 2]);
    assert_eq!(found.as_slice::<i32>().unwrap(), [1, 0, 2, 1, 0, 2, 2, 1, 0, 0, 1, 2]);
}

#[test]
fn sorts_are_checked() {
    let error = |call: Call| call.verify().unwrap_err().to_string();
    assert!(error(Call::Sort(sort(3, &[], false))).contains("by 0 keys"));
    assert!(error(Call::Sort(sort(3, &[DType::U8; 65], false))).contains("1 to 64"));
    assert!(error(Call::Sort(sort(1 << 31, &[DType::U8], false))).contains("i32"));
    assert!(
        error(Call::Sort(Sort { outer: 1 << 40, inner: 1 << 20, ..sort(8, &[DType::U8], false) }))
            .contains("overflow")
    );
    let top = |length, k| Call::TopK(TopK { outer: 1, length, k, dtype: DType::F32 });
    assert!(error(top(3, 4)).contains("top 4 of rows of 3"));
    assert!(error(top(1 << 31, 4)).contains("i32"));
    // No elements in many rows. An empty extent does not make the others fit.
    let empty = |inner| Call::Sort(Sort { outer: 1 << 50, inner, ..sort(0, &[DType::U8], false) });
    assert!(error(empty(1 << 10)).contains("overflow"));
    let empty = empty(1 << 8);
    assert!(empty.reference(&[Literal::zeros(DType::U8, &[0])]).unwrap().errors().is_empty());
    let empty = Call::TopK(TopK { outer: 1 << 50, length: 0, k: 0, dtype: DType::U8 });
    assert!(empty.reference(&[Literal::zeros(DType::U8, &[0])]).unwrap().errors().is_empty());
}
