//! The sparsely gated mixture of experts (Shazeer and others, *Outrageously large neural networks*,
//! 2017): noisy top-k gating (section 2.1), and the losses of importance and load (section 4 and
//! appendix A).

use wengert::prelude::*;

/// E experts of one hidden layer, of which each example uses k. All experts are evaluated, which
/// is simple; [`nn::MixtureOfExperts`] evaluates the chosen ones.
#[derive(Differentiable, Clone)]
pub struct Experts {
    /// `[width, E]`.
    gate: Tensor,
    /// `[width, E]`.
    noise: Tensor,
    /// `[E, width, inner]`.
    inner: Tensor,
    /// `[E, inner, width]`.
    outer: Tensor,
    #[no_derivative]
    k: usize,
}

impl Experts {
    pub fn new(width: usize, inner: usize, experts: usize, k: usize) -> Self {
        // Zero weights of both make the load equal at first (appendix A).
        let (to_inner, to_outer) = (nn::kaiming_uniform(width), nn::glorot_uniform(inner, width));
        Experts {
            gate: Tensor::variable(f32([width, experts]), Initializer::Zeros),
            noise: Tensor::variable(f32([width, experts]), Initializer::Zeros),
            inner: Tensor::variable(f32([experts, width, inner]), to_inner),
            outer: Tensor::variable(f32([experts, inner, width]), to_outer),
            k,
        }
    }

    /// Maps `[N, width]` to the same, with normally distributed noise `[N, E]`; and the losses of
    /// importance and load.
    pub fn call(&self, x: &Tensor, normal: &Tensor) -> (Tensor, Tensor, Tensor) {
        let clean = x.matmul(&self.gate);
        let deviation = x.matmul(&self.noise).softplus();
        let noisy = &clean + normal * &deviation;
        let (greatest, _) = noisy.top_k(self.k + 1, -1);
        let least_chosen = greatest.slice(s![.., -2..-1]);
        let best_refused = greatest.slice(s![.., -1..]);
        let chosen = noisy.ge(&least_chosen);
        let gates = noisy.masked_fill(&!&chosen, f64::NEG_INFINITY).softmax(-1);

        let hidden = Tensor::einsum("nd,edh->neh", &[x, &self.inner]).relu();
        let y = Tensor::einsum("ne,neh,ehd->nd", &[&gates, &hidden, &self.outer]);

        // The probability that an expert is chosen if its own noise is drawn again.
        let threshold = chosen.select(&best_refused, &least_chosen);
        let load = normal_cdf(&((clean - threshold) / deviation));
        (y, variation(&gates.sum_axes(0)), variation(&load.sum_axes(0)))
    }
}

/// The distribution function of the normal distribution.
fn normal_cdf(x: &Tensor) -> Tensor {
    ((x / 2f64.sqrt()).erf() + 1.0) / 2.0
}

/// The square of the coefficient of variation of a vector.
fn variation(x: &Tensor) -> Tensor {
    x.var() / x.mean().square()
}
