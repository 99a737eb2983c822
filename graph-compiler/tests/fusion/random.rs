//! Random functions for fusion: a few related shapes, reductions, broadcasts, movement, and values
//! with many uses.

use super::{compiled, plain, run};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::op::{Compare, Concatenate, Cumulative, CumulativeKind, Reverse};
use wengert_core::{DType, Dim, Literal, Scalar, Tensor, TensorType};
use wengert_testing::Random;

/// A pool of tensors, from which new ones are built.
struct Pool<'r> {
    random: &'r mut Random,
    values: Vec<Tensor>,
}

fn extents(t: &Tensor) -> Vec<usize> {
    t.shape().iter().map(|d| d.as_extent().unwrap()).collect()
}

impl Pool<'_> {
    fn any(&mut self) -> Tensor {
        // Recent values are chosen more often, so that chains become long.
        let n = self.values.len();
        let back = self.random.below(n.min(6)).max(if self.random.below(3) == 0 {
            self.random.below(n)
        } else {
            0
        });
        self.values[n - 1 - back].clone()
    }

    /// A value of this shape: an existing one, or a broadcast of one.
    fn like(&mut self, t: &Tensor) -> Tensor {
        let fitting: Vec<Tensor> =
            self.values.iter().filter(|v| v.shape() == t.shape()).cloned().collect();
        if self.random.below(3) > 0 || fitting.is_empty() {
            return self.random.pick(&fitting).clone();
        }
        let shape = extents(t);
        for _ in 0..8 {
            let small = self.any();
            let axes = extents(&small);
            // A random ascending choice of axes with these extents.
            let mut dims = Vec::new();
            for (axis, extent) in shape.iter().enumerate() {
                if dims.len() < axes.len()
                    && axes[dims.len()] == *extent
                    && self.random.below(4) > 0
                {
                    dims.push(axis);
                }
            }
            if dims.len() == axes.len() {
                return small.broadcast_in_dim(t.shape().to_vec(), &dims);
            }
        }
        fitting[0].clone()
    }

    fn step(&mut self) -> Tensor {
        let x = self.any();
        let shape = extents(&x);
        let rank = shape.len();
        match self.random.below(16) {
            0 => x.exp(),
            1 => x.tanh(),
            2 => -&x,
            3 => x.abs().sqrt(),
            4 | 5 => &x + self.like(&x),
            6 => &x * self.like(&x),
            7 => &x - self.like(&x),
            8 => {
                let y = self.like(&x);
                x.compare(Compare::Lt, &y).select(&x, &(y * 0.5))
            }
            9..=11 if rank > 0 => {
                let mut axes: Vec<usize> =
                    (0..rank).filter(|_| self.random.below(2) == 0).collect();
                if axes.is_empty() {
                    axes.push(rank - 1);
                }
                if self.random.below(3) == 0 { x.max_axes(&axes) } else { x.sum_axes(&axes) }
            }
            12 if rank > 1 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.swap(self.random.below(rank), self.random.below(rank));
                x.permute(&permutation)
            }
            13 => {
                let count: usize = shape.iter().product();
                let splits: Vec<usize> = (1..=count).filter(|d| count.is_multiple_of(*d)).collect();
                let first = *self.random.pick(&splits);
                x.reshape([first, count / first])
            }
            14 if rank > 0 && shape[0] > 1 => match self.random.below(3) {
                0 => {
                    let (head, tail) =
                        (x.slice_axis(0, 0i64, 1i64), x.slice_axis(0, 1i64, shape[0] as i64));
                    Tensor::apply(Concatenate { axis: 0 }, &[&tail, &head])
                }
                1 => Tensor::apply(Reverse { axes: vec![rank - 1] }, &[&x]),
                _ => Tensor::apply(
                    Cumulative { kind: CumulativeKind::Sum, axis: rank - 1, reverse: false },
                    &[&x],
                ),
            },
            15 => x.convert(DType::F16).convert(DType::F32),
            _ => &x * 0.25,
        }
    }
}

