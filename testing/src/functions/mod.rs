//! Random functions with everything that a pass looks at: elementwise chains with constants that
//! rules know, movement, reductions, products, rows, gathers and scatters, windows, control flow,
//! gradients, state; and samples of the whole catalogue. The same seed gives the same function.

mod control;
mod elementwise;
mod rows;

use crate::Random;
use crate::samples::{self, Sample};
use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::op::{Binary, Reduce, ReduceKind};
use wengert_core::{DType, Dim, Initializer, Literal, Result, Scalar, Tensor, TensorType};

/// Maximum number of elements of a value.
const LARGE: usize = 600;
/// Maximum nesting depth of loops and branches.
const DEEP: usize = 2;

/// The samples of which functions consist, besides the ops that this file names.
pub fn samples() -> Vec<Sample> {
    // Ops on the bits of a float are left out, since one rounding may change their result entirely.
    // So are the special functions that are as steep as that.
    let left_out = [
        "bitcast_convert_type",
        "nextafter",
        "reduce_precision",
        "polygamma",
        "lgamma",
        "digamma",
        "erf_inv",
    ];
    let all = samples::catalogue().into_iter().flat_map(|entry| entry.samples);
    let fits = |sample: &Sample| {
        let types: Vec<TensorType> =
            sample.literals(DType::F32, 7).iter().map(Literal::ty).collect();
        let Ok(results) = sample.infer(&types) else { return false };
        let small = |ty: &TensorType| ty.elements().is_some_and(|n| (1..=LARGE).contains(&n));
        !left_out.contains(&sample.op.name()) && types.iter().chain(&results).all(small)
    };
    all.filter(fits).collect()
}

/// A function of about `size` steps.
///
/// Errors: a step is not defined on its random operands, or has no derivative.
pub fn function(seed: u64, size: usize, samples: &[Sample]) -> Result<Function> {
    let mut random = Random(seed);
    let (n, m) = (*random.pick(&[1usize, 2, 3, 4, 17]), *random.pick(&[1usize, 2, 5, 8, 12]));
    let dtype = *random.pick(&[
        DType::F32,
        DType::F32,
        DType::F32,
        DType::F32,
        DType::F64,
        DType::F64,
        DType::F16,
        DType::BF16,
    ]);
    let differentiated = random.below(5) == 0 && !dtype.is_half();
    FunctionBuilder::build("f", |f| {
        let ty = |dtype: DType, shape: &[usize]| TensorType::new(dtype, shape.iter().copied());
        let given = [vec![n, m], vec![n], vec![m], vec![n, m], vec![m, m], vec![]];
        let floats: Vec<Tensor> = given
            .iter()
            .enumerate()
            .map(|(i, s)| f.input(&format!("x{i}"), ty(dtype, s)))
            .collect();
        let others = [
            ("i", DType::I32, vec![n]),
            ("j", DType::I32, vec![n, m]),
            ("p", DType::Bool, vec![n, m]),
        ];
        let others = others.map(|(name, dtype, shape)| f.input(name, ty(dtype, &shape)));
        let weight = f.param("w", Tensor::variable(ty(dtype, &[m, m]), Initializer::Zeros));
        let state = f.state("s", Tensor::variable(ty(dtype, &[n, m]), Initializer::Zeros));
        let mut values = others.to_vec();
        values.extend([weight, state.clone()]);
        if differentiated {
            let (loss, gradient) = value_and_grad(&floats, |floats| {
                let values = [&values[..], &floats[..]].concat();
                let mut pool =
                    Pool { random: &mut random, values, samples, depth: 0, differentiated: true };
                (0..size.min(8)).for_each(|_| pool.step());
                let kept: Vec<Tensor> = pool.values.iter().rev().take(3).cloned().collect();
                let numbers = kept.iter().filter(|t| t.dtype() == dtype).map(|t| t.tanh().sum());
                numbers.fold(floats[5].clone(), |sum, t| sum + t)
            });
            f.output("loss", loss);
            gradient.iter().enumerate().for_each(|(i, g)| f.output(&format!("d{i}"), g));
            f.update("s", &(state - &gradient[0] * 0.125));
            return;
        }
        values.extend(floats);
        let mut pool =
            Pool { random: &mut random, values, samples, depth: 0, differentiated: false };
        (0..size).for_each(|_| pool.step());
        for i in 0..1 + pool.random.below(4) {
            let value = pool.any();
            f.output(&format!("y{i}"), &value);
        }
        // The last value is always an output, so that no function is empty.
        let last = pool.last();
        f.output("last", &last);
        let new = pool.reach(&state);
        f.update("s", &new);
    })
}

