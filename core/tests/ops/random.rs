//! Random numbers against their distributions, at fixed keys. The tests compare moments and the
//! Kolmogorov–Smirnov distance. For n numbers that distance is below 1.95/√n for 999 of 1000 keys.

use wengert_core::build::FunctionBuilder;
use wengert_core::{DType, Literal, Tensor, TensorType, interpret};

const COUNT: usize = 20_000;

fn draw(key: [u32; 2], f: impl FnOnce(&Tensor) -> Vec<Tensor>) -> Vec<Vec<f64>> {
    let function = FunctionBuilder::build("f", |b| {
        let key = b.input("key", TensorType::new(DType::U32, [2usize]));
        for (i, y) in f(&key).iter().enumerate() {
            b.output(&format!("y{i}"), y);
        }
    })
    .unwrap_or_else(|e| panic!("{e}"));
    let key = Literal::from_vec(&[2], key.to_vec()).unwrap();
    let drawn = interpret::run(&function, &[key]).unwrap();
    drawn.iter().map(|l| l.scalars().map(|s| s.to_f64()).collect()).collect()
}

fn one(f: impl FnOnce(&Tensor) -> Tensor) -> Vec<f64> {
    draw([31, 7], |key| vec![f(key)]).swap_remove(0)
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// Asserts the Kolmogorov–Smirnov bound on the numbers' distance from a distribution.
fn assert_distributed(what: &str, x: &[f64], distribution: impl Fn(f64) -> f64) {
    let mut sorted = x.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let distance = sorted.iter().enumerate().fold(0.0f64, |d, (i, v)| {
        let expected = distribution(*v);
        d.max((expected - i as f64 / n).abs()).max((expected - (i + 1) as f64 / n).abs())
    });
    assert!(distance < 1.95 / n.sqrt(), "{what}: {distance}, {}", distance * n.sqrt());
}

#[test]
fn continuous_numbers_have_their_distributions() {
    for dtype in [DType::F32, DType::F64] {
        let shape = || [COUNT];
        let uniform = one(|k| k.uniform(dtype, shape()));
        assert_distributed("uniform", &uniform, |v| v);
        let between = one(|k| k.uniform_between(dtype, shape(), -3.0, 5.0));
        assert!(between.iter().all(|v| (-3.0..5.0).contains(v)));
        assert_distributed("uniform_between", &between, |v| (v + 3.0) / 8.0);
        let normal = one(|k| k.normal(dtype, shape()));
        assert_distributed("normal", &normal, |v| 0.5 * libm::erfc(-v / 2f64.sqrt()));
        let exponential = one(|k| k.exponential(dtype, shape()));
        assert!(exponential.iter().all(|v| *v >= 0.0 && v.is_finite()));
        assert_distributed("exponential", &exponential, |v| 1.0 - (-v).exp());
        let gumbel = one(|k| k.gumbel(dtype, shape()));
        assert_distributed("gumbel", &gumbel, |v| (-(-v).exp()).exp());
        // The mean is Euler's constant.
        assert!((mean(&gumbel) - 0.5772).abs() < 0.03, "{}", mean(&gumbel));
    }
}

/// The density of the normal distribution. [`below`] is its cumulative distribution function.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

fn below(x: f64) -> f64 {
    0.5 * libm::erfc(-x / 2f64.sqrt())
}

#[test]
fn truncated_normal_numbers_have_their_distribution_and_moments() {
    let inf = f64::INFINITY;
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for (low, high) in [
            (-2.0, 2.0),
            (-0.5, 3.0),
            (1.0, 2.5),
            (-3.0, -2.0),
            (-inf, 0.25),
            (0.5, inf),
            (-inf, inf),
        ] {
            let x = one(|k| k.truncated_normal(dtype, [COUNT], low, high));
            assert!(
                x.iter().all(|v| low < *v && *v < high && v.is_finite()),
                "{dtype} {low} {high}"
            );
            let mass = below(high) - below(low);
            // The contribution of a tail of φ. At infinity it is zero, although the product is NaN.
            let edge = |x: f64| if x.is_finite() { x * density(x) } else { 0.0 };
            let expected = (density(low) - density(high)) / mass;
            let variance = 1.0 + (edge(low) - edge(high)) / mass - expected * expected;
            // Six standard errors. The variance of the squares is at most twice the square of a
            // normal distribution's. A half is rounded once.
            let (tolerance, squares) = (
                6.0 * (variance / COUNT as f64).sqrt(),
                6.0 * variance * (2.0 / COUNT as f64).sqrt(),
            );
            let rounding = if dtype.is_half() { 1.0 / 256.0 } else { 0.0 };
            let found = mean(&x);
            assert!(
                (found - expected).abs() < tolerance + rounding,
                "{dtype} {low} {high}: {found}, {expected}"
            );
            let found = mean(&x.iter().map(|v| (v - expected).powi(2)).collect::<Vec<_>>());
            assert!(
                (found - variance).abs() < squares + rounding,
                "{dtype} {low} {high}: {found}, {variance}"
            );
            if !dtype.is_half() {
                assert_distributed("truncated_normal", &x, |v| (below(v) - below(low)) / mass);
            }
        }
    }
    // A bound for each row, and a bound for all rows.
    let low = Literal::from_vec(&[2, 1], vec![-1.0f64, 1.0]).unwrap();
    let x = one(|k| k.truncated_normal(DType::F64, [2, COUNT], Tensor::constant(low), 1.5f32));
    for (row, low) in x.chunks(COUNT).zip([-1.0, 1.0]) {
        assert_distributed("a row", row, |v| (below(v) - below(low)) / (below(1.5) - below(low)));
    }
}

