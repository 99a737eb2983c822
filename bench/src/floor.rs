//! All inputs of floors are measured, in the same records, and are the best of any contender. A
//! chain's floor is the time of its plain loop. Without a loop it is the chain's bytes divided by
//! the bandwidth of its reference copy. A product's floor is its operations divided by the best
//! rate of any product of the same dtype. A network's floor is its operations divided by that rate,
//! plus its bytes divided by the bandwidth of the largest copy. A contender that overlaps
//! arithmetic and memory traffic can be below it.
//!
//! Loops are timed in turns with chains, and a product and a copy in turns with
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
    /// Bytes per second of copies, by case.
    copies: BTreeMap<&'a str, f64>,
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
            copies: BTreeMap::new(),
            largest: None,
            rates: [None; 2],
        };
        let all = || records.iter().flat_map(|r| &r.measurements).filter(|m| m.device == "cpu");
        // If the records have no other product (or copy), the yardstick's rate is used.
        let beside_products = all().any(|m| is_product(m) && !is_yardstick(m));
        let beside_copies = all().any(|m| is_copy(m) && !is_yardstick(m));
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
            if let Some(reference) = m.reference.as_deref().filter(|_| is_copy(m))
                && !(is_yardstick(m) && beside_copies)
            {
                let best = floors.copies.entry(reference).or_insert(0.0);
                *best = best.max(m.work.bytes as f64 / seconds);
                if m.work.bytes > largest {
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
        match m.work.flops {
            0 => Some((0.0, bytes / self.copies.get(m.reference.as_deref()?)?)),
            _ if is_product(m) => Some((operations / rate?, 0.0)),
            _ => Some((operations / rate?, bytes / self.copies.get(self.largest?)?)),
        }
    }

    /// The floor in each round of a network, if the yardstick was timed in turns with it.
    fn of_rounds(&self, m: &Measurement) -> Option<Vec<f64>> {
        if is_product(m) || m.work.flops == 0 {
            return None;
        }
        let (operations, bytes) = self.parts(m)?;
        let [product, copy] =
            [is_product, is_copy].map(|wanted: fn(&Measurement) -> bool| self.slowness(m, wanted));
        let rounds = product?.into_iter().zip(copy?);
        Some(rounds.map(|(product, copy)| operations * product + bytes * copy).collect())
    }

    /// The yardstick's time for a kind of case in each round, relative to its time when the rates
    /// were measured.
    fn slowness(&self, m: &Measurement, wanted: fn(&Measurement) -> bool) -> Option<Vec<f64>> {
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

/// Whether it is a copy. A plain copy also counts, as the copy of its size.
fn is_copy(m: &Measurement) -> bool {
    let copied = m.case.replacen("copy plain ", "copy ", 1);
    m.reference.as_deref() == Some(&copied)
}

fn is_of_halves(m: &Measurement) -> bool {
    m.case.split(' ').any(|word| word == "bf16")
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
