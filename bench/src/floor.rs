//! Floors: what a case would take on a CPU if nothing were lost.
//!
//! Everything in them was measured in the same records, by whoever was best at it. A chain's floor is the plain loop's time; where there is none, its bytes
//! at the bandwidth of its copy. A product's is its operations at the best rate that anybody reached in any product of the same dtype. A network's is its operations at
//! that rate, and its bytes at the bandwidth of the largest copy: who overlaps the two can be below.

use crate::record::{Measurement, Record};
use std::collections::BTreeMap;

/// The plain loops.
pub(crate) const LOOP: &str = "rust loop";

/// The floors of some records.
#[derive(Debug)]
pub struct Floors<'a> {
    /// Seconds of plain loops, by case.
    loops: BTreeMap<&'a str, f64>,
    /// Bytes a second of copies, by case.
    copies: BTreeMap<&'a str, f64>,
    /// Bytes a second of the largest copy.
    bandwidth: Option<f64>,
    /// Operations a second of products: of bf16, and of others.
    rates: [Option<f64>; 2],
}

impl<'a> Floors<'a> {
    /// Those that the figures on CPUs give.
    pub fn of(records: &'a [Record]) -> Floors<'a> {
        let mut floors =
            Floors { loops: BTreeMap::new(), copies: BTreeMap::new(), bandwidth: None, rates: [None; 2] };
        let mut largest = 0;
        let on_cpus = || records.iter().flat_map(|r| &r.measurements).filter(|m| m.device == "cpu");
        for m in on_cpus() {
            let seconds = m.time.median;
            if m.contender == LOOP {
                floors.loops.insert(&m.case, seconds);
            }
            if is_product(m) {
                let rate = m.work.flops as f64 / seconds;
                let best = &mut floors.rates[usize::from(!is_of_halves(m))];
                *best = Some(best.map_or(rate, |best| best.max(rate)));
            }
            // A plain copy counts for the copy of its size.
            let copied = m.case.replacen("copy plain ", "copy ", 1);
            if let Some(reference) = m.reference.as_deref().filter(|reference| *reference == copied) {
                let best = floors.copies.entry(reference).or_insert(0.0);
                *best = best.max(m.work.bytes as f64 / seconds);
                largest = largest.max(m.work.bytes);
            }
        }
        for m in on_cpus().filter(|m| m.work.bytes == largest) {
            floors.bandwidth = m.reference.as_deref().and_then(|r| floors.copies.get(r)).copied();
        }
        floors
    }

    /// Seconds that a case takes at least; None where that is not known.
    pub fn of_case(&self, m: &Measurement) -> Option<f64> {
        if m.device != "cpu" {
            return None;
        }
        if let Some(seconds) = self.loops.get(m.case.as_str()) {
            return Some(*seconds);
        }
        let (bytes, operations) = (m.work.bytes as f64, m.work.flops as f64);
        let rate = self.rates[usize::from(!is_of_halves(m))];
        match m.work.flops {
            0 => Some(bytes / self.copies.get(m.reference.as_deref()?)?),
            _ if is_product(m) => Some(operations / rate?),
            _ => Some(operations / rate? + bytes / self.bandwidth?),
        }
    }
}

fn is_product(m: &Measurement) -> bool {
    m.case.starts_with("gemm")
}

fn is_of_halves(m: &Measurement) -> bool {
    m.case.split(' ').any(|word| word == "bf16")
}
