//! The time of each pass, from the compiler's spans and a clock; the compiler itself has no
//! clock.
//!
//! It is the thread's processor time, so other processes do not affect it.

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The processor time used by this thread.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Subscribes to the spans called `pass`, and sums the time of each, without the spans within it.
#[derive(Debug, Default)]
pub struct Clock(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    /// Names of the spans so far; ids count from 1.
    names: Vec<String>,
    /// The open spans: number, start, and the time of spans within.
    open: Vec<(usize, Duration, Duration)>,
    total: BTreeMap<String, Duration>,
}

impl Clock {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of each pass.
    pub fn total(&self) -> BTreeMap<String, Duration> {
        self.times().total.clone()
    }
}

/// Reads the field `name`.
struct Name(String);

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl Subscriber for Clock {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "pass"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut name = Name(String::new());
        span.record(&mut name);
        let mut times = self.times();
        times.names.push(name.0);
        Id::from_u64(times.names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        let number = span.into_u64() as usize - 1;
        self.times().open.push((number, processor_time(), Duration::ZERO));
    }

    fn exit(&self, _: &Id) {
        let mut times = self.times();
        let Some((number, since, within)) = times.open.pop() else { return };
        let took = processor_time().saturating_sub(since);
        if let Some((_, _, around)) = times.open.last_mut() {
            *around += took;
        }
        let name = times.names[number].clone();
        *times.total.entry(name).or_default() += took.saturating_sub(within);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_has_an_entry_of_its_own() {
        let clock = std::sync::Arc::new(Clock::default());
        let span = |name: &'static str| tracing::debug_span!("pass", name).entered();
        tracing::subscriber::with_default(clock.clone(), || {
            let _outer = span("outer");
            drop(span("inner"));
            drop(span("inner"));
            let _other = tracing::debug_span!("no pass", name = "other").entered();
        });
        let names: Vec<String> = clock.total().into_keys().collect();
        assert_eq!(names, ["inner", "outer"]);
    }
}
