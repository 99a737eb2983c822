//! Chains drawn at random, of 3 to 12 elementwise operations. An operand of each operation is the
//! previous result. The other operand of a binary operation is an array or a number.
//!
//! A chain drawn at the start of a measurement cannot have been tuned for. The seed is in the
//! cases' names, so a record identifies its chains. All operations round by IEEE 754 and bound the
//! growth of values, so every contender computes the same numbers.

use super::{Case, Float, Kind, Made, first, program, read, short};
use crate::data::{sampled, uniform};
use crate::parity::{Comparison, Parity};
use crate::record::Work;
use crate::resident::Resident;
use std::fmt::Write;
use wengert::core::build::FunctionBuilder;
use wengert::random::SplitMix64;
use wengert::{DType, Literal, Result, Tensor};

/// Arrays that a chain may read; it starts from the first.
pub(crate) const ARRAYS: [&str; 4] = ["x", "w", "b", "r"];

/// The second operand of an operation.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Operand {
    Array(usize),
    Number(f32),
}

/// An operation on the value `v`.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Operation {
    /// `v + o`
    Add(Operand),
    /// `v − o`
    Subtract(Operand),
    /// `o − v`
    SubtractFrom(Operand),
    /// `v · o`
    Multiply(Operand),
    /// `v / (|o| + 1)`
    Divide(Operand),
    /// `max(v, o)`
    Max(Operand),
    /// `min(v, o)`
    Min(Operand),
    /// `−v`
    Negate,
    /// `|v|`
    Abs,
    /// `√(|v| + 1)`
    Root,
}

/// A chain.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RandomChain(Vec<Operation>);

impl RandomChain {
    /// Chain number `number` of a seed.
    pub fn draw(seed: u64, number: u64) -> RandomChain {
        let mut stream = SplitMix64::of(seed, &[number]);
        let count = 3 + stream.below(10);
        let mut operations = vec![];
        for _ in 0..count {
            let kind = stream.below(10);
            let operand = match stream.below(4) {
                0 => Operand::Number((stream.below(16) as f32 - 7.5) / 4.0),
                _ => Operand::Array(stream.below(4) as usize),
            };
            operations.push(match kind {
                0 => Operation::Add(operand),
                1 => Operation::Subtract(operand),
                2 => Operation::SubtractFrom(operand),
                3 | 4 => Operation::Multiply(operand),
                5 => Operation::Divide(operand),
                6 => Operation::Max(operand),
                7 => Operation::Min(operand),
                8 => {
                    if stream.below(2) == 0 {
                        Operation::Negate
                    } else {
                        Operation::Abs
                    }
                }
                _ => Operation::Root,
            });
        }
        RandomChain(operations)
    }

    fn operands(&self) -> impl Iterator<Item = Operand> + '_ {
        self.0.iter().filter_map(|operation| match operation {
            Operation::Add(o)
            | Operation::Subtract(o)
            | Operation::SubtractFrom(o)
            | Operation::Multiply(o)
            | Operation::Divide(o)
            | Operation::Max(o)
            | Operation::Min(o) => Some(*o),
            Operation::Negate | Operation::Abs | Operation::Root => None,
        })
    }

    /// Whether the chain reads an array.
    fn reads(&self, array: usize) -> bool {
        array == 0 || self.operands().any(|o| o == Operand::Array(array))
    }

    /// The chain of one element.
    fn element(&self, arrays: [f32; 4]) -> f32 {
        let value = |o: Operand| match o {
            Operand::Array(k) => arrays[k],
            Operand::Number(n) => n,
        };
        self.0.iter().fold(arrays[0], |v, operation| match *operation {
            Operation::Add(o) => v + value(o),
            Operation::Subtract(o) => v - value(o),
            Operation::SubtractFrom(o) => value(o) - v,
            Operation::Multiply(o) => v * value(o),
            Operation::Divide(o) => v / (value(o).abs() + 1.0),
            Operation::Max(o) => v.max(value(o)),
            Operation::Min(o) => v.min(value(o)),
            Operation::Negate => -v,
            Operation::Abs => v.abs(),
            Operation::Root => (v.abs() + 1.0).sqrt(),
        })
    }

    /// The body of a loop in Rust, over `x`, `w`, `b` and `r`, as an expression.
    pub fn rust(&self) -> String {
        let shown = |o: Operand| match o {
            Operand::Array(k) => ARRAYS[k].to_owned(),
            Operand::Number(n) => format!("{n:?}f32"),
        };
        let mut text = String::from("let v = x; ");
        for operation in &self.0 {
            let next = match *operation {
                Operation::Add(o) => format!("v + {}", shown(o)),
                Operation::Subtract(o) => format!("v - ({})", shown(o)),
                Operation::SubtractFrom(o) => format!("{} - v", shown(o)),
                Operation::Multiply(o) => format!("v * {}", shown(o)),
                Operation::Divide(o) => format!("v / (({}).abs() + 1.0)", shown(o)),
                Operation::Max(o) => format!("v.max({})", shown(o)),
                Operation::Min(o) => format!("v.min({})", shown(o)),
                Operation::Negate => "-v".into(),
                Operation::Abs => "v.abs()".into(),
                Operation::Root => "(v.abs() + 1.0).sqrt()".into(),
            };
            write!(text, "let v = {next}; ").expect("strings take all");
        }
        text + "v"
    }

    fn graph(&self, f: &mut FunctionBuilder, elements: usize) -> Tensor {
        let arrays: Vec<Option<Tensor>> = ARRAYS
            .iter()
            .enumerate()
            .map(|(k, name)| self.reads(k).then(|| read(f, name, DType::F32, &[elements])))
            .collect();
        let x = arrays[0].clone().expect("every chain begins with it");
        let value = |o: Operand| match o {
            Operand::Array(k) => arrays[k].clone().expect("what is read was declared"),
            Operand::Number(n) => x.full_like(f64::from(n)),
        };
        self.0.iter().fold(x.clone(), |v, operation| match *operation {
            Operation::Add(o) => v + value(o),
            Operation::Subtract(o) => v - value(o),
            Operation::SubtractFrom(o) => value(o) - v,
            Operation::Multiply(o) => v * value(o),
            Operation::Divide(o) => v / (value(o).abs() + 1.0),
            Operation::Max(o) => v.max(value(o)),
            Operation::Min(o) => v.min(value(o)),
            Operation::Negate => -v,
            Operation::Abs => v.abs(),
            Operation::Root => (v.abs() + 1.0).sqrt(),
        })
    }
}

