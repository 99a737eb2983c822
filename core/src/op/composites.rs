//! Names of the field that are not ops but methods of [`Tensor`]: the distributions of
//! `jax.random`, and their common parts.
//!
//! A call of the method emits ops of the catalogue. So a graph, its text and its files have only
//! ops, and every facet of a composite (batching, derivative, code for each machine) is that of
//! its ops. This list serves `graphrun ops` and `docs/ops.md`, and its examples run on every
//! device.

use crate::build::FunctionBuilder;
use crate::graph::Function;
use crate::op::prelude::*;
use std::collections::BTreeSet;

/// A name for a composition of several ops.
#[derive(Clone, Copy, Debug)]
pub struct Composite {
    /// Name in `jax.random` if it has one.
    pub name: &'static str,
    /// The call of the method of [`Tensor`], with a key for `self`.
    pub method: &'static str,
    /// The meaning of the result.
    pub doc: &'static str,
    example: fn(&Tensor, DType) -> Tensor,
}

impl Composite {
    /// A function `@f` of a `key` that returns an example of it, in `dtype` if it has floats.
    pub fn function(&self, dtype: DType) -> Function {
        let built = FunctionBuilder::build("f", |b| {
            let key = b.input("key", TensorType::new(DType::U32, [2usize]));
            b.output("y", (self.example)(&key, dtype));
        });
        built.expect("an example has no mistakes")
    }

    /// The ops that it emits.
    pub fn ops(&self) -> BTreeSet<&'static str> {
        self.function(DType::F32).body.equations.iter().map(|e| e.op.name()).collect()
    }
}

/// Every composite.
pub const COMPOSITES: &[Composite] = &[
    Composite {
        name: "split",
        method: "split_key(count)",
        doc: "New keys derived from a key; `split_keys` gives them as one tensor.",
        example: |key, _| key.split_key(3).swap_remove(1),
    },
    Composite {
        name: "fold_in",
        method: "fold_in(number)",
        doc: "A new key derived from a key and an integer.",
        example: |key, _| key.fold_in(7),
    },
    Composite {
        name: "uniform",
        method: "uniform(dtype, shape)",
        doc: "Floats of the uniform distribution on [0, 1); `uniform_between` takes the bounds.",
        example: |key, dtype| key.uniform_between(dtype, [3usize, 5], -2.0, 3.0),
    },
    Composite {
        name: "normal",
        method: "normal(dtype, shape)",
        doc: "Floats of the normal distribution with mean 0 and variance 1.",
        example: |key, dtype| key.normal(dtype, [3usize, 5]),
    },
    Composite {
        name: "truncated_normal",
        method: "truncated_normal(dtype, shape, low, high)",
        doc: "Floats of the normal distribution truncated to the open interval between two \
              bounds.",
        example: |key, dtype| key.truncated_normal(dtype, [3usize, 5], -0.5, f64::INFINITY),
    },
    Composite {
        name: "exponential",
        method: "exponential(dtype, shape)",
        doc: "Floats of the exponential distribution with mean 1.",
        example: |key, dtype| key.exponential(dtype, [3usize, 5]),
    },
    Composite {
        name: "gumbel",
        method: "gumbel(dtype, shape)",
        doc: "Floats of the Gumbel distribution.",
        example: |key, dtype| key.gumbel(dtype, [3usize, 5]),
    },
    Composite {
        name: "bernoulli",
        method: "bernoulli(p, shape)",
        doc: "Bools that are true with probability `p`.",
        example: |key, _| key.bernoulli(0.25, [3usize, 5]),
    },
    Composite {
        name: "categorical",
        method: "categorical(logits, axis)",
        doc: "Classes along an axis, with the probabilities softmax(logits).",
        example: |key, dtype| {
            let logits = Literal::from_vec(&[2, 3], vec![0.0f32, 1.5, -1.0, 0.5, 0.25, 2.0]);
            let logits = logits.expect("six logits").convert(dtype);
            key.categorical(&Tensor::constant(logits), 1)
        },
    },
    Composite {
        name: "permutation",
        method: "permutation(count)",
        doc: "A random permutation of 0..count; `shuffle` permutes the rows of a tensor.",
        example: |key, _| key.permutation(9usize),
    },
    Composite {
        name: "dropout_mask",
        method: "dropout_mask(dtype, shape, rate)",
        doc: "0 with probability `rate`, else 1 / (1 − rate); `dropout_kept` gives bools that are \
              true where elements are kept.",
        example: |key, dtype| key.dropout_mask(dtype, [3usize, 5], 0.25),
    },
];
