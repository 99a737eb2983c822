//! All inputs of floors are measured, in the same records, and are the best of any contender. A
//! chain's floor is the time of its plain loop. The floor of another bandwidth-bound case is its
//! bytes divided by the bandwidth of its reference: a copy, or a sum for decoding and for products
//! of few rows. A product's floor is its operations divided by the best rate of any product of the
//! same dtype. A network's floor is its operations divided by that rate, plus its bytes divided by
//! the bandwidth of the largest copy. A contender that overlaps arithmetic and memory traffic can
//! be below it, and so can one whose operands stay in a cache.
//!
//! Loops are timed in turns with chains, and references, or a product and a copy, in turns with
//! [networks](crate::yardstick). So floors are computed per round. The displayed values are
//! medians, of floors and of times relative to them.

use crate::record::{Measurement, Record};
use crate::statistics::{Spread, paired};
use crate::yardstick::is_yardstick;
use std::collections::BTreeMap;

/// Name of the plain loops as a contender.
pub(crate) const LOOP: &str = "rust loop";

/// The floors of some records.
#[derive(Debug)]
pub struct Floors<'a> {
    records: &'a [Record],
    /// Plain loops, by case.
    loops: BTreeMap<&'a str, &'a Measurement>,
    /// Bytes per second of references, by case.
    bandwidths: BTreeMap<&'a str, f64>,
    /// The largest copy.
    largest: Option<&'a str>,
    /// Operations per second of products: of bf16, and of others.
    rates: [Option<f64>; 2],
}

