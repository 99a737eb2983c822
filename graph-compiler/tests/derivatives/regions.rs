//! Ops within constructs that have regions. Every second derivative equals that of the op outside
//! of a region, which `catalogue.rs` compares with finite differences.
//!
//! The difficult ops are differentiated by a decomposition, or have an op of their own as
//! derivative. The equations of the decomposition (masks, zeros) must be in the same region as the
//! equation.

use wengert_compiler::autodiff::jacobian::{hessian, hvp};
use wengert_compiler::autodiff::operators::{grad, jvp};
use wengert_compiler::autodiff::rules::{call, checkpoint};
use wengert_core::build::control;
use wengert_core::graph::Function;
use wengert_core::op::{Attention, AttentionKind, Checkpoint, Unary};
use wengert_core::{DType, Literal, Scalar, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;
use wengert_testing::samples::{self, Sample};

type Values = Vec<Tensor>;

/// The construct in which a function runs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Alone,
    Checkpoint,
    Call,
    Cond,
    Switch,
    Scan,
    While,
    /// A call in a branch in a checkpointed loop in a checkpoint.
    Nested,
}

const PLACES: [Place; 7] = [
    Place::Checkpoint,
    Place::Call,
    Place::Cond,
    Place::Switch,
    Place::Scan,
    Place::While,
    Place::Nested,
];

type Program<'a> = dyn Fn(&Values) -> Values + 'a;

/// `f(x)`, computed in a place. `made` contains the types of the results.
fn within(place: Place, x: &Values, made: &[TensorType], f: &Program<'_>) -> Values {
    // True even for NaN, but not known before the run.
    let holds = || x[0].abs().sum().lt(0.0).unary(Unary::Not);
    let zeros: Values = made.iter().map(Tensor::zeros).collect();
    match place {
        Place::Alone => f(x),
        Place::Checkpoint => checkpoint(Checkpoint::nothing(), x, |x| f(x)),
        Place::Call => call("inner", x, |x| f(x)),
        Place::Cond => control::cond(&holds(), || f(x), || zeros.clone()),
        Place::Switch => {
            let other = || f(&x.iter().map(|x| x * 0.5).collect());
            let index = holds().convert(DType::I32);
            control::switch(&index, vec![Box::new(other), Box::new(|| f(x))])
        }
        Place::Scan => control::fori(2usize, &(x.clone(), zeros), |_, (x, _)| (x.clone(), f(x))).1,
        Place::While => {
            let init = (Tensor::constant(0i32), x.clone(), zeros);
            let runs = |(n, _, _): &(Tensor, Values, Values)| n.lt(2);
            let step = |(n, x, _): &(Tensor, Values, Values)| (n + 1, x.clone(), f(x));
            control::while_at_most(3usize, &init, runs, step).2
        }
        Place::Nested => checkpoint(Checkpoint::nothing(), x, |x| {
            let inner = |x: &Values| {
                let holds = x[0].abs().sum().lt(0.0).unary(Unary::Not);
                control::cond(&holds, || call("inner", x, |x| f(x)), || zeros.clone())
            };
            let one = Tensor::constant(Literal::from_vec(&[2], vec![0i32; 2]).unwrap());
            let init = (x.clone(), zeros.clone());
            let step =
                |(x, _): &(Values, Values), _: &Tensor| ((x.clone(), inner(x)), Values::new());
            control::scan_checkpointed(1, &init, &one, step).0.1
        }),
    }
}

/// A scalar of the results for which no second derivative vanishes.
fn loss(results: &Values) -> Tensor {
    let term =
        |(i, y): (usize, &Tensor)| (y * (0.3 + 0.2 * i as f64)).sin().sum() + (y * y).sum() * 0.25;
    results.iter().enumerate().map(term).fold(Tensor::constant(0.0f64), |sum, term| sum + term)
}

/// Second derivatives of the loss at the first half of the inputs, along the second half.
fn second_order(inputs: &[TensorType], f: &Program<'_>, with_hessian: bool) -> Function {
    let all = [inputs, inputs].concat();
    build(&all, |values| {
        let (x, v) = values.split_at(inputs.len());
        let (x, v) = (x.to_vec(), v.to_vec());
        let loss = |x: &Values| loss(&f(x));
        let along = |x: &Values| {
            let terms = grad(x, loss).into_iter().zip(&v).map(|(g, v)| (g * v).sum());
            terms.fold(Tensor::constant(0.0f64), |sum, term| sum + term)
        };
        let mut made = hvp(&x, &v, loss);
        made.extend(grad(&x, along));
        made.extend(jvp(&x, &v, |x: &Values| grad(x, loss)).1);
        made.extend(grad(&x, |x: &Values| jvp(x, &v, loss).1));
        if with_hessian {
            made.extend(hessian(&x, loss).into_iter().flatten());
        }
        made
    })
}

/// Compares the derivatives in each place with those outside of a region.
fn compare(what: &str, x: &[Literal], made: &[TensorType], f: &Program<'_>, places: &[Place]) {
    let inputs = types(x);
    let mut random = Random(0x5ec0);
    let v: Vec<Literal> = inputs.iter().map(|ty| random.literal(ty)).collect();
    let given = [x, &v].concat();
    let elements: usize = inputs.iter().filter_map(TensorType::elements).sum();
    let of = |place: Place| {
        let program = |x: &Values| within(place, x, made, f);
        flat(&run(&second_order(&inputs, &program, elements <= 24), &given))
    };
    let alone = of(Place::Alone);
    for place in places {
        let found = of(*place);
        let scale = alone.iter().filter(|v| v.is_finite()).fold(1.0f64, |s, v| s.max(v.abs()));
        for (i, (a, b)) in alone.iter().zip(&found).enumerate() {
            let same = (a - b).abs() <= 1e-11 * scale
                || a.to_bits() == b.to_bits()
                || (a.is_nan() && b.is_nan());
            assert!(
                same,
                "{what} in {place:?}: element {i} of {}: {a} alone, {b} there",
                alone.len()
            );
        }
    }
}

