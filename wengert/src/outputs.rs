//! Results of a run: values that the device may still be computing.
//!
//! A run on a GPU returns once it has started. Its [`Outputs`] wait for it when one of them is
//! first read, and never if none is. Other devices compute all outputs before a run returns. A
//! failure during the run is reported by the first read; [`Session::finish`] checks all runs.
//!
//! [`Session::finish`]: crate::Session::finish

use crate::data::listed;
use std::fmt;
use std::sync::{Arc, LazyLock};
use wengert_core::op::ProbeKind;
use wengert_core::{Literal, Location, Result, diagnostic};

/// Waits for the values of a run, which are in the order of the signature.
type Wait = Box<dyn FnOnce() -> Result<Vec<Literal>> + Send>;

/// The values of a run. The first read waits for them.
pub(crate) struct Returned(LazyLock<Result<Vec<Literal>>, Wait>);

impl Returned {
    /// Values that are already computed.
    pub fn now(values: Vec<Literal>) -> Returned {
        Returned::later(move || Ok(values))
    }

    /// Values that `wait` returns.
    pub fn later(wait: impl FnOnce() -> Result<Vec<Literal>> + Send + 'static) -> Returned {
        Returned(LazyLock::new(Box::new(wait)))
    }

    fn values(&self) -> Result<&[Literal]> {
        match &*self.0 {
            Ok(values) => Ok(values),
            Err(error) => Err(error.clone()),
        }
    }

    /// All values.
    pub fn into_values(self) -> Result<Vec<Literal>> {
        self.values().map(<[Literal]>::to_vec)
    }

    /// One of the values.
    pub fn value(&self, number: usize) -> Result<&Literal> {
        Ok(&self.values()?[number])
    }
}

/// The outputs of a run, by name, in the order of the function's outputs.
#[derive(Clone)]
pub struct Outputs {
    /// Names, and positions among the returned values.
    names: Vec<(String, usize)>,
    returned: Arc<Returned>,
    probes: Vec<Probed>,
}

/// The values that a probe recorded in a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Probed {
    /// The probe's name; the second probe of the same name gets the suffix `.2`.
    pub name: String,
    /// The kind of report.
    pub kind: ProbeKind,
    /// The watched value, or whether all of it is finite. In loops the value is stacked: the
    /// first axes are the steps of the loops around the probe, outer loops first.
    pub value: Literal,
    /// For each of these steps whether the probe ran. Present where that is known only at run
    /// time: in a branch, a `while`, or a loop whose count is an operand. For steps where it did
    /// not run, the value is zero.
    pub seen: Option<Literal>,
    /// Source location of the probe, if known.
    pub location: Location,
}

impl Probed {
    /// Whether there is something to report: a value, or that it is not finite.
    pub fn has_report(&self) -> bool {
        self.kind == ProbeKind::Print || self.value.get(0).to_f64() == 0.0
    }
}

impl fmt::Display for Probed {
    /// The report, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probed { name, kind, value, seen, location } = self;
        write!(f, "probe `{name}` ({location}): ")?;
        match (kind, seen) {
            (ProbeKind::Print, None) => write!(f, "{value}"),
            (ProbeKind::Print, Some(seen)) => write!(f, "{value}, where {seen}"),
            (ProbeKind::Finite, _) if self.has_report() => {
                f.write_str("the value has a NaN or an infinity")
            }
            (ProbeKind::Finite, _) => f.write_str("the value is finite"),
        }
    }
}

impl Outputs {
    pub(crate) fn new(
        names: Vec<(String, usize)>,
        returned: Arc<Returned>,
        probes: Vec<Probed>,
    ) -> Outputs {
        Outputs { names, returned, probes }
    }

    /// The output `name`.
    ///
    /// Errors: there is none of that name; the run has failed.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<&Literal> {
        let caller = Location::caller();
        let Some((_, number)) = self.names.iter().find(|(n, _)| n == name) else {
            let names: Vec<_> = self.names.iter().map(|(name, _)| name).collect();
            let help = format!("outputs are {}", listed(&names));
            return Err(diagnostic!("there is no output `{name}`")
                .at(caller, "asked for here")
                .help(help));
        };
        self.returned.value(*number)
    }

    /// The only element of output `name`, as `f64`.
    ///
    /// Errors: there is none of that name, or it has not exactly one element; the run has failed.
    #[track_caller]
    pub fn scalar(&self, name: &str) -> Result<f64> {
        let caller = Location::caller();
        let literal = self.get(name)?;
        match literal.len() {
            1 => Ok(literal.get(0).to_f64()),
            _ => Err(diagnostic!("output `{name}` is {}, not a single number", literal.ty())
                .at(caller, "asked for here")
                .help("take the whole array with `get`")),
        }
    }

    /// Names and values.
    ///
    /// Error: the run has failed.
    pub fn iter(&self) -> Result<impl Iterator<Item = (&str, &Literal)>> {
        let values = self.returned.values()?;
        Ok(self.names.iter().map(|(name, number)| (name.as_str(), &values[*number])))
    }

    /// The values, in the order of the names.
    ///
    /// Error: the run has failed.
    pub fn into_values(self) -> Result<Vec<Literal>> {
        let values = self.returned.values()?;
        Ok(self.names.iter().map(|(_, number)| values[*number].clone()).collect())
    }

    /// The values that the function's probes recorded.
    pub fn probes(&self) -> &[Probed] {
        &self.probes
    }
}

/// Names only: values may not be computed yet.
impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.iter().map(|(name, _)| name);
        f.debug_struct("Outputs")
            .field("names", &names.collect::<Vec<_>>())
            .field("probes", &self.probes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use wengert_core::Diagnostic;

    fn outputs(wait: impl FnOnce() -> Result<Vec<Literal>> + Send + 'static) -> Outputs {
        let names = vec![("y".to_owned(), 1), ("z".to_owned(), 0)];
        Outputs::new(names, Arc::new(Returned::later(wait)), Vec::new())
    }

    #[test]
    fn values_are_waited_for_once_and_only_if_one_is_looked_at() {
        static WAITS: AtomicUsize = AtomicUsize::new(0);
        let wait = || {
            WAITS.fetch_add(1, Ordering::Relaxed);
            Ok(vec![Literal::from(2.5f32), Literal::from(7i32)])
        };
        let unread = outputs(wait);
        assert!(unread.get("x").unwrap_err().to_string().contains("`y`"), "{unread:?}");
        drop(unread);
        assert_eq!(WAITS.load(Ordering::Relaxed), 0);
        let read = outputs(wait);
        let copy = read.clone();
        assert_eq!((read.scalar("y").unwrap(), read.scalar("z").unwrap()), (7.0, 2.5));
        assert_eq!(copy.iter().unwrap().map(|(name, _)| name).collect::<Vec<_>>(), ["y", "z"]);
        assert_eq!(copy.into_values().unwrap(), [Literal::from(7i32), Literal::from(2.5f32)]);
        assert_eq!(WAITS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_run_that_fails_says_so_to_all_who_look() {
        let failed = outputs(|| Err(Diagnostic::of_device("run 4 of @f: the device is lost")));
        for _ in 0..2 {
            assert!(failed.get("y").unwrap_err().to_string().contains("run 4"));
        }
        assert!(failed.iter().err().is_some() && failed.into_values().is_err());
    }
}
