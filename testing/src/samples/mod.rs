//! Samples: ops with attributes, and operands to test every facet of them with.
//!
//! One file has the samples of one family or of a few. [`catalogue`] has those of all ops; a test
//! of `wengert-core` checks that no op lacks samples.

mod collectives;
mod control;
mod conv_general_dilated;
mod custom;
mod elementwise;
mod formats;
mod gather;
mod indexing;
mod markdown;
mod networks;
mod prelude;
mod products;
mod reductions;
mod sample;
mod scatter;
mod sources;
mod structure;
mod windows;

pub use collectives::{CollectiveSample, collectives, mesh};
pub use markdown::markdown;
pub use sample::{
    Batch, RegionRule, Sample, SampleOperand, batches, floats, region, values, wide_floats,
};

use std::collections::BTreeMap;
use wengert_core::Op;

/// An entry of the catalogue of ops with the op's samples.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name in text.
    pub name: &'static str,
    /// Documentation: the first line is the formula.
    pub doc: &'static str,
    /// Kind of the derivative rule.
    pub derivative: &'static str,
    /// Test operands.
    pub samples: Vec<Sample>,
    /// Test operands of a collective, which has no others.
    pub collectives: Vec<CollectiveSample>,
}

/// The whole catalogue of ops with their samples, in the order of [`Op::catalogue`].
pub fn catalogue() -> Vec<Entry> {
    let mut samples: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    for sample in all() {
        samples.entry(sample.op.name()).or_default().push(sample);
    }
    let of_ranks = |name: &str| -> Vec<CollectiveSample> {
        collectives().into_iter().filter(|sample| sample.op.name() == name).collect()
    };
    let entry = |e: wengert_core::op::Entry| Entry {
        name: e.name,
        doc: e.doc,
        derivative: e.derivative,
        samples: samples.remove(e.name).unwrap_or_default(),
        collectives: of_ranks(e.name),
    };
    Op::catalogue().into_iter().map(entry).collect()
}

/// The samples of one op.
pub fn of(name: &str) -> Vec<Sample> {
    all().into_iter().filter(|sample| sample.op.name() == name).collect()
}

/// All samples, family by family.
fn all() -> Vec<Sample> {
    [
        elementwise::samples(),
        formats::samples(),
        sources::samples(),
        structure::samples(),
        reductions::samples(),
        windows::samples(),
        indexing::samples(),
        gather::samples(),
        scatter::samples(),
        products::samples(),
        conv_general_dilated::samples(),
        networks::samples(),
        control::samples(),
        custom::samples(),
    ]
    .concat()
}