/// A function with sums that are long enough to be cut into parts.
pub fn long(seed: u64) -> Result<Function> {
    let mut random = Random(seed);
    let shapes =
        [vec![70_000usize], vec![2, 40_001], vec![33_000, 2], vec![1 << 16], vec![3, 5, 5000]];
    let shape = random.pick(&shapes);
    let dtype = *random.pick(&[DType::F32, DType::F32, DType::F64, DType::BF16, DType::I32]);
    FunctionBuilder::build("f", |f| {
        let x = f.input("x0", TensorType::new(dtype, shape.iter().copied()));
        let x = if random.below(2) == 0 { &x * &x } else { x };
        for i in 0..1 + random.below(2) {
            let kind =
                *random.pick(&[ReduceKind::Sum, ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min]);
            let all: Vec<usize> = (0..shape.len()).collect();
            let one = vec![random.below(shape.len())];
            let axes = if random.below(2) == 0 { all } else { one };
            let reduced = Tensor::apply(Reduce { kind, axes }, &[&x]);
            f.output(&format!("y{i}"), &(&reduced + &reduced));
        }
    })
}

/// A function with products whose results have long rows: a classifier, its loss and gradients.
/// Most rows are not aligned, so that targets give them a pitch.
pub fn wide(seed: u64) -> Result<Function> {
    let mut random = Random(seed);
    let (rows, depth) = (2 + random.below(4), 1 + random.below(7));
    let classes = *random.pick(&[64usize, 65, 67, 67, 70, 77, 131]);
    let dtype = *random.pick(&[DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16]);
    let wide = if dtype.is_half() { DType::F32 } else { dtype };
    let batched = random.below(3) == 0;
    FunctionBuilder::build("f", |f| {
        let ty = |dtype: DType, shape: &[usize]| TensorType::new(dtype, shape.iter().copied());
        let given = if batched { vec![2, rows, depth] } else { vec![rows, depth] };
        let x = f.input("x0", ty(dtype, &given));
        let labels = f.input("x1", ty(DType::I32, &given[..given.len() - 1]));
        let transposed = random.below(2) == 0;
        let shape = if transposed { [classes, depth] } else { [depth, classes] };
        let w = f.input("x2", ty(dtype, &shape));
        let bias = (random.below(3) == 0).then(|| f.input("x3", ty(dtype, &[classes])));
        let (kind, seen, last) = (random.below(6), random.below(3), given.len() - 1);
        let logits = |x: &Tensor, w: &Tensor| {
            let w = if transposed { w.permute(&[1, 0]) } else { w.clone() };
            let product = x.matmul(&w);
            match &bias {
                Some(bias) => {
                    let like = product.shape().to_vec();
                    product + bias.broadcast_in_dim(like, &[last])
                }
                None => product,
            }
        };
        let loss = |tensors: &[Tensor]| {
            let logits = logits(&tensors[0], &tensors[1]);
            match kind {
                0 => logits.convert(wide).log_softmax(last).convert(dtype).tanh().sum(),
                1 => (&logits - logits.max_axes(&[last]).restore_axes(logits.shape(), &[last]))
                    .tanh()
                    .sum(),
                2 => logits
                    .softmax(last)
                    .matmul(&tensors[1].permute(if transposed { &[0, 1] } else { &[1, 0] }))
                    .sum(),
                _ => logits.convert(wide).softmax_cross_entropy(&labels).sum().convert(dtype),
            }
        };
        let operands = [x, w];
        if kind != 5 {
            let (value, gradient) = value_and_grad(&operands.to_vec(), |t: &Vec<Tensor>| loss(t));
            f.output("loss", value);
            gradient.iter().enumerate().for_each(|(i, g)| f.output(&format!("d{i}"), g));
        } else {
            f.output("loss", loss(&operands));
        }
        if seen == 0 {
            f.output("logits", logits(&operands[0], &operands[1]));
        }
    })
}

/// Elements for an input. Usually they are small, so that sums can be bounded. If `wild`, they are
/// values for which false identities fail.
pub fn literal(random: &mut Random, ty: &TensorType, wild: bool) -> Literal {
    let shape = ty.extents().expect("inputs are bound");
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.5,
        1e30,
        -1e-40,
        65504.0,
    ];
    let values: Vec<Scalar> = (0..shape.iter().product())
        .map(|_| match ty.dtype {
            DType::Bool => Scalar::of(random.below(2) == 0),
            d if d.is_integer() => Scalar::from_i64(d, random.below(20) as i64 - 6),
            d if wild && random.below(3) == 0 => Scalar::from_f64(d, *random.pick(&special)),
            d if random.below(24) == 0 => Scalar::from_f64(d, *random.pick(&special[..4])),
            d => Scalar::from_f64(d, random.below(1 << 16) as f64 / 32768.0 - 1.0),
        })
        .collect();
    Literal::from_scalars(ty.dtype, &shape, &values).expect("as many elements as the shape says")
}

fn extents(t: &Tensor) -> Vec<usize> {
    t.shape().iter().map(|d| d.as_extent().expect("nothing has variables")).collect()
}

fn dims(extents: &[usize]) -> Vec<Dim> {
    extents.iter().map(|e| Dim::from(*e)).collect()
}