fn function(seed: u64) -> Function {
    let mut random = Random(seed);
    let (n, m) = (*random.pick(&[1usize, 3, 4, 17]), *random.pick(&[1usize, 2, 5, 12]));
    let steps = 4 + random.below(24);
    FunctionBuilder::build("f", |f| {
        let mut pool = Pool { random: &mut random, values: Vec::new() };
        for (i, shape) in [vec![n, m], vec![n], vec![m], vec![n, m], vec![]].into_iter().enumerate()
        {
            pool.values.push(f.input(&format!("x{i}"), TensorType::new(DType::F32, shape)));
        }
        for _ in 0..steps {
            let value = pool.step();
            pool.values.push(value);
        }
        let outputs = 1 + pool.random.below(4);
        for i in 0..outputs {
            let value = pool.any();
            f.output(&format!("y{i}"), &value);
        }
        // The last value is always an output, so that no program is empty.
        let last = pool.values.last().unwrap();
        f.output("last", last);
    })
    .unwrap()
}

/// Small numbers. The test compares orders of operations, and an overflow would hide them.
fn input(random: &mut Random, ty: &TensorType) -> Literal {
    let shape = ty.extents().unwrap();
    if random.below(8) == 0 {
        return random.elements(ty);
    }
    let values: Vec<Scalar> = (0..shape.iter().product())
        .map(|_| Scalar::of(random.below(1 << 16) as f32 / 32768.0 - 1.0))
        .collect();
    Literal::from_scalars(ty.dtype, &shape, &values).unwrap()
}

#[test]
fn random_row_programs_have_the_same_bits_however_they_are_compiled() {
    let (mut equations, mut kernels) = (0, 0);
    for seed in 0..250 {
        let function = function(seed);
        let mut random = Random(seed);
        let inputs: Vec<Literal> = (0..function.inputs.len())
            .map(|n| input(&mut random, function.input_type(n)))
            .collect();
        let fused = compiled(&function, true);
        let wanted = run(&compiled(&function, false), &inputs);
        let found = run(&fused, &inputs);
        assert_eq!(wanted, found, "seed {seed}\n{fused}");
        for (plain, fused) in run(&plain(&function), &inputs).iter().zip(&found) {
            let same =
                |(a, b): (Scalar, Scalar)| a == b || (a.to_f64().is_nan() && b.to_f64().is_nan());
            assert!(
                plain.scalars().zip(fused.scalars()).all(same),
                "seed {seed}: {plain}, rewritten {fused}"
            );
        }
        equations += function.body.equations.len();
        kernels += fused.kernels.len();
    }
    // Fusion reduces the number of kernels.
    assert!(kernels * 3 < equations, "{kernels} kernels of {equations} equations");
}

#[test]
fn kernels_are_the_same_each_time() {
    for seed in 0..40 {
        let function = function(seed);
        assert_eq!(compiled(&function, true), compiled(&function, true));
    }
}

/// Dimensions without elements.
#[test]
fn empty_tensors_are_compiled() {
    let function = FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [0usize, 4]));
        let y = f.input("y", TensorType::new(DType::F32, [4usize]));
        f.output("sum", x.sum_axes(&[0]) + &y);
        f.output("rows", x.sum_axes(&[1]));
        f.output(
            "exp",
            x.exp() + y.broadcast_in_dim(vec![Dim::from(0usize), Dim::from(4usize)], &[1]),
        );
        f.output("max", x.max_axes(&[0, 1]));
    })
    .unwrap();
    let inputs = [Literal::zeros(DType::F32, &[0, 4]), Literal::zeros(DType::F32, &[4])];
    let fused = run(&compiled(&function, true), &inputs);
    assert_eq!(fused, run(&plain(&function), &inputs));
    assert_eq!(fused[0], Literal::zeros(DType::F32, &[4]));
    assert_eq!(fused[3].get(0), Scalar::of(f32::NEG_INFINITY));
}
