//! Feed-forward layers of which each token uses a few.
//!
//! A router gives each token a distribution over E experts, and the k most probable experts compute
//! the token. So the layer has E times the variables of one expert, at the cost of k. All shapes
//! are fixed: an expert takes at most `capacity` tokens of each example, and drops the others. An
//! auxiliary loss makes the router use the experts equally, so that few tokens are dropped.
//!
//! The tokens of an example are one group in GShard's sense. Each expert has `capacity` *slots* for
//! them. Slots are assigned to first choices in the order of positions, then to second choices, and
//! so on. A scatter writes the number of each token into its slot. A gather of the tokens by slot
//! gives the inputs of the experts, `[B, E, capacity, width]`. A gather of the results by the
//! tokens' slots brings them back. No one-hot tensor `[T, E, capacity]` is made.

use super::{glorot_uniform, variable};
use wengert_core::build::indexing::{
    GatherDimensionNumbers, GatherMode, ScatterDimensionNumbers, ScatterMode, ScatterOptions,
};
use wengert_core::op::DotGeneral;
use wengert_core::{
    DType, Diagnostic, Differentiable, Dim, Location, Scalar, Tensor, TensorType, diagnostic,
};

/// A mixture of [`SwiGlu`](super::SwiGlu) experts with top-k routing (Shazeer and others 2017),
/// capacities (Lepikhin and others, *GShard*, 2020) and the auxiliary loss of Fedus, Zoph and
/// Shazeer, *Switch Transformers*, 2021.
///
/// With probabilities p of the router, the result is Σ gᵢ·expertᵢ(x) over the k chosen experts. For
/// k = 1 the gate is g = p, so that the router has a gradient (Switch); for k > 1 the gates are the
/// chosen probabilities divided by their sum (GShard). The router is computed in f32 for f16 and
/// bf16.
#[derive(Differentiable, Clone, Debug)]
pub struct MixtureOfExperts {
    /// `[width, E]`: the logits of the experts.
    pub router: Tensor,
    /// `[E, width, inner]`.
    pub gate_proj: Tensor,
    /// `[E, width, inner]`.
    pub up_proj: Tensor,
    /// `[E, inner, width]`.
    pub down_proj: Tensor,
    /// k: the number of experts of a token.
    #[no_derivative]
    pub top_k: usize,
    /// The capacity of an expert divided by its share of the assignments, k·T/E for T tokens of an
    /// example. With 1 and an equal use of the experts no token is dropped.
    #[no_derivative]
    pub capacity_factor: f64,
}

impl MixtureOfExperts {
    /// A layer with [Glorot's](glorot_uniform) weights and a capacity factor of 1.25.
    #[track_caller]
    pub fn new(width: usize, inner: usize, experts: usize, top_k: usize) -> Self {
        let _user = Location::caller().attributed();
        let projection = |inputs: usize, outputs: usize| {
            variable(&[experts, inputs, outputs], glorot_uniform(inputs, outputs))
        };
        MixtureOfExperts {
            router: variable(&[width, experts], glorot_uniform(width, experts)),
            gate_proj: projection(width, inner),
            up_proj: projection(width, inner),
            down_proj: projection(inner, width),
            top_k,
            capacity_factor: 1.25,
        }
    }

