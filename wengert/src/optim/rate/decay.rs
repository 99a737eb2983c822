//! Schedules along lines and powers.

use super::Rate;
use wengert_core::{Location, diagnostic};

impl Rate {
    /// Goes along a line from `start` to `end` over `total` steps, and stays at `end`.
    ///
    /// PyTorch's `LinearLR` with `total_iters`, whose factors are multiples of `start`.
    #[track_caller]
    pub fn linear(start: f64, end: f64, total: u32) -> Self {
        let total = f64::from(total.max(1));
        Rate::after(move |done| (done / total).min(1.0) * (end - start) + start)
    }

    /// `initial` at the first step, and at each further one `gamma` times the rate before it.
    ///
    /// PyTorch's `ExponentialLR`.
    ///
    /// Error, which the function reports: `gamma` is not positive.
    #[track_caller]
    pub fn exponential(initial: f64, gamma: f64) -> Self {
        Rate::step_decay(initial, 1, gamma)
    }

    /// `initial`, and after every `interval` steps `gamma` times the rate before.
    ///
    /// PyTorch's `StepLR` with `step_size`.
    ///
    /// Error, which the function reports: `interval` is 0, or `gamma` is not positive.
    #[track_caller]
    pub fn step_decay(initial: f64, interval: u32, gamma: f64) -> Self {
        if interval == 0 || !gamma.is_finite() || gamma <= 0.0 {
            return Rate::wrong(
                diagnostic!("a rate is multiplied by {gamma} after every {interval} steps")
                    .help("the factor is a positive number, and the interval at least 1"),
            );
        }
        let interval = f64::from(interval);
        Rate::after(move |done| ((done / interval).floor() * gamma.ln()).exp() * initial)
    }

    /// Rises linearly to `peak` over the first `warmup` steps, then falls as the inverse square
    /// root of the step (Vaswani et al., *Attention Is All You Need*, 2017, section 5.3):
    /// `peak` · min(t / `warmup`, √(`warmup` / t)) at step t, which counts from 1.
    ///
    /// The paper's peak is 1/√(width · `warmup`).
    #[track_caller]
    pub fn inverse_square_root(peak: f64, warmup: u32) -> Self {
        let caller = Location::caller();
        let warmup = f64::from(warmup.max(1));
        Rate::scheduled(move |step| {
            let _user = caller.attributed();
            let rising = step * (1.0 / warmup);
            rising.min((step.full_like(warmup) / step).sqrt()) * peak
        })
    }
}