/// Chains of a seed: fifty, or three small ones.
pub fn random_chains(seed: u64, small: bool) -> Vec<Case> {
    let (count, elements) = if small { (3, 1 << 12) } else { (50, 1 << 19) };
    let cases = (0..count).map(|number| {
        let chain = RandomChain::draw(seed, number);
        let arrays = (0..ARRAYS.len()).filter(|k| chain.reads(*k)).count() as u64 + 1;
        Case {
            id: format!("random chain {number} of seed {seed} {}", short(elements)),
            group: "C2 random chains".into(),
            kind: Kind::RandomChain { seed, number, elements },
            dtype: Float::F32,
            work: Work { elements: elements as u64, bytes: arrays * 4 * elements as u64, flops: 0 },
            reference: None,
        }
    });
    cases.collect()
}

pub(super) fn make(seed: u64, number: u64, elements: usize) -> Result<Made> {
    let chain = RandomChain::draw(seed, number);
    let program = program(|f| {
        let y = chain.graph(f, elements);
        f.create("y", &y);
    })?;
    let mut variables = vec![];
    for (k, name) in ARRAYS.iter().enumerate() {
        if chain.reads(k) {
            variables.push((name.to_string(), uniform(name, DType::F32, &[elements], -2.0, 2.0)?));
        }
    }
    Ok(Made { program, variables, init: None, check })
}

fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    compare_random_chain(case, &resident.variable("y")?, variables)
}

/// Compares the result of a random chain, at up to 64K elements, with the chain of its operands
/// among `variables`: they must be equal.
pub fn compare_random_chain(
    case: &Case,
    y: &Literal,
    variables: &[(String, Literal)],
) -> Result<Parity> {
    let Kind::RandomChain { seed, number, .. } = case.kind else {
        return Err(wengert::Diagnostic::new(format!("`{}` is no random chain", case.id)));
    };
    let chain = RandomChain::draw(seed, number);
    let operands: Vec<Option<&Literal>> =
        (0..ARRAYS.len()).map(|k| chain.reads(k).then(|| first(variables, ARRAYS[k]))).collect();
    let mut comparison = Comparison::default();
    for i in sampled(y.len(), 1 << 16) {
        let mut arrays = [0.0; 4];
        for (slot, operand) in arrays.iter_mut().zip(&operands) {
            *slot = operand.map_or(0.0, |o| o.get(i).to_f64() as f32);
        }
        comparison.add(y.get(i).to_f64(), f64::from(chain.element(arrays)), 1.0);
    }
    comparison.finish(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all() {
        let of = |seed| (0..50).map(|n| RandomChain::draw(seed, n)).collect::<Vec<_>>();
        let (chains, others) = (of(1), of(2));
        assert_eq!(chains, of(1));
        assert_ne!(chains, others);
        assert!(chains.iter().all(|c| (3..=12).contains(&c.0.len())));
        assert!(chains.iter().any(|c| c.0.len() == 3) && chains.iter().any(|c| c.0.len() == 12));
    }

    #[test]
    fn a_chain_is_what_it_says() {
        use Operation::*;
        let chain = RandomChain(vec![
            Multiply(Operand::Array(1)),
            SubtractFrom(Operand::Number(-1.5)),
            Root,
        ]);
        assert_eq!(chain.element([2.0, 3.0, 0.0, 0.0]), 8.5f32.sqrt());
        let text =
            "let v = x; let v = v * w; let v = -1.5f32 - v; let v = (v.abs() + 1.0).sqrt(); v";
        assert_eq!(chain.rust(), text);
        assert!(chain.reads(0) && chain.reads(1) && !chain.reads(2));
    }
}