/// Values, from which new ones are built.
struct Pool<'r> {
    random: &'r mut Random,
    values: Vec<Tensor>,
    samples: &'r [Sample],
    depth: usize,
    differentiated: bool,
}

impl Pool<'_> {
    fn last(&self) -> Tensor {
        self.values.last().expect("there are inputs").clone()
    }

    /// Recent values are chosen more often, so that chains become long.
    fn any(&mut self) -> Tensor {
        let n = self.values.len();
        let far = if self.random.below(3) == 0 { self.random.below(n) } else { 0 };
        let back = self.random.below(n.min(6)).max(far);
        self.values[n - 1 - back].clone()
    }

    /// A value with a property, if there is one. Recent ones are chosen more often.
    fn one(&mut self, fits: impl Fn(&Tensor) -> bool) -> Option<Tensor> {
        let fitting: Vec<Tensor> = self.values.iter().filter(|t| fits(t)).cloned().collect();
        let recent = fitting.len().saturating_sub(4);
        let from = if self.random.below(2) == 0 { recent } else { 0 };
        (!fitting.is_empty()).then(|| self.random.pick(&fitting[from..]).clone())
    }

    fn float(&mut self) -> Tensor {
        self.one(|t| t.dtype().is_float()).expect("there are floats among the inputs")
    }

    /// A float tensor of at least this rank.
    fn ranked(&mut self, rank: usize) -> Option<Tensor> {
        self.one(|t| t.dtype().is_float() && t.rank() >= rank)
    }

    fn axis(&mut self, x: &Tensor) -> usize {
        self.random.below(x.rank())
    }

    /// A number that rules know, or another one.
    fn number(&mut self, dtype: DType) -> Scalar {
        let numbers = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 0.25, 3.0, 0.1];
        let integers = [0, 1, -1, 2, 7, 31];
        match dtype {
            DType::Bool => Scalar::of(self.random.below(2) == 0),
            d if d.is_integer() => Scalar::from_i64(d, *self.random.pick(&integers)),
            d => Scalar::from_f64(d, *self.random.pick(&numbers)),
        }
    }

    /// A value of the same type: an existing one, a constant, or a broadcast.
    fn like(&mut self, x: &Tensor) -> Tensor {
        let (ty, shape) = (x.ty().clone(), extents(x));
        match self.random.below(8) {
            0 | 1 => {
                let number = self.number(ty.dtype);
                x.splat(number)
            }
            2 => Tensor::constant(literal(self.random, &ty, false)),
            3 | 4 => {
                let small = self.one(|t| t.dtype() == ty.dtype && t.rank() < ty.rank());
                let Some(small) = small else { return x.clone() };
                // A random ascending choice of axes with these extents.
                let axes = extents(&small);
                let mut chosen = Vec::new();
                for (axis, extent) in shape.iter().enumerate() {
                    if chosen.len() < axes.len()
                        && axes[chosen.len()] == *extent
                        && self.random.below(4) > 0
                    {
                        chosen.push(axis);
                    }
                }
                if chosen.len() < axes.len() {
                    return x.clone();
                }
                small.broadcast_in_dim(x.shape().to_vec(), &chosen)
            }
            _ => self.one(|t| *t.ty() == ty).unwrap_or_else(|| x.clone()),
        }
    }

    /// A value with the type of `t` that depends on the last one.
    fn reach(&mut self, t: &Tensor) -> Tensor {
        let last = self.last();
        if last.ty() == t.ty() {
            return last;
        }
        if let Some(same) = self.one(|v| v.ty() == t.ty()).filter(|_| self.random.below(3) == 0) {
            return same;
        }
        let wide = if t.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let number = last.convert(wide).sum().tanh();
        match t.dtype() {
            DType::Bool => {
                let holds = number.gt(number.zeros_like());
                t.binary(Binary::Xor, &holds.broadcast_in_dim(t.shape().to_vec(), &[]))
            }
            d if d.is_integer() => t.binary(Binary::Add, &t.ones_like()),
            d => t + number.convert(d).broadcast_in_dim(t.shape().to_vec(), &[]),
        }
    }

    /// Adds one or several values.
    fn step(&mut self) {
        let made = match self.random.below(44) {
            0..=5 => self.unary(),
            6..=12 => self.binary(),
            13 | 14 => self.choice(),
            15 => self.conversion(),
            16..=22 => self.moved(),
            23..=26 => self.reduced(),
            27 => self.running(),
            28..=30 => self.row(),
            31..=33 => self.product(),
            34 => self.layer(),
            35 | 36 => self.indexed(),
            37 => self.ordered(),
            38 => self.windowed(),
            39 | 40 if self.depth < DEEP => self.control(),
            41..=43 => self.sample(),
            _ => self.unary(),
        };
        let small = |t: &Tensor| extents(t).iter().product::<usize>() <= LARGE;
        self.values.extend(made.into_iter().filter(|t| t.error().is_none() && small(t)));
    }
}