/// In the far tails erf has no digits left. The numbers concentrate at the outer bound, and none
/// equals it.
#[test]
fn truncated_normal_numbers_of_the_far_tails_are_within_the_bounds() {
    let different =
        |x: &[f64]| x.iter().map(|v| v.to_bits()).collect::<std::collections::BTreeSet<_>>().len();
    let tail = one(|k| k.truncated_normal(DType::F32, [COUNT], 5.0, 6.0));
    assert!(
        tail.iter().all(|v| 5.0 < *v && *v < 6.0) && (5..=11).contains(&different(&tail)),
        "{}",
        different(&tail)
    );
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for (low, high) in
            [(9.0, 9.5), (-9.5, -9.0), (20.0, f64::INFINITY), (-1e-3, 1e-3), (1.0, 1.02)]
        {
            let x = one(|k| k.truncated_normal(dtype, [1000], low, high));
            assert!(x.iter().all(|v| low < *v && *v < high), "{dtype} {low} {high}: {x:?}");
        }
    }
    // There is one f32 between these bounds.
    let (low, high) = (1.0f32, f32::from_bits(0x3f80_0002));
    let x = one(|k| k.truncated_normal(DType::F32, [100], low, high));
    assert!(x.iter().all(|v| *v == f64::from(f32::from_bits(0x3f80_0001))));
}

#[test]
fn halves_have_the_moments_of_their_distributions() {
    for dtype in [DType::F16, DType::BF16] {
        let gumbel = one(|k| k.gumbel(dtype, [COUNT]));
        let exponential = one(|k| k.exponential(dtype, [COUNT]));
        assert!((mean(&gumbel) - 0.5772).abs() < 0.03 && (mean(&exponential) - 1.0).abs() < 0.03);
        assert!(gumbel.iter().chain(&exponential).all(|v| v.is_finite()));
        let between = one(|k| k.uniform_between(dtype, [COUNT], 1.0, 2.0));
        assert!(between.iter().all(|v| (1.0..2.0).contains(v)), "{dtype}");
        let normal = one(|k| k.normal(dtype, [COUNT]));
        let variance = mean(&normal.iter().map(|v| v * v).collect::<Vec<_>>());
        assert!((variance - 1.0).abs() < 0.04, "{dtype}: {variance}");
    }
}

#[test]
fn events_have_their_probabilities() {
    let close =
        |found: f64, p: f64| (found - p).abs() < 4.0 * (p * (1.0 - p) / COUNT as f64).sqrt();
    for p in [0.0, 0.1, 0.75, 1.0] {
        let found = mean(&one(|k| k.bernoulli(p, [COUNT])));
        assert!(close(found, p) || found == p, "{p}: {found}");
    }
    let ps = Literal::from_vec(&[2, 1], vec![0.25f64, 0.5]).unwrap();
    let each = one(|k| k.bernoulli(Tensor::constant(ps), [2, COUNT]));
    assert!(close(mean(&each[..COUNT]), 0.25) && close(mean(&each[COUNT..]), 0.5));
    let mask = one(|k| k.dropout_mask(DType::F32, [COUNT], 0.2));
    assert!(mask.iter().all(|v| *v == 0.0 || *v == 1.25));
    assert!(close(mask.iter().filter(|v| **v == 0.0).count() as f64 / COUNT as f64, 0.2));

    let logits = Literal::from_vec(&[4], vec![0.0f32, 1.0, -1.0, f32::NEG_INFINITY]).unwrap();
    let classes = one(|k| {
        let logits = Tensor::constant(logits).broadcast_to(&[COUNT.into(), 4usize.into()]);
        k.categorical(&logits, 1)
    });
    let total = 1.0 + 1f64.exp() + (-1f64).exp();
    for (class, weight) in [(0.0, 1.0), (1.0, 1f64.exp()), (2.0, (-1f64).exp()), (3.0, 0.0)] {
        let found = classes.iter().filter(|c| **c == class).count() as f64 / COUNT as f64;
        assert!(close(found, weight / total) || found == weight, "{class}: {found}");
    }
}

