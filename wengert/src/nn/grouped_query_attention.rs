//! Self-attention in which several heads of queries share keys and values, and its cache.
//!
//! A decoder that generates text computes one position at a time, and attends to all before it.
//! Their keys and values are kept in a [`KeyValueCache`], so that they are computed once. The cache
//! is the largest tensor of generation, and its valid prefix is read at each step. So heads of
//! queries share keys and values in groups: with a quarter of the heads, the cache takes a quarter
//! of the memory.

use super::attention::{check_for_each_example, split_heads};
use super::{Linear, Rotary, VisibleKeys, dot_product_attention};
use wengert_core::call::ScatterKind;
use wengert_core::op::Scatter;
use wengert_core::{
    DType, Diagnostic, Differentiable, Dim, Initializer, Location, Scalar, Tensor, TensorType,
    diagnostic,
};

/// Causal self-attention of N heads of queries and K heads of keys and values, where N is a
/// multiple of K (Ainslie and others, *GQA: training generalized multi-query transformer models
/// from multi-head checkpoints*, 2023). Query head n uses the keys and values of head ⌊n·K/N⌋. With
/// K = 1 it is multi-query attention (Shazeer 2019). The variables have the names of Llama's.
///
/// A step of generation, with a cache that stays on the device between runs:
///
/// ```
/// # use wengert::prelude::*;
/// # use wengert::nn::{GroupedQueryAttention, Rotary};
/// # fn main() -> Result<()> {
/// # let mut program = Program::new();
/// # program.function("step", |f| {
/// let layer = GroupedQueryAttention::new(64, 8, 2).rotary(Rotary::new(8));
/// let cache = f.state("cache", layer.first_cache(1, 1024));
/// let layer = f.param("layer", layer);
/// let (x, position) = (f.input("x", f32("1,1,64")), f.input("position", i32("")));
/// let (y, cache) = layer.call_cached(&x, &cache, &position);
/// f.update("cache.keys", &cache.keys);
/// f.update("cache.values", &cache.values);
/// f.output("y", y);
/// # })
/// # }
/// ```
#[derive(Differentiable, Clone, Debug)]
pub struct GroupedQueryAttention {
    /// Width to N·H, where H is the width of a head: queries.
    pub q_proj: Linear,
    /// Width to K·H: keys.
    pub k_proj: Linear,
    /// Width to K·H: values.
    pub v_proj: Linear,
    /// N·H to width: the result.
    pub o_proj: Linear,
    /// N.
    #[no_derivative]
    pub heads: usize,
    /// K.
    #[no_derivative]
    pub key_value_heads: usize,
    /// The embedding of positions in queries and keys, of width H.
    #[no_derivative]
    pub rotary: Option<Rotary>,
}

/// The keys and values of past positions, for a fixed number S of positions. A cache is passed to a
/// function as `state`, or from step to step as a carry.
#[derive(Differentiable, Clone, Debug)]
pub struct KeyValueCache {
    /// `[B, S, K, H]`; rotated, if the layer has a rotary embedding.
    pub keys: Tensor,
    /// `[B, S, K, H]`.
    pub values: Tensor,
}

impl GroupedQueryAttention {
    /// A layer without biases, with heads of width `width / heads` and without embedding of
    /// positions. The heads divide the width, and the heads of keys and values divide the heads.
    #[track_caller]
    pub fn new(width: usize, heads: usize, key_value_heads: usize) -> Self {
        let _user = Location::caller().attributed();
        let shared = key_value_heads * (width / heads.max(1));
        let linear = |inputs, outputs| Linear::new(inputs, outputs).without_bias();
        GroupedQueryAttention {
            q_proj: linear(width, width),
            k_proj: linear(width, shared),
            v_proj: linear(width, shared),
            o_proj: linear(width, width),
            heads,
            key_value_heads,
            rotary: None,
        }
    }

    /// The same layer with an embedding of positions, of the width of a head.
    #[must_use]
    pub fn rotary(mut self, rotary: Rotary) -> Self {
        self.rotary = Some(rotary);
        self
    }

    /// A cache of zeros, for `positions` positions of each example.
    #[track_caller]
    pub fn zero_cache(&self, batch: impl Into<Dim>, positions: impl Into<Dim>) -> KeyValueCache {
        let zeros = Tensor::zeros(&self.cache_type(batch.into(), positions.into()));
        KeyValueCache { keys: zeros.clone(), values: zeros }
    }

    /// A cache kept from run to run: variables with zeros as initial values.
    #[track_caller]
    pub fn first_cache(&self, batch: usize, positions: usize) -> KeyValueCache {
        let _user = Location::caller().attributed();
        let ty = self.cache_type(batch.into(), positions.into());
        let zeros = || Tensor::variable(ty.clone(), Initializer::Zeros);
        KeyValueCache { keys: zeros(), values: zeros() }
    }