    /// Maps tokens `[B, T, width]` to the same, and gives the auxiliary loss, a scalar, f32 for f16
    /// and bf16. T is a number. The result of a token that all its experts dropped is 0. So the
    /// layer is used in a residual branch.
    ///
    /// The auxiliary loss is E·Σ fᵢ·Pᵢ over the experts, where fᵢ is the fraction of tokens whose
    /// first choice is expert i, and Pᵢ is the mean probability of expert i over all tokens. It is
    /// 1 if the experts are used equally. Multiply it by a small number, 0.01 in the paper, and add
    /// it to the loss of the network.
    ///
    /// # Errors
    ///
    /// x has another shape, or T is not a number; k is 0 or above E; the capacity factor is not
    /// positive and finite; the variables have shapes of different layers.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> (Tensor, Tensor) {
        let _user = Location::caller().attributed();
        let operands = [x, &self.router, &self.gate_proj, &self.up_proj, &self.down_proj];
        if let Some(poisoned) = operands.iter().find(|t| t.error().is_some()) {
            return ((*poisoned).clone(), (*poisoned).clone());
        }
        let sizes = match self.sizes(x) {
            Ok(sizes) => sizes,
            Err(error) => {
                let poisoned = Tensor::fail_of(&[x, &self.router], error);
                return (poisoned.clone(), poisoned);
            }
        };
        let dtype = x.dtype().wide();
        let logits = x.convert(dtype).dot(&self.router.convert(dtype));
        let probabilities = logits.softmax(2);
        let (mut gates, chosen) = probabilities.top_k(self.top_k, 2);
        if probabilities.error().is_some() || gates.error().is_some() {
            return (gates.clone(), gates);
        }
        if self.top_k > 1 {
            gates = &gates / gates.sum_axes(&[2]).restore_axes(gates.shape(), &[2]);
        }
        let slots = sizes.slots(&chosen);
        let results = self.experts(&sizes.dispatch(x, &slots));
        (sizes.combine(&results, &slots, &gates, x), sizes.balance(&probabilities, &chosen))
    }

    fn sizes(&self, x: &Tensor) -> Result<Sizes, Diagnostic> {
        let (top_k, factor) = (self.top_k, self.capacity_factor);
        let ([width, experts], 3, true) = (self.router.shape(), x.rank(), x.dtype().is_float())
        else {
            return Err(
                diagnostic!("experts of {}", x.ty()).help("it takes [batch, tokens, width]")
            );
        };
        if x.shape()[2] != *width {
            return Err(diagnostic!("experts of width {width} of {}", x.ty())
                .help(format!("it takes [batch, tokens, {width}]")));
        }
        let Some(experts) = experts.as_extent() else {
            return Err(diagnostic!("{experts} experts").help("their number is known"));
        };
        if top_k == 0 || top_k > experts {
            return Err(diagnostic!("each token uses {top_k} of {experts} experts")
                .help("the number is at least 1, and at most the number of experts"));
        }
        if !(factor > 0.0 && factor.is_finite()) {
            return Err(diagnostic!("a capacity factor of {factor}")
                .help("it is positive and finite, e.g. 1.25"));
        }
        let Some(tokens) = x.shape()[1].as_extent() else {
            return Err(diagnostic!("experts of {} tokens in each example", x.shape()[1])
                .help("the capacity of an expert follows from it, so it is a number"));
        };
        let share = (top_k * tokens) as f64 / experts as f64 * factor;
        // A token is at most once in an expert, so more slots than tokens would be empty.
        let capacity = (share.ceil() as usize).clamp(1, tokens.max(1));
        Ok(Sizes { batch: x.shape()[0].clone(), tokens, top_k, experts, capacity })
    }

    /// The results of the experts for their inputs, both `[B, E, capacity, width]`.
    #[track_caller]
    fn experts(&self, x: &Tensor) -> Tensor {
        // Batched over the experts: the result has their axis first.
        let apply = |x: &Tensor, weight: &Tensor, expert: usize| {
            let (contract, batch) = ((vec![3], vec![1]), (vec![expert], vec![0]));
            Tensor::apply(DotGeneral { contract, batch, result: None }, &[x, weight])
        };
        let inner = apply(x, &self.gate_proj, 1).silu() * apply(x, &self.up_proj, 1);
        apply(&inner, &self.down_proj, 0).permute(&[1, 0, 2, 3])
    }
}

/// Extents of a mixture.
struct Sizes {
    batch: Dim,
    tokens: usize,
    top_k: usize,
    experts: usize,
    /// Slots of an expert for each example.
    capacity: usize,
}

impl Sizes {
    /// Number of slots of all experts.
    fn all_slots(&self) -> usize {
        self.experts * self.capacity
    }