impl<'a> Floors<'a> {
    /// The floors from the figures on CPUs.
    pub fn of(records: &'a [Record]) -> Floors<'a> {
        let mut floors = Floors {
            records,
            loops: BTreeMap::new(),
            bandwidths: BTreeMap::new(),
            largest: None,
            rates: [None; 2],
        };
        let all = || records.iter().flat_map(|r| &r.measurements).filter(|m| m.device == "cpu");
        // If the records have no other product (or reference), the yardstick's rate is used.
        let beside_products = all().any(|m| is_product(m) && !is_yardstick(m));
        let beside = |reference: &str| {
            all().any(|m| {
                is_reference(m) && m.reference.as_deref() == Some(reference) && !is_yardstick(m)
            })
        };
        let mut largest = 0;
        for m in all() {
            let seconds = m.time.median;
            if m.contender == LOOP {
                floors.loops.insert(&m.case, m);
            }
            if is_product(m) && !(is_yardstick(m) && beside_products) {
                let rate = m.work.flops as f64 / seconds;
                let best = &mut floors.rates[usize::from(!is_of_halves(m))];
                *best = Some(best.map_or(rate, |best| best.max(rate)));
            }
            if let Some(reference) = m.reference.as_deref().filter(|_| is_reference(m))
                && !(is_yardstick(m) && beside(reference))
            {
                let best = floors.bandwidths.entry(reference).or_insert(0.0);
                *best = best.max(m.work.bytes as f64 / seconds);
                if is_copy(m) && m.work.bytes > largest {
                    (largest, floors.largest) = (m.work.bytes, Some(reference));
                }
            }
        }
        floors
    }

    /// Lower bound of a case's seconds; None where it is not known.
    pub fn of_case(&self, m: &Measurement) -> Option<f64> {
        if m.device != "cpu" {
            return None;
        }
        if let Some(lined) = self.loops.get(m.case.as_str()) {
            return Some(lined.time.median);
        }
        if let Some(rounds) = self.of_rounds(m) {
            return Spread::of(&rounds).map(|spread| spread.median);
        }
        let (operations, bytes) = self.parts(m)?;
        Some(operations + bytes)
    }

    /// A case's time relative to its floor: the median of the rounds where both were timed in
    /// turns. None if no floor is known.
    pub fn multiple(&self, m: &Measurement) -> Option<f64> {
        let of_rounds = match self.loops.get(m.case.as_str()) {
            Some(lined) if in_turns(self.records, m, lined) => Some(lined.rounds.clone()),
            Some(_) => None,
            None => self.of_rounds(m),
        };
        let pairs = of_rounds.and_then(|floors| paired(&m.rounds, &floors));
        pairs.map(|ratios| ratios.median).or_else(|| Some(m.time.median / self.of_case(m)?))
    }

    /// Seconds for a case's operations, and for its bytes, at the rates as measured.
    fn parts(&self, m: &Measurement) -> Option<(f64, f64)> {
        let (bytes, operations) = (m.work.bytes as f64, m.work.flops as f64);
        let rate = self.rates[usize::from(!is_of_halves(m))];
        match m.reference.as_deref() {
            Some(reference) => Some((0.0, bytes / self.bandwidths.get(reference)?)),
            None if m.work.flops == 0 => None,
            None if is_product(m) => Some((operations / rate?, 0.0)),
            None => Some((operations / rate?, bytes / self.bandwidths.get(self.largest?)?)),
        }
    }

    /// The floor in each round of a network or of another case with a yardstick, if the yardstick
    /// was timed in turns with it.
    fn of_rounds(&self, m: &Measurement) -> Option<Vec<f64>> {
        let (operations, bytes) = self.parts(m)?;
        if let Some(reference) = m.reference.as_deref() {
            let rounds = self.slowness(m, &|y| y.case == reference)?;
            return Some(rounds.into_iter().map(|read| bytes * read).collect());
        }
        if is_product(m) {
            return None;
        }
        let (product, copy) = (self.slowness(m, &is_product), self.slowness(m, &is_copy));
        let rounds = product?.into_iter().zip(copy?);
        Some(rounds.map(|(product, copy)| operations * product + bytes * copy).collect())
    }

    /// The yardstick's time for a kind of case in each round, relative to its time when the rates
    /// were measured.
    fn slowness(&self, m: &Measurement, wanted: &dyn Fn(&Measurement) -> bool) -> Option<Vec<f64>> {
        let all = || self.records.iter().flat_map(|r| &r.measurements);
        let beside =
            all().find(|y| is_yardstick(y) && wanted(y) && in_turns(self.records, m, y))?;
        let ours = all().find(|other| {
            !is_yardstick(other) && other.case == beside.case && other.contender == "wengert"
        });
        let then = ours.unwrap_or(beside).time.median;
        Some(beside.rounds.iter().map(|seconds| seconds / then).collect())
    }
}

/// Whether two were timed in the same rounds.
pub(crate) fn in_turns(records: &[Record], one: &Measurement, other: &Measurement) -> bool {
    let is_in = |record: &Record, m| record.measurements.iter().any(|of| std::ptr::eq(of, m));
    let counts = !one.rounds.is_empty() && one.rounds.len() == other.rounds.len();
    counts && one.group == other.group && records.iter().any(|r| is_in(r, one) && is_in(r, other))
}

fn is_product(m: &Measurement) -> bool {
    m.case.starts_with("gemm")
}

/// Whether it is its own reference. A plain copy counts as the copy of its size.
pub(crate) fn is_reference(m: &Measurement) -> bool {
    let copied = m.case.replacen("copy plain ", "copy ", 1);
    m.reference.as_deref() == Some(&copied)
}

/// Whether it is a copy that is a reference.
fn is_copy(m: &Measurement) -> bool {
    m.case.starts_with("copy ") && is_reference(m)
}

fn is_of_halves(m: &Measurement) -> bool {
    m.case.split(' ').any(|word| matches!(word, "bf16" | "mixed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::Parity;
    use crate::record::Work;
    use crate::table::tests::record;
    use crate::yardstick::YARDSTICK;

    fn measured(
        contender: &str,
        group: &str,
        case: &str,
        rounds: &[f64],
        flops: u64,
    ) -> Measurement {
        let time = Spread::of(rounds).unwrap();
        Measurement {
            case: case.into(),
            group: group.into(),
            contender: contender.into(),
            device: "cpu".into(),
            work: Work { elements: 1, bytes: 100, flops },
            reference: (flops == 0).then(|| "copy f32 16M".into()),
            runs: 1,
            time,
            latency: time,
            rounds: rounds.to_vec(),
            parity: Parity { compared: 1, worst: 0.0, bound: 0.0, losses: None },
        }
    }

    /// If the machine is half as fast while a network is measured, the floor is twice as high.
    #[test]
    fn floors_are_those_of_the_rounds() {
        let network = measured("wengert", "C5", "step", &[10.0, 20.0, 40.0], 1000);
        let yardstick =
            |case, rounds: &[f64], flops| measured(YARDSTICK, "C5", case, rounds, flops);
        let beside = [
            network.clone(),
            yardstick("gemm f32 1024", &[2.0, 4.0, 8.0], 1000),
            yardstick("copy f32 16M", &[0.5, 1.0, 2.0], 0),
        ];
        let of = |measurements: Vec<Measurement>| {
            let records = [record("one", measurements)];
            let floors = Floors::of(&records);
            let network = &records[0].measurements[0];
            (floors.of_case(network), floors.multiple(network))
        };
        // Only the yardstick's rates are known: 250 operations and 100 bytes per second in the
        // middle round.
        assert_eq!(of(beside.to_vec()), (Some(5.0), Some(4.0)));
        // When rates were measured, the machine was twice as fast, and another contender's product
        // was faster than this library's.
        let rates = [
            measured("wengert", "C1", "gemm f32 1024", &[2.0], 1000),
            measured("jax", "C1", "gemm f32 1024", &[1.0], 1000),
            measured("wengert", "C2", "copy f32 16M", &[0.5], 0),
        ];
        assert_eq!(of([beside.as_slice(), &rates].concat()), (Some(3.0), Some(20.0 / 3.0)));
        // Without a yardstick in the same rounds, the rates are used unchanged.
        assert_eq!(of([&[network], rates.as_slice()].concat()), (Some(1.5), Some(20.0 / 1.5)));
    }

    /// A network that only reads is compared with a sum. Sums are not copies: other networks are
    /// compared with the largest copy.
    #[test]
    fn networks_that_read_are_compared_with_a_sum() {
        let of_sum = |m: Measurement| Measurement {
            reference: Some("sum f32 64M".into()),
            work: Work { bytes: 400, ..m.work },
            ..m
        };
        let step = of_sum(measured("wengert", "C12", "decode", &[8.0, 16.0, 32.0], 1000));
        let sum = |who, group: &str, rounds: &[f64]| {
            of_sum(measured(who, group, "sum f32 64M", rounds, 0))
        };
        let network = measured("wengert", "C5", "step", &[3.0], 1000);
        let others = [
            measured("wengert", "C1", "gemm f32 1024", &[2.0], 1000),
            measured("wengert", "C2", "copy f32 16M", &[0.5], 0),
            sum("wengert", "C12 reading", &[4.0]),
            sum("jax", "C12 reading", &[2.0]),
        ];
        let records = [record("one", [&[step.clone(), network], others.as_slice()].concat())];
        let floors = Floors::of(&records);
        assert_eq!(floors.of_case(&records[0].measurements[0]), Some(2.0));
        assert_eq!(floors.of_case(&records[0].measurements[1]), Some(2.5));
        // The machine is half as fast in the second round, and again in the third.
        let beside = sum(YARDSTICK, "C12", &[4.0, 8.0, 16.0]);
        let records = [record("one", [&[step, beside], others.as_slice()].concat())];
        let floors = Floors::of(&records);
        let step = &records[0].measurements[0];
        assert_eq!((floors.of_case(step), floors.multiple(step)), (Some(4.0), Some(4.0)));
    }

    #[test]
    fn loops_are_timed_in_turns_with_chains() {
        let case = "chain of 8 f32 16M";
        let records = [record(
            "one",
            vec![
                measured("wengert", "C2", case, &[1.0, 2.0, 3.0], 0),
                measured(LOOP, "C2", case, &[2.0, 4.0, 1.0], 0),
            ],
        )];
        let floors = Floors::of(&records);
        assert_eq!(floors.multiple(&records[0].measurements[0]), Some(0.5));
    }
}