    fn cache_type(&self, batch: Dim, positions: Dim) -> TensorType {
        let weight = self.k_proj.weight.ty();
        let columns = weight.shape.last().and_then(Dim::as_extent).unwrap_or_default();
        let width = columns / self.key_value_heads.max(1);
        let shape = [batch, positions, self.key_value_heads.into(), width.into()];
        TensorType::new(weight.dtype, shape)
    }

    /// `[B, T, width]` to the same: position t attends to positions up to t. No position attends to
    /// padding after it.
    ///
    /// # Errors
    ///
    /// x has another shape; N is not a multiple of K; the columns of a layer are not those of its
    /// heads.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let first = Tensor::constant(0i32);
        let [q, k, v] = match self.project(x, &first, |q| q) {
            Ok(projected) => projected,
            Err(poisoned) => return poisoned,
        };
        self.attend(&q, &k, &v, VisibleKeys::Causal)
    }

    /// [`call`](Self::call) for `[B, T, width]` at the positions `position`, `position + 1`, … of
    /// longer sequences, whose earlier positions are in the cache. `position` is an integer
    /// scalar, or integers `[B]`, one for each example. Returns the result, `[B, T, width]`, and
    /// the cache with the keys and values of the T positions written to it. A step reads the
    /// positions of the cache up to its own, and no later ones.
    ///
    /// Positions that reach beyond the cache are an error where they are known. Otherwise, the
    /// results of such an example are NaN.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call); the cache has another type; T positions, or those from a
    /// constant `position`, are not within the cache.
    #[track_caller]
    pub fn call_cached(
        &self,
        x: &Tensor,
        cache: &KeyValueCache,
        position: &Tensor,
    ) -> (Tensor, KeyValueCache) {
        let _user = Location::caller().attributed();
        let failed = |poisoned: Tensor| {
            let cache = KeyValueCache { keys: poisoned.clone(), values: poisoned.clone() };
            (poisoned, cache)
        };
        let KeyValueCache { keys, values } = cache;
        let guard = |q| within_cache(q, keys.shape().get(1), position);
        let [q, k, v] = match self.project(x, position, guard) {
            Ok(projected) => projected,
            Err(poisoned) => return failed(poisoned),
        };
        if let Some(poisoned) = [keys, values].into_iter().find(|t| t.error().is_some()) {
            return failed(poisoned.clone());
        }
        if let Err(error) = check_cache(&k, cache, position) {
            return failed(Tensor::fail_of(&[x, keys, values, position], error));
        }
        let cache = KeyValueCache {
            keys: updated(keys, &k, position),
            values: updated(values, &v, position),
        };
        let position = position.convert(DType::I32);
        let visible = VisibleKeys::CausalFrom(&position.max(0));
        (self.attend(&q, &cache.keys, &cache.values, visible), cache)
    }

    /// Queries `[B, T, N, H]`, keys and values `[B, T, K, H]` of positions from `first` on. Queries
    /// go through `guard` before they are rotated.
    #[track_caller]
    fn project(
        &self,
        x: &Tensor,
        first: &Tensor,
        guard: impl FnOnce(Tensor) -> Tensor,
    ) -> Result<[Tensor; 3], Tensor> {
        if let Some(poisoned) = [x, first].into_iter().find(|t| t.error().is_some()) {
            return Err(poisoned.clone());
        }
        if x.rank() != 3 {
            let error = diagnostic!("self-attention of {}", x.ty());
            return Err(Tensor::fail_of(&[x], error.help("it takes [batch, positions, width]")));
        }
        check_for_each_example(first, &x.shape()[0], "positions")
            .map_err(|error| Tensor::fail_of(&[first], error))?;
        let (heads, shared) = (self.heads, self.key_value_heads);
        if heads == 0 || shared == 0 || heads % shared != 0 {
            let error = diagnostic!("{heads} heads of queries share {shared} heads of keys");
            let help = "the heads of queries are a multiple of those of keys and values";
            return Err(Tensor::fail_of(&[x], error.help(help)));
        }
        let q = guard(split_heads(&self.q_proj.call(x), heads));
        let k = split_heads(&self.k_proj.call(x), shared);
        let v = split_heads(&self.v_proj.call(x), shared);
        if let Some(poisoned) = [&q, &k, &v].into_iter().find(|t| t.error().is_some()) {
            return Err(poisoned.clone());
        }
        if [&k, &v].iter().any(|t| t.shape()[3] != q.shape()[3]) {
            let [q, k, v] = [&q, &k, &v].map(|t| t.shape()[3].to_string());
            let error = diagnostic!("heads of queries have width {q}, of keys {k}, of values {v}");
            return Err(Tensor::fail_of(&[x], error.help("all heads have one width")));
        }
        let Some(rotary) = &self.rotary else { return Ok([q, k, v]) };
        let first = first.convert(DType::I32);
        let length = x.shape()[1].clone();
        let positions = match first.rank() {
            0 => Tensor::iota(DType::I32, [length], 0) + first,
            _ => {
                let shape = [x.shape()[0].clone(), length];
                let first = first.broadcast_in_dim(shape.to_vec(), &[0]);
                Tensor::iota(DType::I32, shape, 1) + first
            }
        };
        Ok([rotary.call(&q, &positions), rotary.call(&k, &positions), v])
    }

    /// The result of queries `[B, T, N, H]` for keys and values `[B, S, K, H]`.
    #[track_caller]
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, visible: VisibleKeys<'_>) -> Tensor {
        let mixed = dot_product_attention(q, k, v, visible, None);
        if mixed.error().is_some() {
            return mixed;
        }
        self.o_proj.call(&mixed.flatten(2))
    }
}

