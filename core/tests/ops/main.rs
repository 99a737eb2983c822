//! Facets of ops, over the whole catalogue. A new op is tested here without a change.
// Clippy exempts tests, but not their helper functions.
#![allow(clippy::unwrap_used)]

mod calls;
mod compute;
mod docs;
mod exact;
mod facets;
mod hostile;
mod lower;
mod methods;
mod random;
mod special;
use wengert_core::{DType, Literal};
use wengert_testing::samples::{self, Entry, Sample};

/// The dtypes in which float samples are tested. Only some ops take the last two.
const FLOATS: [DType; 6] =
    [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3FN, DType::F8E5M2];

/// Every op × sample × float dtype, with the operands. A sample without random floats appears once.
fn cases() -> impl Iterator<Item = (Entry, Sample, Vec<Literal>)> {
    samples::catalogue().into_iter().flat_map(|entry| {
        let samples = entry.samples.clone().into_iter();
        samples.flat_map(move |sample| {
            let entry = entry.clone();
            let mut seen: Vec<Vec<Literal>> = Vec::new();
            for dtype in FLOATS {
                let literals = sample.literals(dtype, 0x5eed);
                // A sample may mix fixed floats of one dtype with random floats of any dtype. Only
                // some of the mixtures are valid operands.
                let types: Vec<_> = literals.iter().map(Literal::ty).collect();
                if !seen.contains(&literals) && (seen.is_empty() || sample.infer(&types).is_ok()) {
                    seen.push(literals);
                }
            }
            seen.into_iter().map(move |literals| (entry.clone(), sample.clone(), literals))
        })
    })
}
