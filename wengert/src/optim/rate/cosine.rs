//! Schedules along cosines.

use super::Rate;
use std::f64::consts::PI;
use wengert_core::{Literal, Location, Tensor, diagnostic};

/// Half a cosine from `start` to `end`; `done` goes from 0 to 1.
fn annealed(start: f64, end: f64, done: &Tensor) -> Tensor {
    ((done * PI).cos() + 1.0) * (0.5 * (start - end)) + end
}

impl Rate {
    /// Rises linearly from 0 to `peak` over the first `warmup` steps, then falls along half a
    /// cosine to `end` until step `total`, and stays at `end`.
    #[track_caller]
    pub fn warmup_cosine(peak: f64, warmup: u32, total: u32, end: f64) -> Self {
        let caller = Location::caller();
        let (warmup, total) = (f64::from(warmup), f64::from(total));
        Rate::scheduled(move |step| {
            let _user = caller.attributed();
            let rising = step * (peak / warmup.max(1.0));
            let done = ((step - warmup) * (1.0 / (total - warmup).max(1.0))).clamp(0.0, 1.0);
            let falling = annealed(peak, end, &done);
            step.lt(warmup).select(&rising, &falling)
        })
    }

    /// Falls from `peak` to `end` along half a cosine over `first` steps, then starts again at
    /// `peak` (Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts*,
    /// 2017). Each fall is `times` as long as the one before it.
    ///
    /// PyTorch's `CosineAnnealingWarmRestarts` with `T_0`, `T_mult` and `eta_min`.
    ///
    /// Error, which the function reports: `first` or `times` is 0.
    #[track_caller]
    pub fn cosine_restarts(peak: f64, end: f64, first: u32, times: u32) -> Self {
        if first == 0 || times == 0 {
            return Rate::wrong(
                diagnostic!("a cosine over {first} steps, and {times} times as many after it")
                    .help("both numbers are at least 1"),
            );
        }
        if times == 1 {
            let period = f64::from(first);
            return Rate::after(move |done| annealed(peak, end, &(done % period / period)));
        }
        // The steps at which a fall begins, and its length. Counters end at 2³¹.
        let (mut starts, mut lengths) = (vec![0.0f64], vec![f64::from(first)]);
        while let [.., start] = starts[..]
            && let [.., length] = lengths[..]
            && start + length < 2f64.powi(31)
        {
            starts.push(start + length);
            lengths.push(length * f64::from(times));
        }
        Rate::after(move |done| {
            let column = |values: &[f64]| {
                let values = values.iter().map(|value| *value as f32).collect();
                let column = Literal::from_vec(&[starts.len()], values);
                Tensor::constant(column.expect("there are as many values as starts"))
            };
            let has_begun = done.ge(column(&starts));
            // Both grow, so the last that has begun has the greatest.
            let last = |values: &[f64]| {
                has_begun.select(column(values), column(values).zeros_like()).max_axes(0)
            };
            annealed(peak, end, &((done - last(&starts)) / last(&lengths)))
        })
    }

    /// One cycle of `total` steps (Smith and Topin, *Super-Convergence: Very Fast Training of
    /// Neural Networks Using Large Learning Rates*, 2018): rises from `peak` / 25 to `peak` along
    /// half a cosine over the share `rise` of the steps, and falls along another one to
    /// `peak` / 250000, where it stays.
    ///
    /// PyTorch's `OneCycleLR` with `max_lr`, `total_steps` and `pct_start`, and its defaults. It
    /// does not change momentum.
    ///
    /// Error, which the function reports: the share is not in 0..1, or the total is not above
    /// 1 / `rise`.
    #[track_caller]
    pub fn one_cycle(peak: f64, total: u32, rise: f64) -> Self {
        let (top, last) = (rise * f64::from(total) - 1.0, f64::from(total) - 1.0);
        if !(top > 0.0 && top < last) {
            return Rate::wrong(
                diagnostic!("one cycle of {total} steps rises over {rise} of them").help(
                    "the share is between 0 and 1, as 0.3, and gives more than one step of the \
                     total",
                ),
            );
        }
        let start = peak / 25.0;
        Rate::after(move |done| {
            let rising = annealed(start, peak, &(done / top));
            let falling = ((done - top) / (last - top)).min(1.0);
            let falling = annealed(peak, start / 1e4, &falling);
            done.le(top).select(&rising, &falling)
        })
    }
}