/// Queries `[B, T, N, H]` at the positions from `first` on, or NaN if these reach beyond a cache of
/// `positions`, whose update clamps them.
///
/// Queries that are NaN have results that are NaN, since they see a key. A selection behind the
/// last layer would come between its product and the sum of a residual, which is rounded once for
/// halves.
#[track_caller]
fn within_cache(q: Tensor, positions: Option<&Dim>, first: &Tensor) -> Tensor {
    // `check_cache` reports a cache without positions.
    let Some(positions) = positions.filter(|_| q.error().is_none()) else { return q };
    let value = |extent: &Dim| Tensor::dim_as_value(extent.clone(), DType::I32);
    let first = first.convert(DType::I32);
    let within = first.ge(0).and(first.le(value(positions) - value(&q.shape()[1])));
    let within = match within.rank() {
        0 => within,
        _ => within.broadcast_in_dim(q.shape().to_vec(), &[0]),
    };
    within.select(&q, &q.full_like(f64::NAN))
}

/// `[B, S, K, H]`, with `[B, T, K, H]` written to the positions from `first` on.
#[track_caller]
fn updated(cache: &Tensor, new: &Tensor, first: &Tensor) -> Tensor {
    if first.rank() == 0 {
        return cache.dynamic_update_slice_in_dim(new, first, 1);
    }
    // A window for each example.
    let scatter = Scatter {
        kind: ScatterKind::Replace,
        update_window_dims: vec![1, 2, 3],
        inserted_window_dims: vec![],
        scatter_dims_to_operand_dims: vec![1],
        operand_batching_dims: vec![0],
        scatter_indices_batching_dims: vec![0],
        clip: true,
        unique_indices: true,
    };
    Tensor::apply(scatter, &[cache, &first.unsqueeze(1), new])
}

/// Checks that a cache holds keys like `k`, and that they fit in.
fn check_cache(k: &Tensor, cache: &KeyValueCache, position: &Tensor) -> Result<(), Diagnostic> {
    let KeyValueCache { keys, values } = cache;
    let [batch, new, heads, width] = [0, 1, 2, 3].map(|axis| k.shape()[axis].clone());
    let fits = |t: &Tensor| {
        t.dtype() == k.dtype()
            && t.rank() == 4
            && t.shape()[0] == batch
            && t.shape()[2..] == [heads.clone(), width.clone()]
    };
    if !fits(keys) || keys.ty() != values.ty() {
        let (keys, values, dtype) = (keys.ty(), values.ty(), k.dtype());
        return Err(diagnostic!("a cache of keys {keys} and values {values}").help(format!(
            "for this layer and this batch both are {dtype}[{batch},positions,{heads},{width}]: \
             make the cache by the layer's `zero_cache` or `first_cache`"
        )));
    }
    let all = &keys.shape()[1];
    let help = "make the cache as long as the longest sequence";
    if !new.at_most(all) {
        let help = match new.as_constant() {
            Some(_) => help,
            None => "make the number of new positions known, and at most that of the cache",
        };
        return Err(diagnostic!("{new} positions in a cache of {all}").help(help));
    }
    let known = position.literal().into_iter().flat_map(|l| l.scalars().filter_map(Scalar::to_i64));
    for first in known {
        if first < 0 {
            return Err(diagnostic!("position {first} of a cache").help("positions begin at 0"));
        }
        if !Dim::constant(first).checked_add(&new).is_some_and(|n| n.at_most(all)) {
            let error = diagnostic!("{new} positions from {first} on in a cache of {all}");
            return Err(error.help(help));
        }
    }
    Ok(())
}
