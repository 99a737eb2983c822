//! Elementwise chains over whole arrays, and the copies they are compared with.
//!
//! Every operand is an array of the full length, so a good kernel of a chain is bandwidth-bound.
//! `copy` multiplies by a scalar one that is stored on the device. No compiler can fold it, so the
//! copy is a kernel like the others. `copy plain` returns the array itself, by the device's own
//! copy.

use super::{Case, Float, Kind, Made, copy_of_memory, first, program, read, short};
use crate::data::{sampled, uniform};
use crate::parity::{Comparison, Parity};
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::{DType, Literal, Result, Tensor};

/// A chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chain {
    /// `x · s`, where s is a scalar one.
    Copy,
    /// `x`.
    CopyPlain,
    /// `(x · w + b) · x + r`.
    MulAdd,
    /// `gelu(x + b) + r`, exact GELU.
    Gelu,
    /// `√(|max(x · w + b, r) · x − w| + 1)`: eight operations.
    Eight,
}

impl Chain {
    const ALL: [Chain; 5] =
        [Chain::Copy, Chain::CopyPlain, Chain::MulAdd, Chain::Gelu, Chain::Eight];

    /// Arrays that are read; one more is written.
    fn operands(self) -> &'static [&'static str] {
        match self {
            Chain::Copy | Chain::CopyPlain => &["x"],
            Chain::Gelu => &["x", "b", "r"],
            Chain::MulAdd | Chain::Eight => &["x", "w", "b", "r"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Chain::Copy => "copy",
            Chain::CopyPlain => "copy plain",
            Chain::MulAdd => "(x*w+b)*x+r",
            Chain::Gelu => "gelu(x+b)+r",
            Chain::Eight => "chain of 8",
        }
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let sizes: [usize; 2] = if small { [1 << 12, 1 << 16] } else { [1 << 20, 1 << 26] };
    let mut cases = vec![Case {
        id: "empty".into(),
        group: "steps".into(),
        kind: Kind::Empty,
        dtype: Float::F32,
        work: Work { elements: 1, bytes: 8, flops: 0 },
        reference: None,
    }];
    Float::ALL.iter().for_each(|dtype| cases.extend(of_sizes(*dtype, &sizes)));
    debug_assert!(cases.iter().any(|c| Some(&c.id) == copy_of_memory(Float::F32, small).as_ref()));
    cases
}

/// Every chain at some numbers of elements.
pub(super) fn of_sizes(dtype: Float, sizes: &[usize]) -> Vec<Case> {
    sizes
        .iter()
        .flat_map(|elements| Chain::ALL.map(|chain| case(chain, dtype, *elements)))
        .collect()
}

/// One chain. Its work: each operand is read and the result is written, once.
fn case(chain: Chain, dtype: Float, elements: usize) -> Case {
    let arrays = chain.operands().len() as u64 + 1;
    let extent = short(elements);
    Case {
        id: format!("{} {} {extent}", chain.name(), dtype.name()),
        group: "memory".into(),
        kind: Kind::Chain { chain, elements },
        dtype,
        work: Work {
            elements: elements as u64,
            bytes: arrays * dtype.bytes() * elements as u64,
            flops: 0,
        },
        reference: Some(format!("copy {} {extent}", dtype.name())),
    }
}

pub(super) fn make(chain: Chain, dtype: DType, elements: usize) -> Result<Made> {
    let program = program(|f| {
        let mut array = |name: &str, extent: usize| read(f, name, dtype, &[extent]);
        let x = array("x", elements);
        let y = match chain {
            Chain::CopyPlain => x,
            Chain::Copy => x * array("s", 1),
            Chain::Gelu => {
                let (b, r) = (array("b", elements), array("r", elements));
                (x + b).gelu() + r
            }
            Chain::MulAdd => {
                let (w, b, r) = (array("w", elements), array("b", elements), array("r", elements));
                (&x * w + b) * &x + r
            }
            Chain::Eight => {
                let (w, b, r) = (array("w", elements), array("b", elements), array("r", elements));
                let inner: Tensor = (&x * &w + b).max(&r) * &x - &w;
                (inner.abs() + 1.0).sqrt()
            }
        };
        f.create("y", &y);
    })?;
    let mut variables = Vec::new();
    for name in chain.operands() {
        variables.push((name.to_string(), uniform(name, dtype, &[elements], -2.0, 2.0)?));
    }
    if chain == Chain::Copy {
        variables.push(("s".into(), Literal::from_vec(&[1], vec![1.0f32])?.convert(dtype)));
    }
    Ok(Made { program, variables, init: None, check })
}

/// The chain of one element of each operand.
fn element(chain: Chain, v: [f64; 4]) -> f64 {
    let [x, w, b, r] = v;
    match chain {
        Chain::Copy | Chain::CopyPlain => x,
        Chain::MulAdd => (x * w + b) * x + r,
        Chain::Gelu => gelu(x + b) + r,
        Chain::Eight => (((x * w + b).max(r) * x - w).abs() + 1.0).sqrt(),
    }
}

fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let chain = match case.kind {
        Kind::Chain { chain, .. } => chain,
        _ => Chain::Copy,
    };
    compare_chain(chain, &resident.variable("y")?, variables)
}

/// Compares a chain's result, at up to 64K elements, with the chain of its operands among
/// `variables`.
pub fn compare_chain(chain: Chain, y: &Literal, variables: &[(String, Literal)]) -> Result<Parity> {
    let operand = |name: &str| chain.operands().contains(&name).then(|| first(variables, name));
    let operands = ["x", "w", "b", "r"].map(operand);
    let mut comparison = Comparison::default();
    for i in sampled(y.len(), 1 << 16) {
        let values = operands.map(|o| o.map_or(0.0, |o| o.get(i).to_f64()));
        // Intermediate values are within 12 for operands within 2, and each operation rounds once.
        comparison.add(y.get(i).to_f64(), element(chain, values), 12.0);
    }
    let exact = matches!(chain, Chain::Copy | Chain::CopyPlain);
    comparison.finish(if exact { 0.0 } else { 8.0 * y.dtype().unit_roundoff() })
}

/// x · Φ(x), where Φ is the normal distribution function.
pub(super) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// erf by the series 2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (1·3·5⋯(2n+1)), whose terms have one sign,
/// so there is no cancellation. (Abramowitz and Stegun, 7.1.6.)
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_has_its_published_values() {
        for (x, value) in [
            (0.0, 0.0),
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.5, 0.999593047982555),
        ] {
            assert!((erf(x) - value).abs() < 1e-15, "{x}");
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!(erf(7.0), 1.0);
        assert!((gelu(1.0) - 0.8413447460685429).abs() < 1e-15);
    }

    #[test]
    fn chains_are_counted_by_hand() {
        let bytes = |chain, dtype| case(chain, dtype, 1 << 20).work.bytes >> 20;
        assert_eq!(bytes(Chain::Copy, Float::F32), 8);
        assert_eq!(bytes(Chain::MulAdd, Float::F32), 20);
        assert_eq!(bytes(Chain::Gelu, Float::Bf16), 8);
    }
}