    /// The slot of each choice, i32 `[B, k·T]`, choices in the order in which they are served. A
    /// choice without a slot has the number of slots.
    #[track_caller]
    fn slots(&self, chosen: &Tensor) -> Tensor {
        let shape = [self.batch.clone(), (self.top_k * self.tokens).into()];
        let chosen = chosen.permute(&[0, 2, 1]).reshape(shape);
        let of_expert = chosen.one_hot(self.experts, DType::I32);
        // The number of earlier choices of the same expert.
        let earlier = (&of_expert * of_expert.cumsum(1)).sum_axes(&[2]) - 1;
        let slot = &chosen * self.capacity as i32 + &earlier;
        let none = slot.splat(Scalar::from_i64(DType::I32, self.all_slots() as i64));
        earlier.lt(self.capacity as i32).select(&slot, &none)
    }

    /// The inputs of the experts, `[B, E, capacity, width]`: the tokens by slot, and zeros in empty
    /// slots.
    #[track_caller]
    fn dispatch(&self, x: &Tensor, slots: &Tensor) -> Tensor {
        let position = |extent: usize| [self.batch.clone(), extent.into()];
        let choices = [self.batch.clone(), self.top_k.into(), self.tokens.into()];
        let token = Tensor::iota(DType::I32, choices, 2).reshape(slots.shape().to_vec());
        // Empty slots have the number of tokens.
        let ty = TensorType::new(DType::I32, position(self.all_slots()));
        let empty = Tensor::full(&ty, Scalar::from_i64(DType::I32, self.tokens as i64));
        let numbers = ScatterDimensionNumbers {
            inserted_window_dims: vec![1],
            scatter_dims_to_operand_dims: vec![1],
            operand_batching_dims: vec![0],
            scatter_indices_batching_dims: vec![0],
            ..Default::default()
        };
        let options = ScatterOptions { mode: ScatterMode::Drop, unique_indices: true };
        let tokens = empty.scatter(&index_vectors(slots), &token, &numbers, options);
        let width = x.shape()[2].clone();
        let shape = [self.batch.clone(), self.experts.into(), self.capacity.into(), width];
        rows(x, &tokens).reshape(shape)
    }

    /// The sums of the results of each token's experts, times their gates.
    #[track_caller]
    fn combine(&self, results: &Tensor, slots: &Tensor, gates: &Tensor, x: &Tensor) -> Tensor {
        let width = x.shape()[2].clone();
        let by_slot = [self.batch.clone(), self.all_slots().into(), width.clone()];
        let choices = [self.batch.clone(), self.top_k.into(), self.tokens.into(), width];
        if results.error().is_some() {
            return results.clone();
        }
        let found = rows(&results.reshape(by_slot), slots).reshape(choices.clone());
        let gates = gates.permute(&[0, 2, 1]).broadcast_in_dim(choices.to_vec(), &[0, 1, 2]);
        (found.convert(gates.dtype()) * gates).sum_axes(&[1]).convert(x.dtype())
    }

    /// The auxiliary loss.
    #[track_caller]
    fn balance(&self, probabilities: &Tensor, chosen: &Tensor) -> Tensor {
        let first = chosen.slice_axis(2, 0, 1).reshape([self.batch.clone(), self.tokens.into()]);
        let fraction = first.one_hot(self.experts, probabilities.dtype()).mean_axes(&[0, 1]);
        (fraction * probabilities.mean_axes(&[0, 1])).sum() * self.experts as f64
    }
}

/// Indices `[B, N]` as index vectors `[B, N, 1]`.
#[track_caller]
fn index_vectors(indices: &Tensor) -> Tensor {
    indices.reshape(indices.shape().iter().cloned().chain([Dim::constant(1)]))
}

/// The rows of each example's table: `[B, R, width]` and indices `[B, N]` to `[B, N, width]`. An
/// index out of range gives a row of zeros.
#[track_caller]
fn rows(table: &Tensor, indices: &Tensor) -> Tensor {
    let numbers = GatherDimensionNumbers {
        offset_dims: vec![2],
        collapsed_slice_dims: vec![1],
        start_index_map: vec![1],
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![0],
    };
    let window = [1.into(), 1.into(), table.shape()[2].clone()];
    let fill = GatherMode::FillWith(Scalar::zero(table.dtype()));
    table.gather(&index_vectors(indices), &numbers, window, fill)
}