#[test]
fn permutations_are_orders_and_all_are_alike() {
    let x = one(|k| k.permutation(1000usize));
    let mut sorted = x.clone();
    sorted.sort_by(f64::total_cmp);
    assert_eq!(sorted, (0..1000).map(f64::from).collect::<Vec<_>>());
    // All 6 orders of 3 elements occur equally often.
    let keys = 3000;
    let mut seen = std::collections::BTreeMap::new();
    let orders =
        draw([5, 9], |k| k.split_key(keys).iter().map(|k| k.permutation(3usize)).collect());
    for order in orders {
        *seen.entry(format!("{order:?}")).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 6);
    let chi: f64 = seen.values().map(|n| (*n as f64 - 500.0).powi(2) / 500.0).sum();
    // χ² with five degrees of freedom is below 20.5 for 999 of 1000 keys.
    assert!(chi < 20.5, "{chi} {seen:?}");
    let rows = one(|k| {
        let x = Literal::from_vec(&[3, 2], vec![0i32, 1, 2, 3, 4, 5]).unwrap();
        k.shuffle(&Tensor::constant(x))
    });
    assert!(rows.chunks(2).all(|row| row[1] == row[0] + 1.0));
}

#[test]
fn new_keys_are_independent_of_each_other_and_of_the_old() {
    let correlation = |a: &[f64], b: &[f64]| {
        let (m, n) = (mean(a), mean(b));
        let product = |x: &[f64], y: &[f64], m: f64, n: f64| {
            x.iter().zip(y).map(|(x, y)| (x - m) * (y - n)).sum::<f64>()
        };
        product(a, b, m, n) / (product(a, a, m, m) * product(b, b, n, n)).sqrt()
    };
    let streams = draw([1, 2], |key| {
        let mut keys = key.split_key(3);
        keys.extend([
            key.fold_in(0),
            key.fold_in(1),
            key.fold_in(1i64 << 32),
            key.fold_in(7).fold_in(1),
        ]);
        keys.iter().map(|k| k.uniform(DType::F64, [4000usize])).collect()
    });
    for (i, a) in streams.iter().enumerate() {
        assert_distributed("a stream", a, |v| v);
        for b in &streams[..i] {
            let r = correlation(a, b);
            assert!(r.abs() < 4.0 / 4000f64.sqrt(), "{i}: {r}");
        }
    }
    // The same number in any dtype makes the same key. Another number makes another key.
    let keys = draw([1, 2], |key| {
        let number = |dtype: DType| {
            Tensor::constant(
                Literal::from_scalars(dtype, &[], &[wengert_core::Scalar::from_i64(dtype, 9)])
                    .unwrap(),
            )
        };
        vec![
            key.fold_in(9),
            key.fold_in(number(DType::I64)),
            key.fold_in(number(DType::U8)),
            key.fold_in(10),
        ]
    });
    assert!(keys[0] == keys[1] && keys[0] == keys[2] && keys[0] != keys[3]);
}

#[test]
fn what_is_no_distribution_is_refused() {
    let message = |f: &dyn Fn(&Tensor) -> Tensor| {
        let built = FunctionBuilder::build("f", |b| {
            let key = b.input("key", TensorType::new(DType::U32, [2usize]));
            b.output("y", f(&key));
        });
        built.unwrap_err().to_string()
    };
    assert!(
        message(&|k| k.uniform_between(DType::F32, [2usize], 1.0, 1.0)).contains("lower bound")
    );
    assert!(message(&|k| k.uniform_between(DType::F16, [2usize], 0.0, 1e6)).contains("finite"));
    assert!(message(&|k| k.dropout_mask(DType::F32, [2usize], 1.0)).contains("below 1"));
    assert!(message(&|k| k.normal(DType::I32, [2usize])).contains("float"));
    let truncated = |low: f64, high: f64| {
        message(&move |k| k.truncated_normal(DType::F32, [2usize], low, high))
    };
    assert!(
        truncated(1.0, 1.0).contains("between 1 and 1")
            && truncated(2.0, -2.0).contains("comes first")
    );
    assert!(
        truncated(f64::NAN, 1.0).contains("NaN")
            && truncated(1.0, 1.0 + 1e-7).contains("must lie between")
    );
    let rows = || Tensor::constant(Literal::from_vec(&[2, 1], vec![0.0f64, 2.0]).unwrap());
    assert!(
        message(&|k| k.truncated_normal(DType::F64, [2usize, 3], rows(), 1.0))
            .contains("between 2 and 1")
    );
    assert!(message(&|k| k.truncated_normal(DType::I32, [2usize], 0.0, 1.0)).contains("float"));
    assert!(
        message(&|k| k.truncated_normal(DType::F32, [3usize], rows(), 4.0)).contains("broadcast")
    );
    assert!(message(&|k| k.fold_in(Tensor::constant(1.5f32))).contains("integer scalar"));
}
