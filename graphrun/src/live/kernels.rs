//! Time by kernel, of some steps of a training run.
//!
//! A [`Sampler`] is a layer that sums the spans of kernels while it is switched on. The view of
//! training switches it on for one step of [`EVERY`]. A span that is off costs the time of a
//! check, so the view does not slow the run down.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Steps from one measured step to the next.
pub const EVERY: u64 = 32;

/// Sums the time of kernels while it is on.
#[derive(Clone, Debug, Default)]
pub struct Sampler(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_on: AtomicBool,
    times: Mutex<BTreeMap<String, Duration>>,
}

/// Shares of kernels in the measured time, the greatest first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KernelShares(pub Vec<(String, f64)>);

impl Sampler {
    /// Switches the measurement on or off.
    pub fn switch(&self, on: bool) {
        self.0.is_on.store(on, Ordering::Relaxed);
    }

    /// The shares so far.
    pub fn shares(&self) -> KernelShares {
        let times = self.0.times.lock().unwrap_or_else(PoisonError::into_inner);
        let total: f64 = times.values().map(Duration::as_secs_f64).sum();
        let share = |time: &Duration| time.as_secs_f64() / total.max(f64::MIN_POSITIVE);
        let mut shares: Vec<(String, f64)> =
            times.iter().map(|(name, time)| (name.clone(), share(time))).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        KernelShares(shares)
    }

    /// The sampler as a layer of a subscriber that has others.
    pub fn filtered<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let shared = self.0.clone();
        self.clone().with_filter(dynamic_filter_fn(move |metadata, _| {
            metadata.is_span()
                && metadata.name() == "kernel"
                && shared.is_on.load(Ordering::Relaxed)
        }))
    }
}

/// A measured kernel.
struct Kernel {
    name: String,
    began: Instant,
}

struct Name(Option<String>);

impl Visit for Name {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "name" {
            self.0 = Some(format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            self.0 = Some(value.to_owned());
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Sampler {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut name = Name(None);
        attributes.record(&mut name);
        if let (Some(span), Name(Some(name))) = (context.span(id), name) {
            span.extensions_mut().insert(Kernel { name, began: Instant::now() });
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(Kernel { name, began }) = span.extensions_mut().remove::<Kernel>() else { return };
        let mut times = self.0.times.lock().unwrap_or_else(PoisonError::into_inner);
        *times.entry(name).or_default() += began.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::prelude::*;

    #[test]
    fn kernels_are_measured_while_the_sampler_is_on() {
        let sampler = Sampler::default();
        let subscriber = tracing_subscriber::registry().with(sampler.filtered());
        tracing::subscriber::with_default(subscriber, || {
            let run = |name: &str| {
                let _kernel = tracing::trace_span!("kernel", name).entered();
                let _other = tracing::trace_span!("tasks").entered();
            };
            run("before");
            sampler.switch(true);
            run("gemm");
            run("gemm");
            run("n0 add");
            sampler.switch(false);
            run("after");
        });
        let KernelShares(shares) = sampler.shares();
        let mut names: Vec<&str> = shares.iter().map(|(name, _)| name.as_str()).collect();
        assert!(shares.is_sorted_by(|a, b| a.1 >= b.1), "{shares:?}");
        names.sort();
        assert_eq!(names, ["gemm", "n0 add"]);
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