/// Self-attention, causal or not, with a bias or not, from three operands or from one.
#[test]
fn attention_has_its_second_derivatives_everywhere() {
    for causal in [false, true] {
        for bias in [None, Some([1, 1, 2, 3]), Some([1, 2, 1, 3])] {
            for packed in [false, true] {
                let keys = if packed { 2 } else { 3 };
                let mut shapes = match packed {
                    true => vec![vec![1, 2, 3, 2, 1]],
                    false => vec![vec![1, 2, 2, 1], vec![1, keys, 2, 1], vec![1, keys, 2, 1]],
                };
                shapes.extend(bias.map(|[b, n, t, _]| vec![b, n, t, keys]));
                let mut random = Random(0xa77e);
                let x: Vec<Literal> = shapes.iter().map(|s| random.literal(&f64s(s))).collect();
                let op = Attention {
                    kind: AttentionKind::Value,
                    causal,
                    bias: bias.is_some(),
                    prefix: false,
                    scale: Scalar::of(0.75f64),
                };
                let f = |x: &Values| Tensor::apply_many(op, &x.iter().collect::<Vec<_>>());
                let made = [f64s(&[1, 2, 2, 1]), f64s(&[1, 2, 2])];
                compare(&format!("{op:?} of {shapes:?}"), &x, &made, &f, &PLACES);
            }
        }
    }
}

/// A causal attention in a call in a branch. Its second derivatives are compared with finite
/// differences of the gradient, its third with those of the Hessian-vector product.
#[test]
fn attention_in_a_region_agrees_with_finite_differences() {
    let mut random = Random(0xd1ff);
    let inputs = [f64s(&[1, 3, 1, 2]), f64s(&[1, 3, 1, 2]), f64s(&[1, 3, 1, 2])];
    let literal =
        |random: &mut Random| inputs.iter().map(|ty| random.literal(ty)).collect::<Vec<_>>();
    let (x, v, w) = (literal(&mut random), literal(&mut random), literal(&mut random));
    let op = Attention {
        kind: AttentionKind::Value,
        causal: true,
        bias: false,
        prefix: false,
        scale: Scalar::of(0.5f64),
    };
    let f = |x: &Values| Tensor::apply_many(op, &x.iter().collect::<Vec<_>>());
    let made = [f64s(&[1, 3, 1, 2]), f64s(&[1, 1, 3])];
    for place in PLACES {
        let loss = |x: &Values| loss(&within(place, x, &made, &f));
        let constant = |l: &[Literal]| l.iter().cloned().map(Tensor::constant).collect::<Values>();
        let gradient = build(&inputs, |x| grad(&x.to_vec(), loss));
        let product = build(&inputs, |x| hvp(&x.to_vec(), &constant(&v), loss));
        let third = build(&inputs, |x| {
            jvp(&x.to_vec(), &constant(&w), |x: &Values| hvp(x, &constant(&v), loss)).1
        });
        let what = format!("attention in {place:?}");
        assert_derivative(
            &flat(&run(&product, &x)),
            &gradient,
            &x,
            &v,
            1e-8,
            &format!("{what}, second order"),
        );
        assert_derivative(
            &flat(&run(&third, &x)),
            &product,
            &x,
            &w,
            1e-7,
            &format!("{what}, third order"),
        );
    }
}

/// True if an op is differentiated by way of other ops.
fn is_declared(kind: &str) -> bool {
    !matches!(kind, "zero" | "linear" | "multilinear")
}

fn check(name: &str, sample: &Sample, places: &[Place], random: &mut Random) {
    let literals = sample.literals(DType::F64, random.bits());
    let inputs = types(&literals);
    let results = sample.infer(&inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
    let is_double = |ty: &TensorType| ty.dtype == DType::F64;
    let made: Vec<TensorType> = results.iter().filter(|ty| is_double(ty)).cloned().collect();
    let x: Vec<Literal> = literals.iter().filter(|l| is_double(&l.ty())).cloned().collect();
    let small = inputs.iter().chain(&results).all(|ty| ty.elements().is_some_and(|n| n <= 200));
    if made.is_empty() || x.is_empty() || !small {
        return;
    }
    let f = |x: &Values| {
        let mut x = x.iter().cloned();
        let operand = |l: &Literal| match is_double(&l.ty()) {
            true => x.next().expect("one for each double"),
            false => Tensor::constant(l.clone()),
        };
        let operands: Values = literals.iter().map(operand).collect();
        let operands: Vec<&Tensor> = operands.iter().collect();
        let results = Tensor::apply_with(sample.op.clone(), &operands, sample.regions(&inputs));
        results.into_iter().filter(|t| is_double(t.ty())).collect()
    };
    compare(&format!("{name} {:?} of {inputs:?}", sample.op), &x, &made, &f, places);
}

#[test]
fn every_op_has_its_second_derivatives_in_every_region() {
    for entry in samples::catalogue() {
        let mut random = Random(
            entry.name.bytes().fold(1, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
                | 1,
        );
        let declared = is_declared(entry.derivative);
        for (n, sample) in entry.samples.iter().enumerate() {
            // The samples of these ops take turns in the places, and each runs nested as well. For
            // all other ops the first sample runs nested.
            let place = PLACES[n % PLACES.len()];
            match declared {
                true => check(entry.name, sample, &[place, Place::Nested], &mut random),
                false if n == 0 => check(entry.name, sample, &[Place::Nested], &mut random),
                false => {}
            }
        }
    }
}
